/* Public memory: arguments. */
#include <rota/memory.h>

#include "api/check.h"
#include "base/error.h"
#include "engine/buffers.h"

rota_status rota_mem_alloc(rota_comm *comm, size_t bytes, void **memory) {
    CHECK_KEEP_ERRNO;
    if (comm == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "comm is NULL");
    comm_enter(comm);
    rota_status status = memory == NULL ? error_raise(ROTA_ERR_ARGUMENT, "memory is NULL")
                         : bytes == 0
                             ? error_raise(ROTA_ERR_ARGUMENT, "bytes is 0, expected 1 or more")
                             : buffers_allocate(comm->job, bytes, memory);
    if (status != ROTA_OK)
        comm_keep_error(comm, status);
    comm_leave(comm);
    return status;
}

rota_status rota_mem_free(rota_comm *comm, void *memory) {
    CHECK_KEEP_ERRNO;
    if (comm == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "comm is NULL");
    comm_enter(comm);
    rota_status status = memory == NULL ? ROTA_OK : buffers_free(comm->job, memory);
    if (status != ROTA_OK)
        comm_keep_error(comm, status);
    comm_leave(comm);
    return status;
}

static rota_status check_range(const void *memory, size_t bytes, rota_mem *const *handle) {
    if (memory == NULL || handle == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "memory and handle must not be NULL");
    if (bytes == 0)
        return error_raise(ROTA_ERR_ARGUMENT, "bytes is 0, expected 1 or more");
    if (bytes > UINTPTR_MAX - (uintptr_t)memory)
        return error_raise(ROTA_ERR_ARGUMENT, "bytes is %zu, more than there is after memory %p",
                           bytes, memory);
    return ROTA_OK;
}

rota_status rota_mem_register(rota_comm *comm, void *memory, size_t bytes, rota_mem **handle) {
    if (comm == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "comm is NULL");
    comm_enter(comm);
    rota_status status = check_range(memory, bytes, handle);
    if (status == ROTA_OK)
        status = buffers_register(comm->job, memory, bytes, handle);
    if (status != ROTA_OK)
        comm_keep_error(comm, status);
    comm_leave(comm);
    return status;
}

rota_status rota_mem_deregister(rota_mem *handle) {
    return handle == NULL ? ROTA_OK : buffers_deregister(handle);
}
