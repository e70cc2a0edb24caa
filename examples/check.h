/* What every example does with a status: say what failed and end. */
#ifndef EXAMPLES_CHECK_H
#define EXAMPLES_CHECK_H

#include <rota/rota.h>
#include <stdio.h>
#include <stdlib.h>

/* comm may be NULL before there is one. */
static inline void check(rota_status status, const char *what, const rota_comm *comm) {
    if (status == ROTA_OK)
        return;
    rota_error error = ROTA_ERROR_INIT;
    if (comm)
        rota_comm_error(comm, &error);
    if (error.status == ROTA_OK)
        rota_last_error(&error);
    fprintf(stderr, "%s: %s: %s\n", what, rota_status_name(status), error.message);
    exit(1);
}

#endif
