/* Memory for buffers, and registrations.
 *
 * Neither is ever needed for a right result. Buffers from rota_mem_alloc reach paths that ordinary
 * memory cannot: ranks of one host read each other's directly, without a copy to shared memory in
 * between (large all-reduces), and RDMA adapters write into them. Memory from malloc cannot be
 * mapped by a peer, so registering it changes nothing there; adapters write into what is
 * registered, and what is not is copied. Where memory cannot be locked (limits) a warning says so,
 * and all else is as before. Freed and remapped addresses never give stale data: nothing is
 * remembered by address but what is allocated here or registered, and only so long. */
#ifndef ROTA_MEMORY_H
#define ROTA_MEMORY_H

#include <rota/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A registration. */
typedef struct rota_mem rota_mem;

/* Allocates `bytes` bytes, aligned to a page, contents undefined. Where memory that peers can read
 * is not to be had (no shared memory, limited address space, no room left), it is ordinary memory.
 * Local; any thread. The memory belongs to the communicator's job: any communicator of the job may
 * use it, and what is not freed ends with the job's last communicator.
 * Errors: ROTA_ERR_ARGUMENT (NULL, 0 bytes), ROTA_ERR_MEMORY. */
ROTA_API rota_status rota_mem_alloc(rota_comm *comm, size_t bytes, void **memory);

/* Frees it, by a communicator of the same job; no operation may be using it. NULL is harmless.
 * Local; any thread. Errors: ROTA_ERR_ARGUMENT (comm NULL, or not allocated here, or freed before).
 */
ROTA_API rota_status rota_mem_free(rota_comm *comm, void *memory);

/* Announces that [memory, memory + bytes) will be used in many calls: pass the handle as send_mem
 * or recv_mem of a rota_call whose buffer lies inside. The range must stay mapped until the handle
 * is deregistered; ranges may overlap. Local; any thread. Errors: ROTA_ERR_ARGUMENT (NULL, 0 bytes,
 * a range that wraps round), ROTA_ERR_MEMORY. */
ROTA_API rota_status rota_mem_register(rota_comm *comm, void *memory, size_t bytes,
                                       rota_mem **handle);

/* Ends a registration; no operation may be using it. The job's last communicator ends those that
 * are left. NULL is harmless. Local; any thread. Errors: ROTA_ERR_ARGUMENT (no such handle). */
ROTA_API rota_status rota_mem_deregister(rota_mem *handle);

#ifdef __cplusplus
}
#endif
#endif
