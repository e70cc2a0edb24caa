/* Groups and several requests at once. A group collects operations, of several communicators and of
 * several ranks of one thread, and starts them together, so that their order cannot deadlock. */
#ifndef ROTA_GROUP_H
#define ROTA_GROUP_H

#include <rota/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Opens a group. Operations whose call->group is this group are checked and recorded; nothing is
 * started, and they take no request of their own. A group is used by one thread at a time.
 * Errors: ROTA_ERR_ARGUMENT (NULL), ROTA_ERR_MEMORY. */
ROTA_API rota_status rota_group_begin(rota_group **group);

/* Puts `inner` into `outer`: what is recorded in inner, before and after, starts when outer ends.
 * inner must be ended (which then starts nothing) before outer is.
 * Errors: ROTA_ERR_ARGUMENT (NULL, the same, a circle), ROTA_ERR_STATE (inner is in a group). */
ROTA_API rota_status rota_group_add(rota_group *outer, rota_group *inner);

/* Ends and frees a group. Unless it is in another group, its operations start, in the order in
 * which they were recorded, and the call waits for all of them; with call->request it returns at
 * once and the request ends when all have. The status is that of the first that failed. When a call
 * that was to be recorded was refused, nothing starts and its error is returned. Where the setting
 * ROTA_FUSION_BYTES allows it, all-reduces of one communicator, type and operator that follow each
 * other go together as one; then all ranks must record the same ones in the same groups, and no
 * operation of a group may take what another of it, or one before it that has not ended, gives.
 * That ranks differ in it is found as any other difference (ROTA_ERR_MISMATCH). call may carry
 * request, done and label. Errors: as the operations; ROTA_ERR_ARGUMENT (NULL; a request for an
 * empty group), ROTA_ERR_STATE (an inner group is still open; the group stays open too). */
ROTA_API rota_status rota_group_end(rota_group *group, const rota_call *call);

/* Frees a group and starts nothing of it; what it was given is forgotten. One that is in another
 * group only ends: what it has recorded is its outer group's. NULL is harmless.
 * Errors: ROTA_ERR_STATE (an inner group is still open; nothing is freed). */
ROTA_API rota_status rota_group_free(rota_group *group);

/* Waits until all requests have ended or timeout_ms has passed (0 = their own deadlines). The
 * status is that of the first in the array that failed. The requests are not freed. Errors:
 * ROTA_ERR_ARGUMENT, ROTA_ERR_TIMEOUT when only this wait ended. */
ROTA_API rota_status rota_request_wait_all(rota_request *const *requests, int count,
                                           int64_t timeout_ms);

/* Waits until one of the requests has ended; *index tells which (the first in the array). The
 * status is that request's. Errors: as above. */
ROTA_API rota_status rota_request_wait_any(rota_request *const *requests, int count,
                                           int64_t timeout_ms, int *index);

#ifdef __cplusplus
}
#endif
#endif
