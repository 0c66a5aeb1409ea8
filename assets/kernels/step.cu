/* What a step does besides the network: optimizers, compression, and time that passes. */
#include "device.h"

/* Adam, as src/worker/model/optimizer.rs has it. The gradient is a sum over `count[0]` samples. */
struct adam_args {
    float *params;
    const float *gradient;
    float *mean;
    float *square;
    const float *count;
    u32 threads;
    float rate; /* with the correction of this step */
    float keep_mean;
    float keep_square;
    float epsilon;
};
KERNEL(adam)
{
    u32 at = AT;
    if (at >= a.threads) return;
    float gradient = a.gradient[at] * (1.0f / a.count[0]);
    float mean = a.mean[at], square = a.square[at];
    mean += (gradient - mean) * (1.0f - a.keep_mean);
    square += (gradient * gradient - square) * (1.0f - a.keep_square);
    a.mean[at] = mean;
    a.square[at] = square;
    a.params[at] -= a.rate * mean / (sqrtf(square) + a.epsilon);
}

/* Gradient descent with momentum. */
struct descend_args {
    float *params;
    const float *gradient;
    float *velocity;
    const float *count;
    u32 threads;
    float rate;
    float momentum;
};
KERNEL(descend)
{
    u32 at = AT;
    if (at >= a.threads) return;
    float velocity = a.momentum * a.velocity[at] - a.rate * (1.0f / a.count[0]) * a.gradient[at];
    a.velocity[at] = velocity;
    a.params[at] += velocity;
}

INLINE u16 half_of(float value)
{
#ifdef __CUDACC__
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
#else
    return processor_half_of(value);
#endif
}

INLINE float from_half(u16 bits)
{
#ifdef __CUDACC__
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
#else
    return processor_from_half(bits);
#endif
}

/* Single to half precision, rounded to the nearest, with a factor before it; and back. */
struct compress_args {
    const float *values;
    u16 *halves;
    u32 threads;
    float scale;
};
KERNEL(compress)
{
    u32 at = AT;
    if (at >= a.threads) return;
    a.halves[at] = half_of(a.values[at] * a.scale);
}

struct expand_args {
    const u16 *halves;
    float *values;
    u32 threads;
    float scale;
};
KERNEL(expand)
{
    u32 at = AT;
    if (at >= a.threads) return;
    a.values[at] = from_half(a.halves[at]) / a.scale;
}

/* What so many samples of the synthetic job add up to: 1, 2, ... period times their number, in turn. */
struct slopes_args {
    float *values;
    u32 threads;
    u32 period;
    float samples;
};
KERNEL(slopes)
{
    u32 at = AT;
    if (at >= a.threads) return;
    a.values[at] = a.samples * (float)(1 + at % a.period);
}

/* Keeps the GPU busy for this long, as arithmetic of a known length. */
struct spin_args {
    u64 nanoseconds;
    u32 threads;
};
KERNEL(spin)
{
    if (AT >= a.threads) return;
#ifdef __CUDACC__
    u64 start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < a.nanoseconds);
#else
    processor_spin(a.nanoseconds);
#endif
}
