/* One rank's part of a case. */
#ifndef TESTS_COLLECTIVE_CASE_RANK_H
#define TESTS_COLLECTIVE_CASE_RANK_H

#include "cases.h"

enum case_outcome { CASE_PASSED, CASE_SKIPPED, CASE_REFUSED, CASE_FAILED };

/* Makes the buffers, calls, and compares every byte of them; on failure `text` says what is wrong.
 * `mock`: some buffers are mock memory. Skipped: the slice is too small for the forced algorithm.
 * Refused: mode reproducible, and the forced algorithm does not keep the canonical tree. */
enum case_outcome case_run(const struct matrix_case *test, int rank, rota_comm *comm, bool mock,
                           char *text, size_t size);

#endif
