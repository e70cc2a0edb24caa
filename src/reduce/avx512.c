/* Kernels for AVX-512 (F, BW, VL, DQ); compiled with those flags, run only where the processor has
 * them. Tails are one masked step, so a few elements cost as little as a full vector. */
#define VECTOR_BYTES 64
#define ISA avx512
#include "vectors.h"

#if REDUCE_HAVE_X86
#include <immintrin.h>

/* A masked load or store of the first `bytes` < size bytes of a vector of `size` bytes, a constant;
 * masked bytes are never touched. The minima say to compilers that do not see the constant that
 * the other branches are in bounds. */
#define AT_MOST(size, most) ((size) < (most) ? (size) : (most))

static INLINE void load_masked(void *vector, size_t size, const void *from, size_t bytes) {
    uint64_t mask = (UINT64_C(1) << bytes) - 1;
    if (size == 64) {
        __m512i v = _mm512_maskz_loadu_epi8(mask, from);
        memcpy(vector, &v, AT_MOST(size, 64));
    } else if (size == 32) {
        __m256i v = _mm256_maskz_loadu_epi8((__mmask32)mask, from);
        memcpy(vector, &v, AT_MOST(size, 32));
    } else {
        __m128i v = _mm_maskz_loadu_epi8((__mmask16)mask, from);
        memcpy(vector, &v, AT_MOST(size, 16));
    }
}

static INLINE void store_masked(void *to, const void *vector, size_t size, size_t bytes) {
    uint64_t mask = (UINT64_C(1) << bytes) - 1;
    if (size == 64) {
        __m512i v;
        memcpy(&v, vector, AT_MOST(size, 64));
        _mm512_mask_storeu_epi8(to, mask, v);
    } else if (size == 32) {
        __m256i v;
        memcpy(&v, vector, AT_MOST(size, 32));
        _mm256_mask_storeu_epi8(to, (__mmask32)mask, v);
    } else {
        __m128i v = _mm_setzero_si128();
        memcpy(&v, vector, AT_MOST(size, 16));
        _mm_mask_storeu_epi8(to, (__mmask16)mask, v);
    }
}

#define TAIL_COUNT(left) (left)
#define LOAD_TAIL(v, type, from, n) load_masked(&v, sizeof(v), from, (n) * sizeof(type))
#define STORE_TAIL(v, type, to, n) store_masked(to, &v, sizeof(v), (n) * sizeof(type))

static INLINE v_u32 words_widen(v_u16 words) {
    return (v_u32)_mm512_cvtepu16_epi32((__m256i)words);
}

static INLINE v_u16 words_narrow(v_u32 v) {
    return (v_u16)_mm512_cvtepi32_epi16((__m512i)v);
}

static INLINE v_f32 half_widen(v_u16 half) {
    return (v_f32)_mm512_cvtph_ps((__m256i)half);
}

/* Without optimisation the compiler's header makes a macro of it, whose mask of -1 would warn. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"
static INLINE v_u16 half_narrow(v_f32 value) {
    return (v_u16)_mm512_cvtps_ph((__m512)value, _MM_FROUND_TO_NEAREST_INT);
}

static INLINE v_u16 half_truncate(v_f32 value) {
    return (v_u16)_mm512_cvtps_ph((__m512)value, _MM_FROUND_TO_ZERO);
}
#pragma GCC diagnostic pop

static INLINE v_f32 lesser_f32(v_f32 a, v_f32 b) {
    return (v_f32)_mm512_min_ps((__m512)a, (__m512)b);
}
static INLINE v_f32 greater_f32(v_f32 a, v_f32 b) {
    return (v_f32)_mm512_max_ps((__m512)a, (__m512)b);
}
static INLINE v_f64 lesser_f64(v_f64 a, v_f64 b) {
    return (v_f64)_mm512_min_pd((__m512d)a, (__m512d)b);
}
static INLINE v_f64 greater_f64(v_f64 a, v_f64 b) {
    return (v_f64)_mm512_max_pd((__m512d)a, (__m512d)b);
}

#define FLOAT8_BY_HALF 1
static INLINE v_u16 bytes_words(v_u8 bytes) {
    return (v_u16)_mm256_cvtepu8_epi16((__m128i)bytes);
}

static INLINE v_u8 words_bytes(v_u16 v) {
    return (v_u8)_mm256_cvtepi16_epi8((__m256i)v);
}

#include "kernels.inc"
#else
typedef int reduce_avx512_is_x86_only;
#endif
