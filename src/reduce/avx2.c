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

static INLINE v_u32 bytes_widen(v_u8 bytes) {
    long long low;
    memcpy(&low, &bytes, sizeof(low));
    return (v_u32)_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(low));
}

static INLINE v_u8 bytes_narrow(v_u32 v) {
    __m128i words = (__m128i)words_narrow(v);
    long long low = _mm_cvtsi128_si64(_mm_packus_epi16(words, words));
    v_u8 narrow;
    memcpy(&narrow, &low, sizeof(narrow));
    return narrow;
}

static INLINE v_f32 half_widen(v_u16 half) {
    return (v_f32)_mm256_cvtph_ps((__m128i)half);
}

static INLINE v_u16 half_narrow(v_f32 value) {
    return (v_u16)_mm256_cvtps_ph((__m256)value, _MM_FROUND_TO_NEAREST_INT);
}

#include "kernels.inc"
#else
typedef int reduce_avx2_is_x86_only;
#endif
