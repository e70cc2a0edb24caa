/* Kernels for 64-bit ARM, every one of which has NEON. The conversion of float16 to float is the
 * processor's; that to float16 is not, because it would follow the process's rounding mode. */
#define VECTOR_BYTES 16
#define ISA neon
#include "vectors.h"

#if REDUCE_HAVE_NEON
#include <arm_neon.h>

#define TAIL_COUNT(left) ((void)(left), (size_t)1)
#define LOAD_TAIL(v, type, from, n)                                                                \
    do {                                                                                           \
        type first;                                                                                \
        (void)(n);                                                                                 \
        memcpy(&first, from, sizeof(first));                                                       \
        v = (__typeof__(v)){first};                                                                \
    } while (0)
#define STORE_TAIL(v, type, to, n)                                                                 \
    do {                                                                                           \
        type first = v[0];                                                                         \
        (void)(n);                                                                                 \
        memcpy(to, &first, sizeof(first));                                                         \
    } while (0)

static INLINE v_u32 words_widen(v_u16 words) {
    return (v_u32)vmovl_u16((uint16x4_t)words);
}

static INLINE v_u16 words_narrow(v_u32 v) {
    return (v_u16)vmovn_u32((uint32x4_t)v);
}

static INLINE v_f32 half_widen(v_u16 half) {
    return (v_f32)vcvt_f32_f16(vreinterpret_f16_u16((uint16x4_t)half));
}

/* As the scalar kernels do it, all four ranges at once. */
static INLINE v_u16 half_narrow(v_f32 value) {
    v_u32 bits = (v_u32)value, sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    v_u32 normal = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;

    /* A subnormal: shifted by 14 to 25; more leaves nothing of the 24 bits, less is none. */
    v_u32 shift = 126 - (magnitude >> 23), one = (v_u32){0} + 1;
    shift = SELECT((shift > 31) | (shift < 14), (v_u32){0} + 31, shift);
    v_u32 fraction = (magnitude & 0x7fffff) | 0x800000, small = fraction >> shift;
    v_u32 rest = fraction & ((one << shift) - 1), tie = one << (shift - 1);
    small += SELECT((rest > tie) | ((rest == tie) & ((small & 1) == 1)), one, (v_u32){0});

    v_u32 half = SELECT(magnitude >= 0x38800000, normal, small);
    half = SELECT(magnitude >= 0x47800000, (v_u32){0} + 0x7c00, half) | sign;
    return words_narrow(SELECT(magnitude > 0x7f800000, (v_u32){0} + 0x7e00, half));
}

#include "kernels.inc"
#else
typedef int reduce_neon_is_arm_only;
#endif
