/* The verbs transport of a build without libibverbs and librdmacm. */
#include "transports/transport.h"

#include "base/error.h"

static rota_status absent_open(struct transport_host *host, struct transport **transport) {
    (void)host;
    (void)transport;
    return error_raise(ROTA_ERR_UNSUPPORTED,
                       "this build has no RDMA (libibverbs and librdmacm were not found)");
}

const struct transport_ops transport_verbs = {
    .name = "verbs", .help = "RDMA adapters: not in this build", .open = absent_open};
