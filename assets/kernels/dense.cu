/* Dense layers and the loss: what lies between the matrix products, and a matrix product for hosts without cuBLAS. */
#include "device.h"

/* values = drop(relu(values + bias)), in place. */
struct bias_relu_args {
    float *values;
    const float *bias;
    struct dropout dropout;
    u32 threads; /* rows * columns / 4 */
    u32 quads;   /* columns / 4 */
};
KERNEL(bias_relu)
{
    u32 at = AT;
    if (at >= a.threads) return;
    float4 value = ((float4 *)a.values)[at], bias = ((const float4 *)a.bias)[at % a.quads];
    value.x = above_zero(value.x + bias.x);
    value.y = above_zero(value.y + bias.y);
    value.z = above_zero(value.z + bias.z);
    value.w = above_zero(value.w + bias.w);
    ((float4 *)a.values)[at] = drop(a.dropout, at, value);
}

/* The gradient stops where ReLU or dropout gave zero, and is multiplied by `scale` elsewhere. */
struct relu_gradient_args {
    const float *output;
    float *gradient;
    u32 threads;
    float scale;
};
KERNEL(relu_gradient)
{
    u32 at = AT;
    if (at >= a.threads) return;
    a.gradient[at] = a.output[at] > 0.0f ? a.gradient[at] * a.scale : 0.0f;
}

/* Softmax and cross-entropy of each row: the row becomes the gradient of its loss. */
struct softmax_args {
    float *logits;
    const float *bias;
    const u8 *labels;
    float *losses;
    float *right; /* 1 where the greatest logit is the label's */
    u32 threads;  /* rows */
    u32 classes;
};
KERNEL(softmax)
{
    u32 at = AT;
    if (at >= a.threads) return;
    float *row = a.logits + (u64)at * a.classes;
    u32 label = a.labels[at], best_at = 0;
    for (u32 i = 0; i < a.classes; i++) row[i] += a.bias[i];
    float best = row[0];
    for (u32 i = 1; i < a.classes; i++) {
        if (row[i] > best) {
            best = row[i];
            best_at = i;
        }
    }
    float of_label = row[label] - best, sum = 0.0f;
    for (u32 i = 0; i < a.classes; i++) {
        row[i] = expf(row[i] - best);
        sum += row[i];
    }
    for (u32 i = 0; i < a.classes; i++) row[i] = row[i] / sum - (i == label ? 1.0f : 0.0f);
    a.losses[at] = logf(sum) - of_label;
    a.right[at] = best_at == label ? 1.0f : 0.0f;
}

/* Sums over the rows, by one thread in the order of rows. */
struct total_args {
    const float *losses;
    const float *right;
    float *own;  /* loss, right */
    float *sums; /* loss, rows: what is added up over ranks */
    u32 threads; /* 1 */
    u32 rows;
};
KERNEL(total)
{
    if (AT >= a.threads) return;
    double loss = 0.0, right = 0.0;
    for (u32 i = 0; i < a.rows; i++) {
        loss += a.losses[i];
        right += a.right[i];
    }
    a.own[0] = (float)loss;
    a.own[1] = (float)right;
    a.sums[0] = (float)loss;
    a.sums[1] = (float)a.rows;
}

/* Sums of columns: one part for each `chunk` rows. */
struct column_sums_args {
    const float *values; /* [rows][columns] */
    float *parts;        /* [part][columns] */
    u32 threads;         /* parts * columns */
    u32 columns;
    u32 rows;
    u32 chunk;
};
KERNEL(column_sums)
{
    u32 at = AT;
    if (at >= a.threads) return;
    u32 column = at % a.columns, first = at / a.columns * a.chunk;
    u32 last = first + a.chunk < a.rows ? first + a.chunk : a.rows;
    float sum = 0.0f;
    for (u32 row = first; row < last; row++) sum += a.values[(u64)row * a.columns + column];
    a.parts[at] = sum;
}

/* The sum of all parts, in their order. */
struct sum_parts_args {
    const float *parts; /* [parts][threads] */
    float *sum;
    u32 threads;
    u32 parts_count;
};
KERNEL(sum_parts)
{
    u32 at = AT;
    if (at >= a.threads) return;
    float sum = 0.0f;
    for (u32 part = 0; part < a.parts_count; part++) sum += a.parts[(u64)part * a.threads + at];
    a.sum[at] = sum;
}

/* product = left * right: 4x4 values a thread, and where the product is small the inner dimension in parts of `chunk`.
 * The matrices are read by strides, so that a transposed one is the same with its strides changed. */
struct product_args {
    const float *left;  /* rows x inner */
    const float *right; /* inner x columns */
    float *product;     /* [part][rows][columns] */
    u32 threads;        /* parts * tiles down * tiles across */
    u32 rows;
    u32 columns;
    u32 inner;
    u32 left_row;
    u32 left_column;
    u32 right_row;
    u32 right_column;
    u32 chunk;
};
KERNEL(product)
{
    u32 at = AT;
    if (at >= a.threads) return;
    u32 across = (a.columns + 3) / 4, down = (a.rows + 3) / 4;
    u32 column = at % across * 4, row = at / across % down * 4, part = at / across / down;
    u32 first = part * a.chunk, last = first + a.chunk < a.inner ? first + a.chunk : a.inner;
    /* What lies beyond the last row or column is read from the last one and not stored. */
    const float *left[4], *right[4];
    for (u32 i = 0; i < 4; i++) {
        left[i] = a.left + (u64)(row + i < a.rows ? row + i : a.rows - 1) * a.left_row;
        right[i] = a.right + (u64)(column + i < a.columns ? column + i : a.columns - 1) * a.right_column;
    }
    float sum[4][4] = {{0.0f}};
    for (u32 k = first; k < last; k++) {
        u64 left_at = (u64)k * a.left_column, right_at = (u64)k * a.right_row;
        float l[4], r[4];
        for (u32 i = 0; i < 4; i++) {
            l[i] = left[i][left_at];
            r[i] = right[i][right_at];
        }
        for (u32 i = 0; i < 4; i++)
            for (u32 j = 0; j < 4; j++) sum[i][j] += l[i] * r[j];
    }
    float *to = a.product + (u64)part * a.rows * a.columns;
    for (u32 i = 0; i < 4; i++)
        for (u32 j = 0; j < 4; j++)
            if (row + i < a.rows && column + j < a.columns)
                to[(u64)(row + i) * a.columns + column + j] = sum[i][j];
}
