/* Kernels for any processor: vectors of 16 bytes that the compiler maps to what every machine of
 * the architecture has (SSE2, NEON) and conversions of float16 in integer arithmetic. */
#define VECTOR_BYTES 16
#define ISA scalar
#include "vectors.h"
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

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

/* Bits of the float that equals a half. */
static inline uint32_t half_to_float(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t exponent = (half >> 10) & 31, fraction = half & 0x3ff;
    if (exponent == 31)
        return sign | 0x7f800000 | fraction << 13;
    if (exponent)
        return sign | (exponent + 112) << 23 | fraction << 13;
    if (!fraction)
        return sign;
    /* A subnormal: fraction * 2^-24, with its highest bit made the implicit one. */
    uint32_t shift = (uint32_t)__builtin_clz(fraction) - 21;
    return sign | (113 - shift) << 23 | (fraction << shift & 0x3ff) << 13;
}

/* The half nearest to a float, ties to even. */
static inline uint16_t float_to_half(uint32_t bits) {
    uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff, half;
    if (magnitude > 0x7f800000) {
        half = 0x7e00;
        sign = 0;
    } else if (magnitude >= 0x47800000) { /* 65536 */
        half = 0x7c00;
    } else if (magnitude >= 0x38800000) { /* 2^-14: normal; the carry may make it infinite */
        half = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
    } else if (magnitude >= 0x33000000) { /* 2^-25: half the smallest subnormal */
        uint32_t shift = 126 - (magnitude >> 23);
        uint32_t fraction = (magnitude & 0x7fffff) | 0x800000;
        half = fraction >> shift;
        uint32_t rest = fraction & ((1u << shift) - 1), tie = 1u << (shift - 1);
        half += rest > tie || (rest == tie && (half & 1));
    } else {
        half = 0;
    }
    return (uint16_t)(sign | half);
}

#if defined(__SSE2__)
/* Compilers make of the conversions below 16 scalar moves. */
static INLINE v_u32 words_widen(v_u16 words) {
    long long low;
    memcpy(&low, &words, sizeof(low));
    return (v_u32)_mm_unpacklo_epi16(_mm_cvtsi64_si128(low), _mm_setzero_si128());
}

/* Sign-extended, so that the saturation to 16 bits changes nothing. */
static INLINE v_u16 words_narrow(v_u32 v) {
    __m128i words = _mm_srai_epi32(_mm_slli_epi32((__m128i)v, 16), 16);
    long long low = _mm_cvtsi128_si64(_mm_packs_epi32(words, words));
    v_u16 narrow;
    memcpy(&narrow, &low, sizeof(narrow));
    return narrow;
}
#else
static INLINE v_u32 words_widen(v_u16 words) {
    return __builtin_convertvector(words, v_u32);
}

static INLINE v_u16 words_narrow(v_u32 v) {
    return __builtin_convertvector(v, v_u16);
}
#endif

static INLINE v_f32 half_widen(v_u16 half) {
    v_u32 v = {half_to_float(half[0]), half_to_float(half[1]), half_to_float(half[2]),
               half_to_float(half[3])};
    return (v_f32)v;
}

static INLINE v_u16 half_narrow(v_f32 value) {
    v_u32 v = (v_u32)value;
    return (v_u16){float_to_half(v[0]), float_to_half(v[1]), float_to_half(v[2]),
                   float_to_half(v[3])};
}

#include "kernels.inc"
