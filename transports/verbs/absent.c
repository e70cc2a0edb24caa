/* The verbs transport of a build without libibverbs and librdmacm. */
#include "transports/transport.h"

#include "base/error.h"
#include "survey.h"

#define ABSENT                                                                                     \
    "this build has no RDMA (libibverbs and librdmacm were not found, or ROTA_VERBS is OFF)"

static rota_status absent_open(struct transport_host *host, struct transport **transport) {
    (void)host;
    (void)transport;
    return error_raise(ROTA_ERR_UNSUPPORTED, ABSENT);
}

void verbs_survey(const struct settings *settings, rota_finding_fn tell, void *arg) {
    (void)settings;
    const rota_finding finding = {
        .size = sizeof finding, .level = ROTA_FINDING_OK, .topic = "rdma", .text = ABSENT};
    tell(&finding, arg);
}

const struct transport_ops transport_verbs = {.name = "verbs",
                                              .help = "RDMA adapters: not in this build",
                                              .open = absent_open,
                                              .survey = verbs_survey};
