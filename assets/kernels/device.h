/* What the kernels share. They are written in what CUDA C and plain C have in common, so that the same text also
 * runs on a processor, in tests: see tests/fake_nccl/processor.h.
 *
 * Each kernel takes one struct. No kernel uses shared memory, a barrier or an atomic: each thread gathers what it
 * needs and writes places of its own, so that the same input gives the same bits. */
#ifdef __CUDACC__
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
#define KERNEL(name) extern "C" __global__ void name(const struct name##_args a)
#define INLINE static __device__ __forceinline__
#endif

/* This thread's number. */
#define AT (blockIdx.x * blockDim.x + threadIdx.x)

INLINE float above_zero(float value) { return value > 0.0f ? value : 0.0f; }

/* 64 well-mixed bits: `hash` of src/worker/model/dropout.rs. */
INLINE u64 hash(u64 seed, u64 counter)
{
    u64 z = seed ^ ((counter + 1) * 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

/* Which of four neighbouring values are kept, and what they are multiplied by: `Dropout` of the same file. */
struct dropout {
    u64 seed;
    u64 first;   /* place of the first four values of this launch */
    u32 dropped; /* of 65,536; 0: all are kept */
    float scale;
};

INLINE float fate(const struct dropout d, u64 bits, u32 at)
{
    return (u32)((bits >> (16 * at)) & 0xffff) >= d.dropped ? d.scale : 0.0f;
}

INLINE float4 drop(const struct dropout d, u32 at, float4 v)
{
    if (d.dropped) {
        u64 bits = hash(d.seed, d.first + at);
        v.x *= fate(d, bits, 0);
        v.y *= fate(d, bits, 1);
        v.z *= fate(d, bits, 2);
        v.w *= fate(d, bits, 3);
    }
    return v;
}
