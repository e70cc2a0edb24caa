/* Kernels for AVX2 with F16C; compiled with those flags, run only where the processor has them. */
#define VECTOR_BYTES 32
#define ISA avx2
#include "vectors.h"

#if REDUCE_HAVE_X86
#include <immintrin.h>

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
    return (v_u32)_mm256_cvtepu16_epi32((__m128i)words);
}

static INLINE v_u16 words_narrow(v_u32 v) {
    __m256i words = (__m256i)v;
    return (v_u16)_mm_packus_epi32(_mm256_castsi256_si128(words),
                                   _mm256_extracti128_si256(words, 1));
}

static INLINE v_f32 half_widen(v_u16 half) {
    return (v_f32)_mm256_cvtph_ps((__m128i)half);
}

static INLINE v_u16 half_narrow(v_f32 value) {
    return (v_u16)_mm256_cvtps_ph((__m256)value, _MM_FROUND_TO_NEAREST_INT);
}

static INLINE v_f32 lesser_f32(v_f32 a, v_f32 b) {
    return (v_f32)_mm256_min_ps((__m256)a, (__m256)b);
}
static INLINE v_f32 greater_f32(v_f32 a, v_f32 b) {
    return (v_f32)_mm256_max_ps((__m256)a, (__m256)b);
}
static INLINE v_f64 lesser_f64(v_f64 a, v_f64 b) {
    return (v_f64)_mm256_min_pd((__m256d)a, (__m256d)b);
}
static INLINE v_f64 greater_f64(v_f64 a, v_f64 b) {
    return (v_f64)_mm256_max_pd((__m256d)a, (__m256d)b);
}

#define FLOAT8_BY_HALF 1
static INLINE v_u16 half_truncate(v_f32 value) {
    return (v_u16)_mm256_cvtps_ph((__m256)value, _MM_FROUND_TO_ZERO);
}

static INLINE v_u16 bytes_words(v_u8 bytes) {
    long long low;
    memcpy(&low, &bytes, sizeof(low));
    return (v_u16)_mm_cvtepu8_epi16(_mm_cvtsi64_si128(low));
}

static INLINE v_u8 words_bytes(v_u16 v) {
    long long low = _mm_cvtsi128_si64(_mm_packus_epi16((__m128i)v, (__m128i)v));
    v_u8 narrow;
    memcpy(&narrow, &low, sizeof(narrow));
    return narrow;
}

#include "kernels.inc"
#else
typedef int reduce_avx2_is_x86_only;
#endif
