/* Forms of a schedule that were not written: in place, and in place on a copy of the input. */
#ifndef SCHEDULE_DERIVE_H
#define SCHEDULE_DERIVE_H

#include "schedule/schedule.h"

enum sched_form {
    SCHED_FORM_SAME = 0,     /* a copy of `from` */
    SCHED_FORM_IN_PLACE = 1, /* the same steps, without copies of chunks onto themselves */
    SCHED_FORM_ASIDE = 2     /* in place; the input is first copied aside, into scratch */
};

/* `from` is out of place for the two forms in place. Whether the result is right is for the
 * verifier to say. Errors: ROTA_ERR_MEMORY, ROTA_ERR_ARGUMENT. */
rota_status sched_derive(const struct sched *from, enum sched_form form, struct sched **schedule);

#endif
