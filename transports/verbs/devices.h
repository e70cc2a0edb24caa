/* Which RDMA ports of this machine are used, as rails, and why the others are not. */
#ifndef VERBS_DEVICES_H
#define VERBS_DEVICES_H

#include "calls.h"

#include "base/settings.h"
#include <stdbool.h>
#include <sys/socket.h>

#define VERBS_MAX_RAILS 2

/* A port that is used: an IP address of this host whose connections leave by it. `context` is the
 * one of librdmacm, since ids that are bound to the address have it too; it stays librdmacm's. */
struct verbs_rail {
    struct ibv_context *context;
    struct sockaddr_storage address; /* port 0 */
    uint8_t port;
    uint32_t mtu;   /* active path MTU in bytes */
    bool immediate; /* false: iWARP, no write with immediate */
    char name[64];
};

/* What `rota info` and `rota doctor` say of a port. */
struct verbs_port_report {
    char name[64]; /* "mlx5_0:1" */
    bool used;
    char text[192]; /* what it is, or why it is not used */
};

/* Finds the rails, best first, by the settings; at most `max`. *count is at least 1. Errors:
 * ROTA_ERR_UNSUPPORTED (no usable port; the message says why the first one is not),
 * ROTA_ERR_SETTING (a setting names a device that is not there). */
rota_status verbs_rails_find(const struct verbs_calls *calls, const struct settings *settings,
                             struct verbs_rail *rails, int max, int *count);
/* All ports, used or not, at most `max`. Returns their number. */
int verbs_ports_report(const struct verbs_calls *calls, const struct settings *settings,
                       struct verbs_port_report *ports, int max);

#endif
