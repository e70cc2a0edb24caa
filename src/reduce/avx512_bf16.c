/* Sums and averages of raw bfloat16 for processors that round to it themselves (AVX512_BF16): twice
 * as many elements in a step as the template has, and a third of its instructions. Same bits.
 *
 * Elements are taken apart by their place in 32 bits, even and odd, since both are floats once the
 * other half is cleared. The instruction rounds to nearest even in every mode, but takes subnormals
 * for zeros and keeps what a NaN carries; steps that have one of these round as the template does.
 */
#define VECTOR_BYTES 64
#include "vectors.h"

#if REDUCE_HAVE_X86
#include <immintrin.h>
#include <pthread.h>

#define STEP ((size_t)32)
#define NAN_OR_SUBNORMAL 0xa1

struct floats {
    __m512 even, odd;
};

static INLINE struct floats widen(__m512i pairs) {
    const __m512i high = _mm512_set1_epi32((int)0xffff0000u);
    return (struct floats){(__m512)_mm512_slli_epi32(pairs, 16),
                           (__m512)_mm512_and_si512(pairs, high)};
}

static INLINE struct floats add(struct floats a, struct floats b) {
    return (struct floats){_mm512_add_ps(a.even, b.even), _mm512_add_ps(a.odd, b.odd)};
}

/* Result in the upper half of each lane. See brain_narrow. */
static INLINE __m512i round_by_hand(__m512 value) {
    __m512i v = (__m512i)value;
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(v, 16), _mm512_set1_epi32(1));
    v = _mm512_add_epi32(v, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    return _mm512_mask_mov_epi32(v, nan, _mm512_set1_epi32(0x7fc00000));
}

static INLINE __m512i narrow(struct floats v) {
    static const uint16_t zip[STEP] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                       21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                       11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    __mmask16 odd_ones = _mm512_fpclass_ps_mask(v.even, NAN_OR_SUBNORMAL) |
                         _mm512_fpclass_ps_mask(v.odd, NAN_OR_SUBNORMAL);
    if (__builtin_expect(odd_ones != 0, 0))
        return _mm512_mask_mov_epi16(round_by_hand(v.odd), 0x55555555,
                                     _mm512_srli_epi32(round_by_hand(v.even), 16));
    __m512i split = (__m512i)_mm512_cvtne2ps_pbh(v.odd, v.even);
    return _mm512_permutexvar_epi16(_mm512_loadu_si512(zip), split);
}

/* The first n elements of a step, `full` being a constant that says n = STEP. Full steps are not
 * masked: beyond the first-level cache masked stores were measured at half the speed. */
static INLINE __mmask32 mask_of(size_t n) {
    return (__mmask32)((UINT32_C(1) << n) - 1);
}

static INLINE struct floats load(const void *from, size_t i, bool full, size_t n) {
    const uint16_t *at = (const uint16_t *)from + i;
    return widen(full ? _mm512_loadu_si512(at) : _mm512_maskz_loadu_epi16(mask_of(n), at));
}

static INLINE void store(void *to, size_t i, __m512i v, bool full, size_t n) {
    uint16_t *at = (uint16_t *)to + i;
    if (full)
        _mm512_storeu_si512(at, v);
    else
        _mm512_mask_storeu_epi16(at, mask_of(n), v);
}

struct task {
    void *dst, *dst2;        /* dst2 may be NULL */
    const void *operands[4]; /* 0 op 1, or (0 op 1) op (2 op 3) */
    int noperands;
    bool average;
    int nranks;
};

static INLINE void step(const struct task *task, __m512 nranks, size_t i, bool full, size_t n) {
    const void *const *from = task->operands;
    struct floats v = add(load(from[0], i, full, n), load(from[1], i, full, n));
    if (task->noperands == 4)
        v = add(v, add(load(from[2], i, full, n), load(from[3], i, full, n)));
    if (task->average)
        v = (struct floats){_mm512_div_ps(v.even, nranks), _mm512_div_ps(v.odd, nranks)};
    __m512i result = narrow(v);
    store(task->dst, i, result, full, n);
    if (task->dst2 != NULL)
        store(task->dst2, i, result, full, n);
}

static INLINE void loop(struct task task, size_t count) {
    const __m512 nranks = _mm512_set1_ps((float)task.nranks);
    size_t i = 0;
    for (; count - i >= STEP; i += STEP) {
        if (task.noperands == 2)
            __builtin_prefetch((const char *)((const uint16_t *)task.operands[1] + i) +
                               PREFETCH_BYTES);
        step(&task, nranks, i, true, STEP);
    }
    if (i < count)
        step(&task, nranks, i, false, count - i);
}

#define KERNELS(name, average)                                                                     \
    static void pair_##name(void *dst, const void *left, const void *right, size_t count,          \
                            int nranks) {                                                          \
        loop((struct task){dst, NULL, {left, right}, 2, average, nranks}, count);                  \
    }                                                                                              \
    static void two_##name(void *dst, void *dst2, const void *left, const void *right,             \
                           size_t count, int nranks) {                                             \
        loop((struct task){dst, dst2, {left, right}, 2, average, nranks}, count);                  \
    }                                                                                              \
    static void quad_##name(void *dst, const void *const operands[4], size_t count, int nranks) {  \
        const void *const *o = operands;                                                           \
        loop((struct task){dst, NULL, {o[0], o[1], o[2], o[3]}, 4, average, nranks}, count);       \
    }
KERNELS(sum, false)
KERNELS(avg, true)

static struct reduce_kernels sums, averages;

/* The other forms are the template's. */
static void fill(void) {
    sums = *reduce_table_avx512[ROTA_BFLOAT16][ROTA_SUM];
    sums.pair[0][0][1] = pair_sum;
    sums.two = two_sum;
    sums.quad[0][1] = quad_sum;
    averages = *reduce_table_avx512[ROTA_BFLOAT16][ROTA_AVG];
    averages.pair[0][0][1] = pair_avg;
    averages.two = two_avg;
    averages.quad[0][1] = quad_avg;
}

const struct reduce_kernels *reduce_kernels_avx512_bf16(rota_op op) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill);
    return op == ROTA_SUM ? &sums : op == ROTA_AVG ? &averages : NULL;
}
#else
typedef int reduce_avx512_bf16_is_x86_only;
#endif
