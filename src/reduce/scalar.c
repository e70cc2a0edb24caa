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

static INLINE v_u32 bytes_widen(v_u8 bytes) {
    int low;
    memcpy(&low, &bytes, sizeof(low));
    __m128i zero = _mm_setzero_si128();
    return (v_u32)_mm_unpacklo_epi16(_mm_unpacklo_epi8(_mm_cvtsi32_si128(low), zero), zero);
}

static INLINE v_u8 bytes_narrow(v_u32 v) {
    __m128i words = _mm_packs_epi32((__m128i)v, (__m128i)v);
    int low = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
    v_u8 narrow;
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

static INLINE v_u32 bytes_widen(v_u8 bytes) {
    return __builtin_convertvector(bytes, v_u32);
}

static INLINE v_u8 bytes_narrow(v_u32 v) {
    return __builtin_convertvector(v, v_u8);
}
#endif

static INLINE v_f32 half_widen(v_u16 half) {
    return small_value(words_widen(half), FORMAT_HALF);
}

static INLINE v_u16 half_narrow(v_f32 value) {
    return words_narrow(small_round(value, FORMAT_HALF));
}

#if defined(__SSE2__)
static INLINE v_f32 lesser_f32(v_f32 a, v_f32 b) {
    return (v_f32)_mm_min_ps((__m128)a, (__m128)b);
}
static INLINE v_f32 greater_f32(v_f32 a, v_f32 b) {
    return (v_f32)_mm_max_ps((__m128)a, (__m128)b);
}
static INLINE v_f64 lesser_f64(v_f64 a, v_f64 b) {
    return (v_f64)_mm_min_pd((__m128d)a, (__m128d)b);
}
static INLINE v_f64 greater_f64(v_f64 a, v_f64 b) {
    return (v_f64)_mm_max_pd((__m128d)a, (__m128d)b);
}
#else
#define DEFINE_EXTREMES(suffix, real, bits)                                                        \
    static INLINE real lesser_##suffix(real a, real b) {                                           \
        return (real)SELECT((bits)(a < b), (bits)a, (bits)b);                                      \
    }                                                                                              \
    static INLINE real greater_##suffix(real a, real b) {                                          \
        return (real)SELECT((bits)(a > b), (bits)a, (bits)b);                                      \
    }
DEFINE_EXTREMES(f32, v_f32, v_u32)
DEFINE_EXTREMES(f64, v_f64, v_u64)
#endif

#define FLOAT8_BY_HALF 0
#include "kernels.inc"
