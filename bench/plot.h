/* Pictures: bus bandwidth and time over size, as SVG by gnuplot. */
#ifndef BENCH_PLOT_H
#define BENCH_PLOT_H

#include "bench/session.h"

/* Whether gnuplot is in PATH. */
bool bench_plot_possible(void);
/* Rank 0: keeps a row of the table. */
void bench_plot_add(struct bench_session *session, const struct bench_case *row,
                    const struct bench_half *half);
/* Rank 0: draws the kept rows, what --overlay names, and the floor into the file of --plot. False
 * with a line on stderr when that fails. */
bool bench_plot_write(struct bench_session *session);
void bench_plot_free(struct bench_session *session);

#endif
