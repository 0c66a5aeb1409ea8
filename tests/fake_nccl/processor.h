/* Lets a C compiler make the kernels of assets/kernels for this processor:
 *
 *   cc -x c -O2 -fsanitize=alignment -fsanitize-undefined-trap-on-error -shared -fPIC \
 *       -include tests/fake_nccl/processor.h assets/kernels/NAME.cu... -lm -o kernels.so
 *
 * Plain C, because wherever Rust is there is a C compiler and not always one for C++. A kernel NAME becomes run_NAME,
 * which does all its threads one after the other, and size_of_NAME, the bytes of its arguments. */
#include <math.h>
#include <string.h>

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
/* Aligned as on a GPU, where a load from elsewhere is a fault: -fsanitize=alignment makes it one here. */
typedef struct {
    float x, y, z, w;
} __attribute__((aligned(16))) float4;
struct place {
    u32 x, y, z;
};
static _Thread_local struct place blockIdx, blockDim, threadIdx;

#define INLINE static inline
#define KERNEL(name)                                                                   \
    static void name##_body(const struct name##_args a);                               \
    const u32 size_of_##name = sizeof(struct name##_args);                             \
    void run_##name(u32 grid, u32 block, const void *args)                             \
    {                                                                                  \
        struct name##_args a;                                                          \
        memcpy(&a, args, sizeof a);                                                    \
        blockDim.x = block;                                                            \
        for (blockIdx.x = 0; blockIdx.x < grid; blockIdx.x++)                          \
            for (threadIdx.x = 0; threadIdx.x < block; threadIdx.x++) name##_body(a);  \
    }                                                                                  \
    static void name##_body(const struct name##_args a)

/* Half precision by hand: older compilers for this processor have no type for it. */
INLINE u16 processor_half_of(float value)
{
    u32 bits;
    memcpy(&bits, &value, 4);
    u32 sign = bits >> 16 & 0x8000, exponent = bits >> 23 & 0xff, fraction = bits & 0x7fffff;
    if (exponent == 0xff) return sign | 0x7c00 | (fraction ? 0x3ff : 0);
    if (exponent > 142) return sign | 0x7c00;
    /* The fraction with its leading one, and how many of its bits half precision has no place for. */
    u32 whole = fraction | 0x800000, lost = exponent < 113 ? 126 - exponent : 13;
    if (lost > 24) return sign;
    u32 kept = whole >> lost, rest = whole & ((1u << lost) - 1), half = 1u << (lost - 1);
    if (rest > half || (rest == half && (kept & 1))) kept++;
    /* Rounding up may carry into the exponent, which is right. */
    return sign | (exponent < 113 ? kept : kept + ((exponent - 113) << 10));
}

INLINE float processor_from_half(u16 half)
{
    u32 exponent = half >> 10 & 0x1f, fraction = half & 0x3ff;
    float value;
    if (exponent == 0x1f) {
        u32 bits = 0x7f800000 | fraction << 13;
        memcpy(&value, &bits, 4);
    } else {
        value = exponent ? ldexpf((float)(fraction | 0x400), (int)exponent - 25) : ldexpf((float)fraction, -24);
    }
    return half & 0x8000 ? -value : value;
}

/* The scripted driver's time doesn't pass by waiting. */
INLINE void processor_spin(u64 nanoseconds) { (void)nanoseconds; }
