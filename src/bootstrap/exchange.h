/* The exchange by sockets. Internal to bootstrap. */
#ifndef BOOTSTRAP_EXCHANGE_H
#define BOOTSTRAP_EXCHANGE_H

#include "bootstrap/bootstrap.h"

rota_status bootstrap_exchange_sockets(struct bootstrap_place *place,
                                       const struct settings *settings,
                                       const struct bootstrap_record *mine,
                                       struct bootstrap_record *records, int64_t deadline_ns);

#endif
