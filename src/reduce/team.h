/* Workers on cores that a rank lends: they take blocks of large reductions beside the thread that
 * reduces, so that it is not bound by what one core can load and store. */
#ifndef REDUCE_TEAM_H
#define REDUCE_TEAM_H

#include <rota/status.h>
#include <stddef.h>

struct reduce_team;

#define REDUCE_TEAM_CORES 256

/* A team of `cores` with its caller: cores - 1 threads, all signals blocked. One core is no team:
 * *team is NULL, which reduce_team_close takes. Errors: ROTA_ERR_MEMORY, ROTA_ERR_SYSTEM. */
rota_status reduce_team_open(int cores, struct reduce_team **team);
/* Nobody runs anything by it any more. */
void reduce_team_close(struct reduce_team *team);

typedef void (*reduce_team_fn)(const void *arg, size_t first, size_t count);
/* Calls work(arg, first, count) until [0, total) is done, in blocks of a multiple of `block` or one
 * shorter, in any thread of the team and in any order, and returns when all has been done. Any
 * thread may call it; whoever finds the team at another's work does its own alone. */
void reduce_team_run(struct reduce_team *team, size_t total, size_t block, reduce_team_fn work,
                     const void *arg);

#endif
