/* LightGBM's network over rota: the two functions for LGBM_NetworkInitWithFunctions, and what comes
 * before and after them. LightGBM calls them from one thread. They have no way to report a failure
 * to it: they print the library's error record, which names who failed, and end the process. */
#ifndef ROTA_LIGHTGBM_H
#define ROTA_LIGHTGBM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* output[i] = input[i] op output[i], for array_size bytes of elements of type_size bytes. */
typedef void (*lightgbm_reducer)(const char *input, char *output, int type_size,
                                 int32_t array_size);

/* Joins the job `id` as rank `rank` of `n`. Ranks on one machine need nothing else: they meet by a
 * file in ROTA_STORE_DIR (else TMPDIR, else /tmp) whose name holds the id, so each run takes a
 * fresh one. Where ROTA_ROOT or MASTER_ADDR is set they meet there. `max_bytes` is what one call
 * will move at most; it is not needed and may be 0. Returns 0, or 1 after printing why. */
int shim_init(const char *id, int rank, int n, size_t max_bytes);

/* LightGBM's ReduceScatterFunction: blocks in bytes, one for each rank; `output` gets this rank's,
 * reduced. */
void shim_reduce_scatter(char *input, int32_t input_size, int type_size, const int32_t *block_start,
                         const int32_t *block_len, int num_block, char *output, int32_t output_size,
                         const lightgbm_reducer *reducer);

/* LightGBM's AllgatherFunction. */
void shim_allgather(char *input, int32_t input_size, const int32_t *block_start,
                    const int32_t *block_len, int num_block, char *output, int32_t output_size);

/* Leaves the job. */
void shim_fini(void);

/* Calls and bytes of each of the two, and reduce-scatters by element size (63: that and above). */
extern long n_rs, n_ag, b_rs, b_ag;
extern long t_hist[64];

#ifdef __cplusplus
}
#endif
#endif
