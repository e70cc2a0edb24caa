/* Schedules as data: build, read, print and prove them. See docs/schedules.md for the rules and
 * the text form. */
#ifndef ROTA_SCHEDULE_H
#define ROTA_SCHEDULE_H

#include <rota/types.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The schedules of all ranks for one collective. */
typedef struct rota_schedule rota_schedule;

/* Builds algorithm `name` for `kind` on nranks ranks (at least 1), root (-1 where the kind has
 * none). in_place: 0 no rank, 1 all ranks, 2 every second rank. Any thread.
 * Errors: ROTA_ERR_ARGUMENT, ROTA_ERR_UNSUPPORTED (it cannot do that), ROTA_ERR_MEMORY. */
ROTA_API rota_status rota_schedule_build(const char *name, rota_kind kind, int nranks, int root,
                                         int in_place, rota_schedule **schedule);

/* Reads the text or JSON form, or MSCCL's XML, from memory. Errors: ROTA_ERR_FORMAT
 * (rota_last_error names the line), ROTA_ERR_ARGUMENT, ROTA_ERR_MEMORY. What was read may still be
 * wrong: verify it. */
ROTA_API rota_status rota_schedule_read(const char *bytes, size_t length, rota_schedule **schedule);

/* Writes all ranks, or one (rank >= 0), as text or JSON. Errors: ROTA_ERR_ARGUMENT,
 * ROTA_ERR_SYSTEM (writing failed). */
typedef enum rota_format { ROTA_FORMAT_TEXT = 0, ROTA_FORMAT_JSON = 1 } rota_format;
ROTA_API rota_status rota_schedule_write(const rota_schedule *schedule, int rank,
                                         rota_format format, FILE *out);

/* What the verifier proved, or the first fault. */
typedef struct rota_verdict {
    size_t size;
    bool proven;
    char fault[32];           /* name of the kind of fault, "" when proven */
    int rank;                 /* where, -1 when it concerns all ranks */
    char text[256];           /* the fault in one sentence */
    bool same_on_all_ranks;   /* one reduction expression per chunk on every rank */
    bool canonical_tree;      /* ... the aligned binary tree over ranks */
    bool ascending;           /* operands in ascending rank order: fit for operators that do not
                                 commute */
    uint32_t max_depth;       /* most reductions between an input and an output */
    uint64_t messages, steps; /* over all ranks */
    /* In mode fast, of narrow types: whether ranks still hold the same bits, and the most roundings
     * between an input and an output, the last one included (0 in kinds that only move). Each adds
     * at most half a unit in the last place of the value that is rounded. */
    bool same_in_fast;
    uint32_t fast_roundings;
} rota_verdict;

#define ROTA_VERDICT_INIT ROTA_SIZED(rota_verdict)

/* Runs all ranks symbolically, exactly, with one send and one receive per lane in flight and
 * channels that hold nothing. Errors: ROTA_ERR_ARGUMENT, ROTA_ERR_MEMORY; a fault is no error of
 * the call. */
ROTA_API rota_status rota_schedule_verify(const rota_schedule *schedule, rota_verdict *verdict);

/* Frees a schedule. NULL is harmless. */
ROTA_API void rota_schedule_free(rota_schedule *schedule);

#ifdef __cplusplus
}
#endif
#endif
