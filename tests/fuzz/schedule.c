/* The reader of schedules (text, JSON, MSCCL's XML) on arbitrary bytes; what it accepts is written,
 * derived in place and verified. */
#include "base/error.h"
#include "schedule/derive.h"
#include "schedule/text.h"
#include "schedule/verify.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The forms in place need schedules that refer to what exists, so only proven ones are derived. */
static void derive(const struct sched_set *set) {
    for (int form = SCHED_FORM_SAME; form <= SCHED_FORM_ASIDE; form++)
        for (int rank = 0; rank < set->count; rank++) {
            struct sched *derived = NULL;
            if (set->schedules[rank]->in_place)
                return;
            if (sched_derive(set->schedules[rank], (enum sched_form)form, &derived) != ROTA_OK)
                abort();
            sched_free(derived);
        }
}

/* Time and memory follow these numbers, which a short file can have large. */
static bool is_small(const struct sched_set *set) {
    uint64_t steps = 0, chunks = 0;
    for (int rank = 0; rank < set->count; rank++) {
        const struct sched *s = set->schedules[rank];
        struct sched_list ranges = {0, s->nranges};
        steps += s->nsteps;
        chunks += (uint64_t)s->blocks * s->chunks_per_block + s->scratch_chunks +
                  sched_list_chunks(s, ranges);
    }
    return steps < 2000 && chunks < 1 << 20;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static FILE *nowhere;
    struct sched_set set;
    if (nowhere == NULL)
        nowhere = fopen("/dev/null", "w");
    if (nowhere == NULL)
        abort();
    if (sched_read((const char *)data, size, &set) != ROTA_OK)
        return 0;
    (void)sched_write_json(set.schedules, set.count, nowhere);
    struct sched_verdict verdict;
    if (set.count == set.schedules[0]->nranks && is_small(&set) &&
        sched_verify(set.schedules, set.count, NULL, &verdict) == ROTA_OK &&
        verdict.fault == SCHED_FAULT_NONE)
        derive(&set);
    sched_set_free(&set);
    return 0;
}
