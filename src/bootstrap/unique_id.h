/* The layout of a unique id, and what is known of used ones. Internal to bootstrap. */
#ifndef BOOTSTRAP_UNIQUE_ID_H
#define BOOTSTRAP_UNIQUE_ID_H

#include "bootstrap/bootstrap.h"

#define UNIQUE_ID_VERSION 1

struct unique_id {
    uint32_t magic; /* NET_MAGIC */
    uint16_t version;
    uint16_t unused;
    uint8_t key[NET_KEY_BYTES];
    uint8_t job[16];
    struct net_address inet[2]; /* the best two of the process that made it */
    char local_name[24];
};
_Static_assert(sizeof(struct unique_id) == sizeof(rota_unique_id), "the id is exactly that");

/* Takes key, job and addresses out of an id. ROTA_ERR_ARGUMENT when it is none. */
rota_status bootstrap_unique_id_read(const rota_unique_id *id, struct bootstrap_place *place);

/* Makes an id as bootstrap_unique_id does, but its rendezvous ends for good with its first job,
 * whether that comes about or not: for ids that the library makes and passes on itself. */
rota_status bootstrap_unique_id_once(rota_unique_id *id);
/* Ends the serving of such an id to which nobody has come yet; else does nothing. */
void bootstrap_unique_id_withdraw(const uint8_t job[16]);

/* Unique ids that a rank of this process has met by: an id is good for one job. */
bool bootstrap_id_is_used(const struct net_identity *identity);
void bootstrap_id_use(const struct net_identity *identity);
rota_status bootstrap_id_used_raise(void);

#endif
