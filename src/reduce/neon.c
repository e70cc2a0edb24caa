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

static INLINE v_u16 half_narrow(v_f32 value) {
    return words_narrow(small_round(value, FORMAT_HALF));
}

static INLINE v_u32 bytes_widen(v_u8 bytes) {
    uint32_t low;
    memcpy(&low, &bytes, sizeof(low));
    uint16x8_t words = vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(low)));
    return (v_u32)vmovl_u16(vget_low_u16(words));
}

static INLINE v_u8 bytes_narrow(v_u32 v) {
    uint16x4_t words = vmovn_u32((uint32x4_t)v);
    uint32_t low = vget_lane_u32(vreinterpret_u32_u8(vmovn_u16(vcombine_u16(words, words))), 0);
    v_u8 narrow;
    memcpy(&narrow, &low, sizeof(narrow));
    return narrow;
}

/* These take -0 for less than +0 and give a NaN where there is one, which is as good. */
static INLINE v_f32 lesser_f32(v_f32 a, v_f32 b) {
    return (v_f32)vminq_f32((float32x4_t)a, (float32x4_t)b);
}
static INLINE v_f32 greater_f32(v_f32 a, v_f32 b) {
    return (v_f32)vmaxq_f32((float32x4_t)a, (float32x4_t)b);
}
static INLINE v_f64 lesser_f64(v_f64 a, v_f64 b) {
    return (v_f64)vminq_f64((float64x2_t)a, (float64x2_t)b);
}
static INLINE v_f64 greater_f64(v_f64 a, v_f64 b) {
    return (v_f64)vmaxq_f64((float64x2_t)a, (float64x2_t)b);
}

#define FLOAT8_BY_HALF 0
#include "kernels.inc"
#else
typedef int reduce_neon_is_arm_only;
#endif
