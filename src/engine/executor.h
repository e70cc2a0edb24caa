/* Executor: runs one collective of a communicator at a time from its plan. */
#ifndef ENGINE_EXECUTOR_H
#define ENGINE_EXECUTOR_H

#include "engine/plan.h"

struct executor;

rota_status executor_create(rota_comm *comm, struct executor **executor);
void executor_destroy(struct executor *executor);
/* Begins the request; it may end at once. Inside the domain, while nothing runs. On an error
 * nothing was sent and the request is the caller's to end. */
rota_status executor_start(struct executor *executor, rota_request *request, struct plan *plan);
/* Forgets the running request: no user memory of it is touched afterwards. */
void executor_cancel(struct executor *executor);
/* Delivers copies and reductions of other memory kinds that have ended. Returns their number. */
int executor_poll_memory(struct executor *executor);
/* Peers whose messages are awaited, or who do not take what is sent to them; at most max. */
int executor_awaited(const struct executor *executor, int *ranks, int max);
/* Bytes that it holds. */
size_t executor_memory(const struct executor *executor);
/* Whether the algorithm can run within the transports' message size on this communicator. */
bool executor_fits(const rota_comm *comm, const struct algorithm *algorithm, rota_kind kind,
                   int root, size_t partial_size);

#endif
