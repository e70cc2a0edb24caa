/* Public functions that make communicators from communicators. */
#include "engine/split.h"
#include "api/check.h"
#include "base/error.h"
#include <rota/comm.h>
#include <stdlib.h>

rota_status rota_comm_split(rota_comm *comm, int color, int key, const char *name,
                            rota_comm **child, const rota_call *call) {
    CHECK_KEEP_ERRNO;
    if (comm == NULL || child == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "comm and child must not be NULL");
    if (color < 0 && color != ROTA_COLOR_UNDEFINED)
        return error_raise(ROTA_ERR_ARGUMENT,
                           "color is %d, expected 0 or more, or ROTA_COLOR_UNDEFINED", color);
    rota_status status = check_call(call, false);
    if (status != ROTA_OK)
        return status;
    comm_enter(comm);
    status = split_run(comm, color, key, name != NULL ? name : comm->name, call, child);
    comm_leave(comm);
    return status;
}

/* The list holds ranks of the communicator, each at most once, and this one. */
static rota_status check_list(const rota_comm *comm, const int *ranks, int nranks) {
    rota_status status = ROTA_OK;
    bool *listed = calloc((size_t)comm->nranks, sizeof(*listed));
    if (listed == NULL)
        return error_raise(ROTA_ERR_MEMORY, "out of memory for a communicator");
    for (int i = 0; i < nranks && status == ROTA_OK; i++) {
        status = check_rank("a rank of the list", ranks[i], comm->nranks);
        if (status == ROTA_OK && listed[ranks[i]])
            status = error_raise(ROTA_ERR_ARGUMENT, "rank %d is in the list twice", ranks[i]);
        if (status == ROTA_OK)
            listed[ranks[i]] = true;
    }
    if (status == ROTA_OK && !listed[comm->rank])
        status = error_raise(ROTA_ERR_ARGUMENT, "this rank, %d, is not in the list", comm->rank);
    free(listed);
    return status;
}

rota_status rota_comm_create_group(rota_comm *comm, const int *ranks, int nranks, int tag,
                                   const char *name, rota_comm **group, const rota_call *call) {
    CHECK_KEEP_ERRNO;
    if (comm == NULL || ranks == NULL || group == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "comm, ranks and group must not be NULL");
    rota_status status = check_call(call, false);
    comm_enter(comm);
    if (status == ROTA_OK && (nranks < 1 || nranks > comm->nranks))
        status =
            error_raise(ROTA_ERR_ARGUMENT, "nranks is %d, expected 1 ... %d", nranks, comm->nranks);
    if (status == ROTA_OK && tag < 0)
        status = error_raise(ROTA_ERR_ARGUMENT, "tag is %d, expected 0 or more", tag);
    if (status == ROTA_OK)
        status = check_list(comm, ranks, nranks);
    if (status == ROTA_OK)
        status =
            split_group(comm, ranks, nranks, tag, name != NULL ? name : comm->name, call, group);
    comm_leave(comm);
    return status;
}

rota_status rota_comm_duplicate(rota_comm *comm, rota_comm **copy, const rota_call *call) {
    if (comm == NULL || copy == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "comm and copy must not be NULL");
    return rota_comm_split(comm, 0, comm->rank, NULL, copy, call);
}

rota_status rota_comm_memory(rota_comm *comm, size_t *bytes) {
    if (comm == NULL || bytes == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "comm and bytes must not be NULL");
    comm_enter(comm);
    *bytes = split_memory(comm);
    comm_leave(comm);
    return ROTA_OK;
}
