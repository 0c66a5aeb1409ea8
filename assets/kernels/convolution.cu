/* 3x3 convolutions without padding, and 2x2 max-pooling. Images are [image][row][column][channel]; where a thread
 * works on four channels at a time, the number of channels is a multiple of 4. */
#include "device.h"

/* The first layer, whose input has one channel: output = relu(images * weights + bias). */
struct conv_first_args {
    const float *images;
    const float *params; /* weights [3][3][filters], then biases */
    float *output;
    u32 threads; /* images * out * out * filters / 4 */
    u32 side;
    u32 out;
    u32 quads; /* filters / 4 */
};
KERNEL(conv_first)
{
    u32 at = AT;
    if (at >= a.threads) return;
    u32 quad = at % a.quads, pixel = at / a.quads;
    u32 x = pixel % a.out, line = pixel / a.out, y = line % a.out, image = line / a.out;
    const float4 *weights = (const float4 *)a.params;
    const float *corner = a.images + ((u64)image * a.side + y) * a.side + x;
    float4 sum = weights[9 * a.quads + quad];
    for (u32 tap = 0; tap < 9; tap++) {
        float value = corner[(tap / 3) * a.side + tap % 3];
        float4 weight = weights[tap * a.quads + quad];
        sum.x += value * weight.x;
        sum.y += value * weight.y;
        sum.z += value * weight.z;
        sum.w += value * weight.w;
    }
    sum.x = above_zero(sum.x);
    sum.y = above_zero(sum.y);
    sum.z = above_zero(sum.z);
    sum.w = above_zero(sum.w);
    ((float4 *)a.output)[at] = sum;
}

/* Its gradients, weights and biases alike (a bias is a weight whose input is 1): one part for each `chunk` pixels. */
struct conv_first_gradient_args {
    const float *images;
    const float *gradient; /* of the output, before ReLU */
    float *parts;          /* [part][10][filters] */
    u32 threads;           /* parts * 10 * filters */
    u32 side;
    u32 out;
    u32 filters;
    u32 pixels; /* images * out * out */
    u32 chunk;
};
KERNEL(conv_first_gradient)
{
    u32 at = AT;
    if (at >= a.threads) return;
    u32 filter = at % a.filters, tap = at / a.filters % 10, part = at / a.filters / 10;
    u32 first = part * a.chunk, last = first + a.chunk < a.pixels ? first + a.chunk : a.pixels;
    u32 x = first % a.out, y = first / a.out % a.out, image = first / a.out / a.out;
    float sum = 0.0f;
    for (u32 pixel = first; pixel < last; pixel++) {
        float value = 1.0f;
        if (tap < 9) value = a.images[((u64)image * a.side + y + tap / 3) * a.side + x + tap % 3];
        sum += value * a.gradient[(u64)pixel * a.filters + filter];
        if (++x == a.out) {
            x = 0;
            if (++y == a.out) {
                y = 0;
                image++;
            }
        }
    }
    a.parts[at] = sum;
}

/* The patches that a convolution multiplies by its weights: [image][row][column][3][3][channel]. */
struct patches_args {
    const float *input;
    float *patches;
    u32 threads; /* images * out * out * 9 * channels / 4 */
    u32 side;
    u32 out;
    u32 quads; /* channels / 4 */
};
KERNEL(patches)
{
    u32 at = AT;
    if (at >= a.threads) return;
    u32 quad = at % a.quads, rest = at / a.quads, tap = rest % 9, pixel = rest / 9;
    u32 x = pixel % a.out, line = pixel / a.out, y = line % a.out, image = line / a.out;
    u32 from = ((image * a.side + y + tap / 3) * a.side + x + tap % 3) * a.quads + quad;
    ((float4 *)a.patches)[at] = ((const float4 *)a.input)[from];
}

/* The gradient of the input from that of the patches: each input value gathers the nine patches that have it. Zero
 * where ReLU gave zero. */
struct gather_args {
    const float *patches;
    const float *output; /* what ReLU gave: the convolution's input */
    float *gradient;
    u32 threads; /* images * side * side * channels / 4 */
    u32 side;
    u32 out;
    u32 quads;
};
KERNEL(gather)
{
    u32 at = AT;
    if (at >= a.threads) return;
    u32 quad = at % a.quads, pixel = at / a.quads;
    u32 x = pixel % a.side, line = pixel / a.side, y = line % a.side, image = line / a.side;
    float4 sum = {0.0f, 0.0f, 0.0f, 0.0f};
    for (u32 tap = 0; tap < 9; tap++) {
        u32 top = y - tap / 3, left = x - tap % 3;
        /* Below zero is a great number here. */
        if (top < a.out && left < a.out) {
            u32 from = (((image * a.out + top) * a.out + left) * 9 + tap) * a.quads + quad;
            float4 value = ((const float4 *)a.patches)[from];
            sum.x += value.x;
            sum.y += value.y;
            sum.z += value.z;
            sum.w += value.w;
        }
    }
    float4 output = ((const float4 *)a.output)[at];
    sum.x = output.x > 0.0f ? sum.x : 0.0f;
    sum.y = output.y > 0.0f ? sum.y : 0.0f;
    sum.z = output.z > 0.0f ? sum.z : 0.0f;
    sum.w = output.w > 0.0f ? sum.w : 0.0f;
    ((float4 *)a.gradient)[at] = sum;
}

/* pooled = drop(relu(max of 2x2 of wide + bias)); winner: which of the four it was. */
struct pool_args {
    const float *wide;
    const float *bias;
    float *pooled;
    u8 *winner;
    struct dropout dropout;
    u32 threads; /* images * half * half * filters / 4 */
    u32 out;     /* side of wide */
    u32 half;    /* side of pooled */
    u32 quads;
};
INLINE float best_of(float nw, float ne, float sw, float se, float bias, u8 *winner)
{
    float top = ne > nw ? ne : nw, low = se > sw ? se : sw;
    u8 top_at = ne > nw ? 1 : 0, low_at = se > sw ? 3 : 2;
    *winner = low > top ? low_at : top_at;
    return above_zero((low > top ? low : top) + bias);
}
KERNEL(pool)
{
    u32 at = AT;
    if (at >= a.threads) return;
    u32 quad = at % a.quads, pixel = at / a.quads;
    u32 x = pixel % a.half, line = pixel / a.half, y = line % a.half, image = line / a.half;
    const float4 *wide = (const float4 *)a.wide;
    u32 corner = ((image * a.out + 2 * y) * a.out + 2 * x) * a.quads + quad, below = a.out * a.quads;
    float4 nw = wide[corner], ne = wide[corner + a.quads];
    float4 sw = wide[corner + below], se = wide[corner + below + a.quads];
    float4 bias = ((const float4 *)a.bias)[quad], best;
    u8 *winner = a.winner + 4 * (u64)at;
    best.x = best_of(nw.x, ne.x, sw.x, se.x, bias.x, winner);
    best.y = best_of(nw.y, ne.y, sw.y, se.y, bias.y, winner + 1);
    best.z = best_of(nw.z, ne.z, sw.z, se.z, bias.z, winner + 2);
    best.w = best_of(nw.w, ne.w, sw.w, se.w, bias.w, winner + 3);
    ((float4 *)a.pooled)[at] = drop(a.dropout, at, best);
}

/* The gradient of `wide`: that of the pooled value where it won, else zero. An odd last row or column is not pooled. */
struct unpool_args {
    const float *gradient;
    const u8 *winner;
    float *wide;
    u32 threads; /* images * out * out * filters / 4 */
    u32 out;
    u32 half;
    u32 quads;
};
KERNEL(unpool)
{
    u32 at = AT;
    if (at >= a.threads) return;
    u32 quad = at % a.quads, pixel = at / a.quads;
    u32 x = pixel % a.out, line = pixel / a.out, y = line % a.out, image = line / a.out;
    float4 value = {0.0f, 0.0f, 0.0f, 0.0f};
    if (x / 2 < a.half && y / 2 < a.half) {
        u32 from = ((image * a.half + y / 2) * a.half + x / 2) * a.quads + quad;
        u8 place = (u8)(y % 2 * 2 + x % 2);
        const u8 *winner = a.winner + 4 * (u64)from;
        float4 gradient = ((const float4 *)a.gradient)[from];
        value.x = winner[0] == place ? gradient.x : 0.0f;
        value.y = winner[1] == place ? gradient.y : 0.0f;
        value.z = winner[2] == place ? gradient.z : 0.0f;
        value.w = winner[3] == place ? gradient.w : 0.0f;
    }
    ((float4 *)a.wide)[at] = value;
}
