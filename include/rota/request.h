/* Requests: operations that go on while the caller computes. */
#ifndef ROTA_REQUEST_H
#define ROTA_REQUEST_H

#include <rota/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sets *done to whether the operation has ended; progresses it a little. The return value is the
 * operation's status once it has ended, ROTA_OK before. Any thread. */
ROTA_API rota_status rota_request_test(rota_request *request, bool *done);

/* Blocks until the operation has ended or timeout_ms has passed (0 = until the operation's own
 * deadline). Returns the operation's status, or ROTA_ERR_TIMEOUT when only this wait ended.
 * Several threads may wait for one request. */
ROTA_API rota_status rota_request_wait(rota_request *request, int64_t timeout_ms);

/* Gives a request up that waits for others: a receive whose message has not begun to come, or a
 * rota_init that has not met all ranks. It then ends with ROTA_ERR_ABORTED, a receive before this
 * returns, a rota_init within a second and a half; wait for it to learn how it ended. One whose
 * message is coming, or that has met the others, or has ended, is left alone and ends as it would.
 * So is a receive over RDMA into registered memory, which peers write without asking again.
 * A message that was sent to a cancelled receive goes to the next one of its source and tag. Never
 * blocks; any thread, also several at once.
 * Errors: ROTA_ERR_ARGUMENT (NULL), ROTA_ERR_UNSUPPORTED (sends, collectives and groups: they end
 * with their communicator, by rota_comm_abort). */
ROTA_API rota_status rota_request_cancel(rota_request *request);

/* Copies the operation's error record (status ROTA_OK where there is none). Once it has ended, and
 * in its `done` call-back. Errors: ROTA_ERR_ARGUMENT, ROTA_ERR_STATE (it has not ended). */
ROTA_API rota_status rota_request_error(const rota_request *request, rota_error *error);

/* Frees a request. One that has not ended goes on and frees itself when it ends; its buffers must
 * live until then. The requests of several small messages that had ended when their calls returned
 * may be one and the same; each is waited for and freed like any other. NULL is harmless. */
ROTA_API rota_status rota_request_free(rota_request *request);

#ifdef __cplusplus
}
#endif
#endif
