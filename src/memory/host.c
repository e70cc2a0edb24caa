/* Host memory: everything is done when the call returns, and tickets are left alone. */
#include "memory/memory.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool host_identify(const void *pointer, size_t bytes) {
    (void)pointer;
    (void)bytes;
    return true;
}

static enum memory_result host_copy(void *dst, const void *src, size_t bytes,
                                    struct memory_ticket *ticket) {
    (void)ticket;
    if (bytes && dst != src)
        memcpy(dst, src, bytes);
    return MEMORY_DONE;
}

static enum memory_result host_reduce(const struct reduce_spec *spec, void *dst, bool finish,
                                      const struct reduce_operand *operands, size_t noperands,
                                      size_t count, struct memory_ticket *ticket) {
    (void)ticket;
    reduce_run(spec, dst, finish, operands, noperands, count);
    return MEMORY_DONE;
}

static void *host_allocate(size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (bytes > SIZE_MAX - page)
        return NULL;
    size_t whole = bytes ? (bytes + page - 1) / page * page : page;
    void *pointer;
    return posix_memalign(&pointer, page, whole) == 0 ? pointer : NULL;
}

const struct memory_kind memory_host = {
    .name = "host",
    .id = 0,
    .host_readable = true,
    .identify = host_identify,
    .copy = host_copy,
    .reduce = host_reduce,
    .allocate = host_allocate,
    .free = free,
};
