/* Reading and writing schedules as text and JSON. Readers take hostile bytes: any input ends in a
 * schedule set or in ROTA_ERR_FORMAT naming line (text) or position (JSON) and what was expected.
 */
#ifndef SCHEDULE_TEXT_H
#define SCHEDULE_TEXT_H

#include "schedule/schedule.h"
#include <stdio.h>

/* The schedules of one collective, by rank; count = nranks when whole. */
struct sched_set {
    int count;
    struct sched **schedules;
};
void sched_set_free(struct sched_set *set);

rota_status sched_write_text(const struct sched *schedule, FILE *out);
rota_status sched_write_json(struct sched *const *schedules, int count, FILE *out);
/* Reads either form (JSON begins with '{' or '['), or MSCCL's XML (which begins with '<'). */
rota_status sched_read(const char *bytes, size_t length, struct sched_set *set);

#endif
