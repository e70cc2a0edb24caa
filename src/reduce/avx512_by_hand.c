/* Of bfloat16, for processors with AVX-512 that do not round to it themselves. */
#define PAIRS reduce_kernels_avx512_by_hand
#include "avx512_pairs.inc"

typedef int avx512_by_hand_is_x86_only;
