/* Verifier: runs the passes of proof.h over the schedules of all ranks and words the verdict. */
#include "schedule/verify.h"

#include "base/error.h"
#include "schedule/proof.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *sched_fault_name(enum sched_fault fault) {
    static const char *const names[] = {
        [SCHED_FAULT_NONE] = "none",
        [SCHED_FAULT_SHAPE] = "shape",
        [SCHED_FAULT_SCRATCH_BOUNDS] = "scratch bounds",
        [SCHED_FAULT_LANES] = "lanes",
        [SCHED_FAULT_UNMATCHED] = "unmatched message",
        [SCHED_FAULT_MESSAGE_SHAPE] = "message shape",
        [SCHED_FAULT_DEADLOCK] = "deadlock",
        [SCHED_FAULT_RACE] = "race",
        [SCHED_FAULT_READ_UNWRITTEN] = "read of unwritten chunk",
        [SCHED_FAULT_INPUT_WRITTEN] = "input written",
        [SCHED_FAULT_OVERWRITE] = "input overwritten in place",
        [SCHED_FAULT_LOAD] = "load",
        [SCHED_FAULT_FINISH] = "finish",
        [SCHED_FAULT_REPRESENTATION] = "representation",
        [SCHED_FAULT_CONTRIBUTION] = "contribution",
        [SCHED_FAULT_OUTPUT_MISSING] = "output missing",
        [SCHED_FAULT_ORDER] = "operand order",
        [SCHED_FAULT_DIFFERENT] = "different on ranks",
    };
    return (unsigned)fault < sizeof names / sizeof *names ? names[fault] : "unknown";
}

const char *proof_step_name(enum sched_step_type type) {
    static const char *const names[] = {"send", "recv", "recv_reduce", "copy", "reduce"};
    return (unsigned)type < sizeof names / sizeof *names ? names[type] : "unknown";
}

bool proof_fault(struct proof *p, enum sched_fault fault, int rank, uint32_t step, uint32_t chunk,
                 const char *format, ...) {
    struct sched_verdict *v = p->verdict;
    if (v->fault != SCHED_FAULT_NONE || p->status != ROTA_OK)
        return false;
    v->fault = fault;
    v->rank = rank;
    v->step = step;
    v->chunk = chunk;
    char *end = v->text + sizeof v->text, *at = v->text;
    at += snprintf(at, (size_t)(end - at), "rank %d", rank);
    if (step != UINT32_MAX)
        at += snprintf(at, (size_t)(end - at), ", step %u (%s)", step,
                       proof_step_name(p->schedules[rank]->steps[step].type));
    if (chunk != UINT32_MAX)
        at += snprintf(at, (size_t)(end - at), ", chunk %u", chunk);
    at += snprintf(at, (size_t)(end - at), ": ");
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(at, (size_t)(end - at), format, arguments);
    va_end(arguments);
    return false;
}

bool proof_out_of_memory(struct proof *p) {
    if (p->status == ROTA_OK)
        p->status =
            error_raise(ROTA_ERR_MEMORY, "no memory to verify a schedule of %u ranks", p->nranks);
    return false;
}

static void proof_free(struct proof *p) {
    free(p->first_step);
    free(p->first_location);
    free(p->steps);
    free(p->places);
    free(p->slots);
    free(p->messages);
    free(p->channels);
    free(p->edges);
    free(p->after_begin);
    free(p->after);
    free(p->cells);
    free(p->carried);
    free(p->heard);
    expressions_free(&p->expressions);
}

rota_status sched_verify(struct sched *const *schedules, int nranks,
                         const struct sched_verify_options *options,
                         struct sched_verdict *verdict) {
    if (!schedules || nranks < 1 || !verdict)
        return error_raise(ROTA_ERR_ARGUMENT, "nothing to verify: %d schedules", nranks);
    for (int r = 0; r < nranks; r++)
        if (!schedules[r])
            return error_raise(ROTA_ERR_ARGUMENT, "the schedule of rank %d is missing", r);
    struct sched_verdict result = {.rank = -1, .step = UINT32_MAX, .chunk = UINT32_MAX};
    struct proof p = {.schedules = schedules, .nranks = (uint32_t)nranks, .verdict = &result};
    if (options)
        p.options = *options;
    bool proven = proof_check_shape(&p) && proof_pair_messages(&p) && proof_order_steps(&p) &&
                  proof_run(&p) && proof_check_outputs(&p);
    if (proven) {
        result.messages = p.nmessages;
        result.steps = p.first_step[nranks];
    } else {
        result.same_on_all_ranks = result.canonical_tree = result.ascending = false;
    }
    proof_free(&p);
    if (p.status != ROTA_OK)
        return p.status;
    *verdict = result;
    return ROTA_OK;
}
