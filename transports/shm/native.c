/* Native groups (not yet). */
#include "transports/shm/shm.h"

#include "base/error.h"

static rota_status group_open(struct transport *transport, uint32_t comm, uint32_t generation,
                              const int *members, int nmembers, int self,
                              struct native_group **group) {
    (void)transport, (void)comm, (void)generation, (void)members, (void)nmembers, (void)self;
    (void)group;
    return error_raise(ROTA_ERR_UNSUPPORTED, "no native forms");
}

const struct transport_native_ops shm_native = {.group_open = group_open};

void shm_groups_free(struct shm *shm) {
    (void)shm;
}
