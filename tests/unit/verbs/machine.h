/* A machine with RDMA devices that are tables: a double of the verbs calls that list and open
 * them, with failures to order. */
#ifndef TESTS_UNIT_VERBS_MACHINE_H
#define TESTS_UNIT_VERBS_MACHINE_H

#include "transports/verbs/calls.h"

enum { MACHINE_GIDS = 6, MACHINE_PORTS = 3, MACHINE_DEVICES = 8 };

struct machine_gid {
    const char *address; /* IPv6 as text, IPv4 as ::ffff:a.b.c.d; NULL: no entry */
    uint32_t type;       /* IBV_GID_TYPE_ */
    uint32_t interface;
};

struct machine_port {
    enum ibv_port_state state;
    uint8_t layer; /* IBV_LINK_LAYER_ */
    uint8_t width, speed;
    enum ibv_mtu mtu;
    struct machine_gid gids[MACHINE_GIDS];
};

struct machine_device {
    const char *name;
    enum ibv_transport_type transport;
    int ports;
    struct machine_port port[MACHINE_PORTS];
    /* Errors of the calls on it; 0: none. */
    int open_error, device_error, port_error, gid_error, cm_error, pd_error, registration_error;
    int channel_error; /* of the first device: of the machine's event channels */
};

/* The calls of a machine with these devices, until the next one is made. `list_error`: of
 * get_device_list. */
const struct verbs_calls *machine_make(const struct machine_device *devices, int count,
                                       int list_error);
/* Devices, lists, domains, registrations and channels that are not closed or freed. */
int machine_open(void);

#endif
