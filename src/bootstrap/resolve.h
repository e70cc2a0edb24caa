/* Name resolution that ends by a deadline, whatever the name server does. Internal to bootstrap. */
#ifndef BOOTSTRAP_RESOLVE_H
#define BOOTSTRAP_RESOLVE_H

#include "net/address.h"

/* net_address_parse of at most NET_MAX_ADDRESSES addresses. Errors: as there, ROTA_ERR_TIMEOUT. */
rota_status resolve_address(const char *text, struct net_address addresses[NET_MAX_ADDRESSES],
                            int *count, int64_t deadline_ns);

#endif
