/* RDMA devices of this machine: which of their ports a rank uses as rails, by which address (GID),
 * partition and MTU, and why the others are not used; and which port leads to a peer.
 *
 * Design notes. A port is named by its GID, which is all that a peer must know of it: on Ethernet
 * (RoCE v2) the GID is the IP address of its interface, so that the kernel's routes and the
 * connection manager's choice of a GID follow from binding to that address; on InfiniBand it is
 * bound as it is (AF_IB), together with the partition. So there is one way to choose a GID, which
 * is to choose the address to bind to, and no interface besides needs to be found. */
#ifndef VERBS_DEVICES_H
#define VERBS_DEVICES_H

#include "base/settings.h"
#include "calls.h"
#include <net/if.h>
#include <stdbool.h>
#include <sys/socket.h>

enum { VERBS_MAX_PORTS = 16, VERBS_MAX_RAILS = 2, VERBS_WHY = 256 };

/* What peers are told of a port. Fixed layout: it is sent. */
struct verbs_place {
    uint8_t gid[16];    /* of InfiniBand; on Ethernet the IP address, IPv4 as ::ffff:a.b.c.d */
    uint16_t listen;    /* port number of the connection manager; the transport fills it in */
    uint16_t partition; /* InfiniBand: the partition key; else 0 */
    uint16_t mtu;       /* bytes of a packet's payload: 256 ... 4096 */
    uint8_t layer;      /* IBV_LINK_LAYER_INFINIBAND or IBV_LINK_LAYER_ETHERNET */
    uint8_t reserved;
};
_Static_assert(sizeof(struct verbs_place) == 24, "places are sent to peers");

/* -- for the transport --------------------------------------------------------------------- */

/* A port that is used: an address of this host whose connections leave by it. `context` is the one
 * of librdmacm, since ids that are bound to the address have it too; it stays librdmacm's. */
struct verbs_rail {
    struct ibv_context *context;
    struct sockaddr_storage address; /* of `place`, port 0: to bind to, also before connecting */
    struct verbs_place place;
    uint8_t port;
    uint32_t mtu;   /* in bytes, of this end: a way's is what verbs_route says */
    bool immediate; /* false: iWARP, no write with immediate */
    char name[64];
};

/* Finds the rails, best first, by the settings; at most `max`. *count is at least 1. Warns once of
 * each device that a failing call costs where others are left. Errors: ROTA_ERR_UNSUPPORTED (no
 * usable port: the message says why; system_error of the record is that of a call that failed, 0
 * when there is merely none), ROTA_ERR_SETTING, ROTA_ERR_MEMORY. */
rota_status verbs_rails_find(const struct verbs_calls *calls, const struct settings *settings,
                             struct verbs_rail *rails, int max, int *count);

/* The address of a peer's place for the connection manager. `interface`: index of the own network
 * interface by which it is reached, for addresses that are valid on one link alone; 0: none. */
void verbs_place_address(const struct verbs_place *place, uint32_t interface,
                         struct sockaddr_storage *address);

/* The own rail that leads to a peer's place: on Ethernet by this machine's routes, on InfiniBand by
 * subnet and partition. Sets the MTU of the way: what both ports and the route carry. Returns its
 * position, -1 when none leads there. */
int verbs_route(const struct verbs_rail *rails, int count, const struct verbs_place *place,
                uint16_t *mtu);

/* -- for people ---------------------------------------------------------------------------- */

struct verbs_port {
    char device[IBV_SYSFS_NAME_MAX]; /* "mlx5_0" */
    uint8_t number;                  /* of the port, from 1 */
    bool used, iwarp;
    int system_error;    /* of the call that failed; 0: none did */
    char why[VERBS_WHY]; /* a line for people: what is used of it, or why it is not used */
    /* The rest where it is active. */
    uint32_t speed; /* in Mb/s */
    int gid_index;
    uint32_t interface; /* index of its network interface; 0: it has none */
    char interface_name[IF_NAMESIZE];
    uint32_t link_mtu; /* bytes, what the link would carry; place.mtu is what is used of it */
    struct verbs_place place;
};

struct verbs_ports {
    int count, used;
    struct verbs_port ports[VERBS_MAX_PORTS]; /* by name and number */
    char why[VERBS_WHY];                      /* used 0: why */
    int system_error;                         /* used 0: of the call that failed; 0: none did */
};

/* Looks at all devices. By default those active ports are used that are as fast as the fastest;
 * ROTA_RDMA_DEVICE names others, ROTA_RDMA_GID_INDEX, ROTA_RDMA_PARTITION and ROTA_RDMA_MTU decide
 * what is used of them. A device that cannot be opened costs that device alone. Outputs are set in
 * any case. Errors: ROTA_ERR_SETTING (a value that is no partition), ROTA_ERR_MEMORY. */
rota_status verbs_ports_find(const struct verbs_calls *calls, const struct settings *settings,
                             struct verbs_ports *ports);

#endif
