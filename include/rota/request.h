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

/* Copies the operation's error record (status ROTA_OK where there is none). */
ROTA_API rota_status rota_request_error(const rota_request *request, rota_error *error);

/* Frees a request. One that has not ended goes on and frees itself when it ends; its buffers must
 * live until then. NULL is harmless. */
ROTA_API rota_status rota_request_free(rota_request *request);

#ifdef __cplusplus
}
#endif
#endif
