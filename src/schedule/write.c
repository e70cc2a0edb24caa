/* Writers of both forms; the readers give back exactly what was written. What has its default
 * value is left out. Names are fixed words and the rest is numbers, so nothing needs escaping. */
#include "schedule/draft.h"

#include "base/error.h"

#include <errno.h>

static rota_status written(FILE *out) {
    if (fflush(out) == 0 && !ferror(out))
        return ROTA_OK;
    return error_raise_system(errno, "cannot write a schedule");
}

static void text_ranges(const struct sched *s, struct sched_list list, FILE *out) {
    for (uint32_t i = 0; i < list.count; i++) {
        const struct sched_range *range = &s->ranges[list.begin + i];
        fprintf(out, " %s[%u", draft_buffer_word(range->buffer), range->first);
        bool runs = range->stride || range->reps != 1;
        if (range->count != 1 || runs)
            fprintf(out, ":%u", range->count);
        if (runs)
            fprintf(out, ":%u:%u", range->stride, range->reps);
        fputc(']', out);
        if (range->buffer == SCHED_SCRATCH || range->like || range->like_stride)
            fprintf(out, "~%u", range->like);
        if (range->like_stride)
            fprintf(out, ":%u", range->like_stride);
    }
}

static void text_step(const struct sched *s, uint32_t number, FILE *out) {
    const struct sched_step *step = &s->steps[number];
    fprintf(out, "%u: %s", number, draft_type_word(step->type));
    for (uint32_t i = 0; i < step->peers.count; i++)
        fprintf(out, "%s%d",
                i                          ? ","
                : step->type == SCHED_SEND ? " to "
                                           : " from ",
                s->peers[step->peers.begin + i]);
    if (step->type == SCHED_RECV_REDUCE)
        fprintf(out, " position %u", step->position);
    if (step->type == SCHED_REDUCE)
        fprintf(out, " %u", step->operands);
    text_ranges(s, step->src, out);
    if (step->type != SCHED_SEND && step->type != SCHED_RECV)
        fputs(" ->", out);
    text_ranges(s, step->dst, out);
    for (uint32_t flag = SCHED_LOAD_MESSAGE; flag <= SCHED_PARTIAL; flag <<= 1)
        if (step->flags & flag)
            fprintf(out, " %s", draft_flag_word(flag));
    if (step->lane)
        fprintf(out, " lane %u", step->lane);
    if (step->channel)
        fprintf(out, " channel %u", step->channel);
    for (uint32_t i = 0; i < step->waits.count; i++)
        fprintf(out, "%s%u", i ? "," : " wait ", s->waits[step->waits.begin + i]);
    fputc('\n', out);
}

rota_status sched_write_text(const struct sched *schedule, FILE *out) {
    fprintf(out, "schedule %s ranks %d rank %d", sched_kind_name(schedule->kind), schedule->nranks,
            schedule->rank);
    if (schedule->root >= 0)
        fprintf(out, " root %d", schedule->root);
    if (schedule->blocks)
        fprintf(out, " chunks %u", schedule->chunks_per_block);
    if (schedule->scratch_chunks)
        fprintf(out, " scratch %u", schedule->scratch_chunks);
    fprintf(out, "%s\n", schedule->in_place ? " in_place" : "");
    for (uint32_t i = 0; i < schedule->nsteps; i++)
        text_step(schedule, i, out);
    return written(out);
}

static void json_ranges(const struct sched *s, const char *name, struct sched_list list,
                        FILE *out) {
    if (!list.count)
        return;
    fprintf(out, ", \"%s\": [", name);
    for (uint32_t i = 0; i < list.count; i++) {
        const struct sched_range *range = &s->ranges[list.begin + i];
        fprintf(out, "%s{\"buffer\": \"%s\", \"first\": %u", i ? ", " : "",
                draft_buffer_word(range->buffer), range->first);
        if (range->count != 1)
            fprintf(out, ", \"count\": %u", range->count);
        if (range->stride)
            fprintf(out, ", \"stride\": %u", range->stride);
        if (range->reps != 1)
            fprintf(out, ", \"reps\": %u", range->reps);
        if (range->like)
            fprintf(out, ", \"like\": %u", range->like);
        if (range->like_stride)
            fprintf(out, ", \"like_stride\": %u", range->like_stride);
        fputc('}', out);
    }
    fputc(']', out);
}

static void json_step(const struct sched *s, const struct sched_step *step, FILE *out) {
    fprintf(out, "{\"type\": \"%s\"", draft_type_word(step->type));
    for (uint32_t i = 0; i < step->peers.count; i++)
        fprintf(out, "%s%d", i ? ", " : ", \"peers\": [", s->peers[step->peers.begin + i]);
    if (step->peers.count)
        fputc(']', out);
    if (step->position)
        fprintf(out, ", \"position\": %u", step->position);
    if (step->operands)
        fprintf(out, ", \"operands\": %u", step->operands);
    json_ranges(s, "src", step->src, out);
    json_ranges(s, "dst", step->dst, out);
    bool first = true;
    for (uint32_t flag = SCHED_LOAD_MESSAGE; flag <= SCHED_PARTIAL; flag <<= 1) {
        if (!(step->flags & flag))
            continue;
        fprintf(out, "%s\"%s\"", first ? ", \"flags\": [" : ", ", draft_flag_word(flag));
        first = false;
    }
    if (!first)
        fputc(']', out);
    if (step->lane)
        fprintf(out, ", \"lane\": %u", step->lane);
    if (step->channel)
        fprintf(out, ", \"channel\": %u", step->channel);
    for (uint32_t i = 0; i < step->waits.count; i++)
        fprintf(out, "%s%u", i ? ", " : ", \"waits\": [", s->waits[step->waits.begin + i]);
    if (step->waits.count)
        fputc(']', out);
    fputc('}', out);
}

rota_status sched_write_json(struct sched *const *schedules, int count, FILE *out) {
    fputs("[", out);
    for (int r = 0; r < count; r++) {
        const struct sched *s = schedules[r];
        fprintf(out, "%s\n{\"collective\": \"%s\", \"ranks\": %d, \"rank\": %d", r ? "," : "",
                sched_kind_name(s->kind), s->nranks, s->rank);
        if (s->root >= 0)
            fprintf(out, ", \"root\": %d", s->root);
        if (s->blocks)
            fprintf(out, ", \"chunks\": %u", s->chunks_per_block);
        fprintf(out, ", \"scratch\": %u, \"in_place\": %s, \"steps\": [", s->scratch_chunks,
                s->in_place ? "true" : "false");
        for (uint32_t i = 0; i < s->nsteps; i++) {
            fputs(i ? ",\n  " : "\n  ", out);
            json_step(s, &s->steps[i], out);
        }
        fputs("]}", out);
    }
    fputs("\n]\n", out);
    return written(out);
}
