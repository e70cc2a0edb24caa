/* Buffers that the library allocates or knows for the user. */
#ifndef ENGINE_BUFFERS_H
#define ENGINE_BUFFERS_H

#include <rota/memory.h>
#include <stdbool.h>

struct job;

/* The functions of rota/memory.h after their arguments were checked. Any thread, outside the
 * domain. */
rota_status buffers_allocate(struct job *job, size_t bytes, void **memory);
rota_status buffers_free(const struct job *job, void *memory);
rota_status buffers_register(const struct job *job, const void *memory, size_t bytes,
                             rota_mem **handle);
rota_status buffers_deregister(rota_mem *handle);
/* Whether `handle` is a registration of the job that covers the buffer. It need not point to
 * anything. */
bool buffers_covered(const struct job *job, const void *handle, const void *buffer, size_t bytes);
/* Drops what the job's user left, before its transports close. */
void buffers_forget(const struct job *job);

#endif
