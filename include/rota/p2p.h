/* Point to point: ordered per (peer, tag), received count from the start. */
#ifndef ROTA_P2P_H
#define ROTA_P2P_H

#include <rota/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ROTA_ANY_SOURCE (-1)

/* What a receive got. */
typedef struct rota_recv_info {
    size_t size; /* sizeof(rota_recv_info) */
    int source;  /* rank that sent */
    int tag;
    size_t count; /* elements received, at most the count of the buffer */
} rota_recv_info;

#define ROTA_RECV_INFO_INIT ROTA_SIZED(rota_recv_info)

/* Sends count elements to rank `dest` under `tag` (0 ... 2^31 - 1). Up to 4 KiB it returns without
 * waiting for the receiver as long as few messages are outstanding on that tag; above, it may wait
 * for the matching receive. Sending to oneself is allowed. Any thread.
 * Errors: as collectives. */
ROTA_API rota_status rota_send(const void *send, size_t count, rota_dtype dtype, int dest, int tag,
                               rota_comm *comm, const rota_call *call);

/* Receives the next message of (source, tag) into recv, which has room for count elements.
 * `source` may be ROTA_ANY_SOURCE. A shorter message is allowed and told by info->count; a longer
 * one is ROTA_ERR_TRUNCATED (the buffer holds its beginning). `info` may be NULL; with
 * call->request it must live until the request has ended. Any thread. Errors: as collectives. */
ROTA_API rota_status rota_recv(void *recv, size_t count, rota_dtype dtype, int source, int tag,
                               rota_comm *comm, rota_recv_info *info, const rota_call *call);

#ifdef __cplusplus
}
#endif
#endif
