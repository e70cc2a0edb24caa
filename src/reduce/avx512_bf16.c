/* Of bfloat16, for processors with AVX-512 that round to it themselves (AVX512_BF16). */
#define PAIRS reduce_kernels_avx512_bf16
#define ROUNDS_ITSELF
#include "avx512_pairs.inc"

typedef int avx512_bf16_is_x86_only;
