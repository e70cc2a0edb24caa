/* Derives the forms in place of a schedule.
 *
 * Aside: one copy of the whole input, in a lane of its own, comes first; every range of INPUT
 * becomes one of that copy; and every step that reads it, or writes the output, which is the same
 * memory, waits for the copy. Messages stay what they were, so ranks may differ in the form. */
#include "schedule/derive.h"

#include "base/error.h"
#include "schedule/builder.h"

#include <stdlib.h>
#include <string.h>

struct derivation {
    const struct sched *from;
    struct sched_builder *builder;
    enum sched_form form;
    uint32_t aside;             /* first scratch chunk of the copy */
    uint32_t *number;           /* by step of `from`: its new number, UINT32_MAX when left out */
    struct sched_range *ranges; /* of one step: src, then dst */
};

/* Whether a copy moves every chunk onto itself once input and output are one buffer. */
static bool is_idle(const struct sched *in_place, const struct sched_step *step) {
    if (step->type != SCHED_COPY || step->src.count != 1 || step->dst.count != 1)
        return false;
    const struct sched_range *src = &in_place->ranges[step->src.begin];
    const struct sched_range *dst = &in_place->ranges[step->dst.begin];
    if (src->buffer != SCHED_INPUT || dst->buffer != SCHED_OUTPUT || src->reps != 1 ||
        dst->reps != 1 || src->count != dst->count)
        return false;
    for (uint32_t i = 0; i < src->count; i++)
        if (sched_input_alias(in_place, src->first + i) != dst->first + i)
            return false;
    return true;
}

/* Ranges of a list as the new form has them; whether they touch what the copy aside touches. */
static bool convert(const struct derivation *d, struct sched_list list, bool written,
                    struct sched_range *out) {
    bool touches = false;
    for (uint32_t i = 0; i < list.count; i++) {
        out[i] = d->from->ranges[list.begin + i];
        if (d->form != SCHED_FORM_ASIDE)
            continue;
        touches =
            touches || out[i].buffer == SCHED_INPUT || (written && out[i].buffer == SCHED_OUTPUT);
        if (out[i].buffer == SCHED_INPUT) {
            out[i].buffer = SCHED_SCRATCH;
            out[i].like = sched_global_chunk(d->from, SCHED_INPUT, out[i].first);
            out[i].like_stride = out[i].stride;
            out[i].first += d->aside;
        }
    }
    return touches;
}

static uint32_t copy_aside(struct derivation *d) {
    uint32_t chunks = sched_input_chunks(d->from);
    d->aside = sched_alloc_scratch(d->builder, chunks);
    sched_lane(d->builder, d->from->lanes, 0);
    return sched_copy(d->builder, sched_input(0, chunks),
                      sched_scratch(d->aside, chunks, sched_global_chunk(d->from, SCHED_INPUT, 0)),
                      0);
}

static void derive_steps(struct derivation *d) {
    const struct sched *from = d->from;
    struct sched in_place = *from;
    in_place.in_place = true;
    bool aside = d->form == SCHED_FORM_ASIDE && sched_input_chunks(from) > 0;
    uint32_t first = aside ? copy_aside(d) : 0;
    for (uint32_t i = 0; i < from->nsteps; i++) {
        const struct sched_step *step = &from->steps[i];
        d->number[i] = UINT32_MAX;
        if (d->form == SCHED_FORM_IN_PLACE && is_idle(&in_place, step))
            continue;
        struct sched_range *dst = d->ranges + step->src.count;
        bool touches = convert(d, step->src, false, d->ranges);
        touches = convert(d, step->dst, true, dst) || touches;
        sched_lane(d->builder, step->lane, step->channel);
        d->number[i] = sched_append(
            d->builder, step, step->peers.count ? &from->peers[step->peers.begin] : NULL,
            step->peers.count, d->ranges, step->src.count, dst, step->dst.count);
        if (aside && touches)
            sched_wait(d->builder, d->number[i], first);
    }
    for (uint32_t i = 0; i < from->nsteps; i++) {
        struct sched_list waits = from->steps[i].waits;
        for (uint32_t w = waits.begin; w < waits.begin + waits.count; w++)
            if (d->number[i] != UINT32_MAX && from->waits[w] < from->nsteps &&
                d->number[from->waits[w]] != UINT32_MAX)
                sched_wait(d->builder, d->number[i], d->number[from->waits[w]]);
    }
}

static uint32_t most_ranges(const struct sched *schedule) {
    uint32_t most = 0;
    for (uint32_t i = 0; i < schedule->nsteps; i++) {
        uint32_t count = schedule->steps[i].src.count + schedule->steps[i].dst.count;
        most = count > most ? count : most;
    }
    return most;
}

rota_status sched_derive(const struct sched *from, enum sched_form form, struct sched **schedule) {
    struct sched_shape shape = {from->kind, from->nranks, from->rank, from->root,
                                form == SCHED_FORM_SAME ? from->in_place : true};
    struct derivation d = {.from = from, .form = form};
    rota_status status = sched_builder_create(&shape, &d.builder);
    if (status != ROTA_OK)
        return status;
    d.number = calloc((size_t)from->nsteps + 1, sizeof(*d.number));
    d.ranges = calloc((size_t)most_ranges(from) + 1, sizeof(*d.ranges));
    if (d.number == NULL || d.ranges == NULL) {
        status = error_raise(ROTA_ERR_MEMORY, "no memory for a schedule");
    } else {
        sched_set_chunks(d.builder, from->chunks_per_block);
        sched_alloc_scratch(d.builder, from->scratch_chunks);
        derive_steps(&d);
        status = sched_builder_finish(d.builder, schedule);
    }
    free(d.number);
    free(d.ranges);
    sched_builder_destroy(d.builder);
    return status;
}
