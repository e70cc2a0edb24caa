/* Listing RDMA devices: which ports are used, with which GID, partition and MTU. See devices.h. */
#include "devices.h"

#include "base/error.h"
#include "base/log.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Partition keys: the highest bit says full membership, the others name the partition. */
#define PARTITION_FULL 0x8000u
#define PARTITION_NAME 0x7fffu
/* Entries of a device's table of GIDs that are looked at: the kernel's answer has at most 64 KiB.
 */
#define MOST_GIDS 1024

/* What is wanted, from the settings. */
struct wish {
    const struct settings *settings;
    int gid_index;       /* -1: choose */
    unsigned partition;  /* 0: choose */
    unsigned mtu;        /* 0: the link's */
    bool any, excluding; /* ROTA_RDMA_DEVICE names nothing; names what is left out */
};

/* A device while it is looked at. */
struct look {
    const struct verbs_calls *calls;
    const struct wish *wish;
    struct ibv_device *device;
    struct ibv_context *context;
    struct ibv_gid_entry *gids;
    ssize_t ngids;
    const struct verbs_interface *interfaces;
    int ninterfaces;
};

static void say(struct verbs_device_port *port, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void say(struct verbs_device_port *port, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(port->why, sizeof(port->why), format, args);
    va_end(args);
}

static void say_failed(struct verbs_device_port *port, const char *call, int error) {
    port->system_error = error;
    say(port, "%s: %s", call, strerror(error));
}

/* -- settings ------------------------------------------------------------------------------ */

static rota_status read_wish(const struct settings *settings, struct wish *wish) {
    const char *text = settings_text(settings, SETTING_RDMA_PARTITION);
    char *end = NULL;
    unsigned long number = text[0] != '\0' ? strtoul(text, &end, 0) : 0;
    if (text[0] != '\0' && (*end != '\0' || (number & PARTITION_NAME) == 0 || number > 0xffff))
        return error_raise(ROTA_ERR_SETTING,
                           "ROTA_RDMA_PARTITION=\"%.20s\" (from %s) is no partition key: expected "
                           "a number as 0x8001, 0x0001 to 0xffff",
                           text, settings_origin(settings, SETTING_RDMA_PARTITION));
    wish->settings = settings;
    wish->partition = (unsigned)number;
    wish->gid_index = (int)settings_integer(settings, SETTING_RDMA_GID_INDEX);
    const char *list = settings_text(settings, SETTING_RDMA_DEVICE);
    wish->any = list[0] == '\0';
    wish->excluding = list[0] == '^';
    wish->mtu = (unsigned)strtoul(settings_text(settings, SETTING_RDMA_MTU), NULL, 10);
    return ROTA_OK;
}

/* Whether ROTA_RDMA_DEVICE has a word for the port: as DEVICE or as DEVICE:PORT. */
static bool is_listed(const struct wish *wish, const struct verbs_device_port *port) {
    char both[IBV_SYSFS_NAME_MAX + 8];
    snprintf(both, sizeof(both), "%s:%u", port->device, port->number);
    return settings_list_has(wish->settings, SETTING_RDMA_DEVICE, port->device) ||
           settings_list_has(wish->settings, SETTING_RDMA_DEVICE, both);
}

static bool is_named(const struct wish *wish, const struct verbs_device_port *port) {
    return !wish->excluding && is_listed(wish, port);
}

static bool is_left_out(const struct wish *wish, const struct verbs_device_port *port) {
    return wish->excluding ? is_listed(wish, port) : !wish->any && !is_listed(wish, port);
}

/* -- what a port offers -------------------------------------------------------------------- */

static uint32_t speed_of(const struct ibv_port_attr *attributes) {
    static const struct {
        uint8_t code;
        uint32_t mbps;
    } lanes[] = {{1, 2500},   {2, 5000},   {4, 10000},  {8, 10000},
                 {16, 14000}, {32, 25000}, {64, 50000}, {128, 100000}};
    static const uint8_t widths[] = {1, 4, 8, 12, 2}; /* by bit of active_width */
    uint32_t lane = 0, width = 1;
    for (size_t i = 0; i < sizeof(lanes) / sizeof(lanes[0]); i++)
        if (lanes[i].code == attributes->active_speed)
            lane = lanes[i].mbps;
    for (size_t i = 0; i < sizeof(widths); i++)
        if (attributes->active_width == 1u << i)
            width = widths[i];
    return lane * width;
}

static bool is_zero(const uint8_t gid[16]) {
    static const uint8_t zero[16];
    return memcmp(gid, zero, sizeof(zero)) == 0;
}

/* Of an address: routable before link-local, IPv4 first; 0: of no use to the connection manager. */
static int worth(const uint8_t ip[16]) {
    const struct in6_addr *address = (const void *)ip;
    if (IN6_IS_ADDR_V4MAPPED(address))
        return ip[12] == 127 ? 0 : ip[12] == 169 && ip[13] == 254 ? 2 : 4;
    return is_zero(ip) || IN6_IS_ADDR_LOOPBACK(address) ? 0
           : IN6_IS_ADDR_LINKLOCAL(address)             ? 1
                                                        : 3;
}

static const struct verbs_interface *interface_at(const struct look *look, uint32_t index) {
    for (int i = 0; i < look->ninterfaces; i++)
        if (look->interfaces[i].index == index)
            return &look->interfaces[i];
    return NULL;
}

/* The interface on InfiniBand that goes over this GID: of the wanted partition, else one with full
 * membership. */
static const struct verbs_interface *ipoib_over(const struct look *look, const uint8_t gid[16]) {
    const struct verbs_interface *best = NULL;
    unsigned wanted = look->wish->partition;
    for (int i = 0; i < look->ninterfaces; i++) {
        const struct verbs_interface *one = &look->interfaces[i];
        if (!one->infiniband || memcmp(one->gid, gid, sizeof(one->gid)) != 0 ||
            (wanted != 0 && ((one->partition ^ wanted) & PARTITION_NAME) != 0))
            continue;
        if (best == NULL || (one->partition & ~best->partition & PARTITION_FULL) != 0)
            best = one;
    }
    return best;
}

/* What an entry of the table of GIDs is good for: 0 nothing. On InfiniBand and iWARP sets the
 * interface that gives it an address. */
static int rate(const struct look *look, const struct verbs_device_port *port,
                const struct ibv_gid_entry *entry, const struct verbs_interface **interface) {
    *interface = NULL;
    if (entry->port_num != port->number || is_zero(entry->gid.raw))
        return 0;
    if (port->ethernet && !port->iwarp)
        return entry->gid_type == IBV_GID_TYPE_ROCE_V2 ? worth(entry->gid.raw) : 0;
    *interface =
        port->iwarp ? interface_at(look, entry->ndev_ifindex) : ipoib_over(look, entry->gid.raw);
    return *interface != NULL ? worth((*interface)->ip) + (port->iwarp ? 1 : 0) : 0;
}

static void say_no_gid(const struct look *look, struct verbs_device_port *port, bool any) {
    if (look->wish->gid_index >= 0)
        say(port, "GID %d (ROTA_RDMA_GID_INDEX) is not there or not of %s with an IP address",
            look->wish->gid_index,
            port->iwarp      ? "an interface"
            : port->ethernet ? "RoCE v2"
                             : "an IPoIB interface");
    else if (!any)
        say(port, "no GID: its network interface is down or has no address");
    else if (port->iwarp)
        say(port, "iWARP, and no address of its network interface is known");
    else if (port->ethernet)
        say(port, "no GID of RoCE v2 with an IP address: give its network interface one");
    else if (look->wish->partition != 0)
        say(port, "no IPoIB interface with an address in partition 0x%04x (ROTA_RDMA_PARTITION)",
            look->wish->partition);
    else
        say(port, "no IPoIB interface with an address, which connections are made by");
}

static bool choose_gid(const struct look *look, struct verbs_device_port *port) {
    const struct ibv_gid_entry *best = NULL;
    const struct verbs_interface *interface = NULL, *of_best = NULL;
    int highest = 0, wanted = look->wish->gid_index;
    bool any = false;
    for (ssize_t i = 0; i < look->ngids; i++) {
        const struct ibv_gid_entry *entry = &look->gids[i];
        int rating = rate(look, port, entry, &interface);
        any |= entry->port_num == port->number && !is_zero(entry->gid.raw);
        if (rating > highest && (wanted < 0 || (int)entry->gid_index == wanted)) {
            best = entry;
            of_best = interface;
            highest = rating;
        }
    }
    if (best == NULL) {
        say_no_gid(look, port, any);
        return false;
    }
    port->gid_index = (int)best->gid_index;
    port->interface = of_best != NULL ? of_best->index : best->ndev_ifindex;
    memcpy(port->ip, of_best != NULL ? of_best->ip : best->gid.raw, sizeof(port->ip));
    if (of_best != NULL)
        port->partition = of_best->partition;
    if (port->interface == 0 || if_indextoname(port->interface, port->interface_name) == NULL)
        snprintf(port->interface_name, sizeof(port->interface_name), "%s",
                 of_best != NULL ? of_best->name : "?");
    return true;
}

static void describe(struct verbs_device_port *port) {
    char address[INET6_ADDRSTRLEN] = "?", partition[32] = "";
    const struct in6_addr *ip = (const void *)port->ip;
    if (IN6_IS_ADDR_V4MAPPED(ip))
        inet_ntop(AF_INET, port->ip + 12, address, sizeof(address));
    else
        inet_ntop(AF_INET6, port->ip, address, sizeof(address));
    if (!port->ethernet)
        snprintf(partition, sizeof(partition), ", partition 0x%04x", port->partition);
    say(port, "%s over %s, %.4g Gb/s, GID %d, address %s%s, MTU %u",
        port->iwarp      ? "iWARP"
        : port->ethernet ? "RoCE v2"
                         : "InfiniBand",
        port->interface_name, port->speed / 1000.0, port->gid_index, address, partition, port->mtu);
}

/* -- looking ------------------------------------------------------------------------------- */

static const char *why_not_active(const struct ibv_port_attr *attributes) {
    bool fabric = attributes->link_layer != IBV_LINK_LAYER_ETHERNET;
    if (fabric && (attributes->state == IBV_PORT_INIT || attributes->state == IBV_PORT_ARMED))
        return "the link is up, but no subnet manager has made it active";
    return fabric ? "the port is down: no cable, or the other end is off"
                  : "the port is down: its network interface is, or has no carrier";
}

static void look_at_port(const struct look *look, struct verbs_device_port *port) {
    struct ibv_port_attr attributes = {0};
    int error = look->calls->query_port(look->context, port->number, &attributes);
    if (error != 0) {
        say_failed(port, "ibv_query_port", error);
        return;
    }
    port->ethernet = attributes.link_layer == IBV_LINK_LAYER_ETHERNET || port->iwarp;
    port->speed = speed_of(&attributes);
    port->mtu = port->link_mtu = 128u << attributes.active_mtu;
    if (look->wish->mtu != 0 && look->wish->mtu < port->link_mtu)
        port->mtu = look->wish->mtu;
    if (attributes.state != IBV_PORT_ACTIVE) {
        say(port, "%s", why_not_active(&attributes));
        return;
    }
    if (!choose_gid(look, port))
        return;
    describe(port);
    port->used = true;
}

static struct verbs_device_port *add(struct verbs_device_ports *ports, const char *device,
                                     int number) {
    if (ports->count == VERBS_DEVICE_PORTS)
        return NULL;
    struct verbs_device_port *port = &ports->ports[ports->count++];
    snprintf(port->device, sizeof(port->device), "%s", device);
    port->number = (uint8_t)number;
    return port;
}

static rota_status look_at_ports(struct look *look, struct verbs_device_ports *ports,
                                 const char *name, bool iwarp) {
    struct ibv_device_attr attributes = {0};
    int error = look->calls->query_device(look->context, &attributes);
    if (error != 0) {
        struct verbs_device_port *port = add(ports, name, 1);
        if (port != NULL)
            say_failed(port, "ibv_query_device", error);
        return ROTA_OK;
    }
    look->gids = calloc(MOST_GIDS, sizeof(*look->gids));
    if (look->gids == NULL)
        return error_raise(ROTA_ERR_MEMORY, "no memory for the GIDs of %s", name);
    look->ngids = look->calls->query_gid_table(look->context, look->gids, MOST_GIDS, 0);
    for (int number = 1; number <= attributes.phys_port_cnt; number++) {
        struct verbs_device_port *port = add(ports, name, number);
        if (port == NULL)
            break;
        port->iwarp = iwarp;
        port->by_choice = is_left_out(look->wish, port);
        if (port->by_choice)
            say(port, "left out by ROTA_RDMA_DEVICE");
        else if (look->ngids < 0)
            say_failed(port, "ibv_query_gid_table", (int)-look->ngids);
        else
            look_at_port(look, port);
    }
    free(look->gids);
    return ROTA_OK;
}

static rota_status look_at_device(struct look *look, struct verbs_device_ports *ports) {
    const char *name = look->calls->get_device_name(look->device);
    int type = look->device->transport_type;
    struct verbs_device_port *port = NULL;
    rota_status status = ROTA_OK;
    if (type != IBV_TRANSPORT_IB && type != IBV_TRANSPORT_IWARP) {
        if ((port = add(ports, name, 1)) == NULL)
            return ROTA_OK;
        port->by_choice = true;
        say(port, "neither InfiniBand nor RoCE nor iWARP");
        return ROTA_OK;
    }
    errno = 0;
    look->context = look->calls->open_device(look->device);
    if (look->context == NULL) {
        int error = errno != 0 ? errno : ENODEV;
        if ((port = add(ports, name, 1)) != NULL)
            say_failed(port, "ibv_open_device", error);
        return ROTA_OK;
    }
    status = look_at_ports(look, ports, name, type == IBV_TRANSPORT_IWARP);
    look->calls->close_device(look->context);
    return status;
}

/* -- choosing ------------------------------------------------------------------------------ */

/* A port for management beside those of the fabric would slow down all that is striped over it. */
static void leave_out_slower(const struct wish *wish, struct verbs_device_ports *ports) {
    const struct verbs_device_port *fastest = NULL;
    for (int i = 0; i < ports->count; i++)
        if (ports->ports[i].used && (fastest == NULL || ports->ports[i].speed > fastest->speed))
            fastest = &ports->ports[i];
    for (int i = 0; i < ports->count; i++) {
        struct verbs_device_port *port = &ports->ports[i];
        if (!port->used || port->speed == fastest->speed || is_named(wish, port))
            continue;
        port->used = false;
        port->by_choice = true;
        say(port, "slower (%.4g Gb/s) than %s:%u (%.4g Gb/s): ROTA_RDMA_DEVICE can name it",
            port->speed / 1000.0, fastest->device, fastest->number, fastest->speed / 1000.0);
    }
}

static void conclude(struct verbs_device_ports *ports) {
    size_t length = 0;
    if (ports->count == 0 && ports->why[0] == '\0')
        snprintf(ports->why, sizeof(ports->why), "no RDMA device");
    for (int i = 0; i < ports->count; i++)
        ports->used += ports->ports[i].used;
    for (int i = 0; i < ports->count && ports->used == 0; i++) {
        const struct verbs_device_port *port = &ports->ports[i];
        if (length < sizeof(ports->why))
            length +=
                (size_t)snprintf(ports->why + length, sizeof(ports->why) - length, "%s%s:%u: %s",
                                 i > 0 ? "; " : "", port->device, port->number, port->why);
        if (ports->system_error == 0)
            ports->system_error = port->system_error;
    }
}

static int compare(const void *left, const void *right) {
    const struct verbs_device_port *a = left, *b = right;
    int names = strverscmp(a->device, b->device);
    return names != 0 ? names : a->number - b->number;
}

rota_status verbs_ports_find(const struct verbs_calls *calls, const struct settings *settings,
                             const struct verbs_interface *interfaces, int ninterfaces,
                             struct verbs_device_ports *ports) {
    struct wish wish;
    int count = 0;
    memset(ports, 0, sizeof(*ports));
    rota_status status = read_wish(settings, &wish);
    if (status != ROTA_OK)
        return status;
    errno = 0;
    struct ibv_device **devices = calls->get_device_list(&count);
    if (devices == NULL) {
        ports->system_error = errno;
        snprintf(ports->why, sizeof(ports->why), "ibv_get_device_list: %s", strerror(errno));
        return ROTA_OK;
    }
    for (int i = 0; i < count && status == ROTA_OK; i++) {
        struct look look = {.calls = calls,
                            .wish = &wish,
                            .device = devices[i],
                            .interfaces = interfaces,
                            .ninterfaces = ninterfaces};
        status = look_at_device(&look, ports);
    }
    calls->free_device_list(devices);
    qsort(ports->ports, (size_t)ports->count, sizeof(ports->ports[0]), compare);
    leave_out_slower(&wish, ports);
    conclude(ports);
    return status;
}

/* -- rails --------------------------------------------------------------------------------- */

static struct ibv_context *context_of(struct ibv_context **contexts, int count,
                                      const struct verbs_calls *calls, const char *device) {
    for (int i = 0; i < count; i++)
        if (strcmp(calls->get_device_name(contexts[i]->device), device) == 0)
            return contexts[i];
    return NULL;
}

static void make_rail(const struct verbs_device_port *port, struct ibv_context *context,
                      struct verbs_rail *rail) {
    *rail = (struct verbs_rail){.context = context,
                                .interface = port->interface,
                                .port = port->number,
                                .ethernet = port->ethernet,
                                .immediate = !port->iwarp,
                                .mtu = port->mtu,
                                .link_mtu = port->link_mtu};
    memcpy(rail->ip, port->ip, sizeof(rail->ip));
    snprintf(rail->name, sizeof(rail->name), "%.56s:%u", port->device, port->number);
    verbs_address(port->ip, port->interface, 0, &rail->address);
}

static void warn_of_failed(const struct verbs_device_ports *ports) {
    for (int i = 0; i < ports->count; i++)
        if (ports->ports[i].system_error != 0)
            log_write(LOG_WARN, "RDMA device %s is not used: %s", ports->ports[i].device,
                      ports->ports[i].why);
}

static rota_status raise_none(const struct verbs_device_ports *ports) {
    error_describe(ROTA_ERR_UNSUPPORTED, "%s", ports->why);
    error_record()->system_error = ports->system_error;
    return ROTA_ERR_UNSUPPORTED;
}

rota_status verbs_rails_find(const struct verbs_calls *calls, const struct settings *settings,
                             struct verbs_rail *rails, int max, int *count) {
    struct verbs_device_ports ports;
    struct verbs_interface interfaces[VERBS_INTERFACES];
    int ninterfaces = verbs_interfaces(interfaces);
    rota_status status = verbs_ports_find(calls, settings, interfaces, ninterfaces, &ports);
    if (status != ROTA_OK)
        return status;
    if (ports.used == 0)
        return raise_none(&ports);
    int ncontexts = 0, made = 0;
    errno = 0;
    struct ibv_context **contexts = calls->get_devices(&ncontexts);
    if (contexts == NULL) {
        ports.system_error = errno != 0 ? errno : ENODEV;
        snprintf(ports.why, sizeof(ports.why), "rdma_get_devices: %s",
                 strerror(ports.system_error));
        return raise_none(&ports);
    }
    for (int i = 0; i < ports.count && made < max; i++) {
        const struct verbs_device_port *port = &ports.ports[i];
        struct ibv_context *context =
            port->used ? context_of(contexts, ncontexts, calls, port->device) : NULL;
        if (context != NULL)
            make_rail(port, context, &rails[made++]);
    }
    calls->free_devices(contexts);
    if (made == 0) {
        snprintf(ports.why, sizeof(ports.why), "librdmacm does not know %s", ports.ports[0].device);
        return raise_none(&ports);
    }
    warn_of_failed(&ports);
    *count = made;
    return ROTA_OK;
}
