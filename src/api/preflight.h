/* The parts of rota_preflight. */
#ifndef API_PREFLIGHT_H
#define API_PREFLIGHT_H

#include "base/settings.h"
#include <rota/doctor.h>

struct preflight {
    rota_finding_fn tell;
    void *arg;
    const struct settings *settings; /* NULL: some value is refused */
};

/* Tells one finding; `advice` may be NULL. */
void preflight_tell(const struct preflight *preflight, rota_finding_level level, const char *topic,
                    const char *advice, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* preflight_machine.c */
void preflight_machine(const struct preflight *preflight);
/* preflight_job.c */
void preflight_job(const struct preflight *preflight);

#endif
