/* Which RDMA ports are used, and what is said of the others; which one leads to a peer. */
#include "transports/verbs/devices.h"
#include "base/error.h"
#include "unit/verbs/machine.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROCE(...)                                                                                  \
    {                                                                                              \
        .state = IBV_PORT_ACTIVE, .layer = IBV_LINK_LAYER_ETHERNET, .width = 2, .speed = 32,       \
        .mtu = IBV_MTU_4096, .gids = {                                                             \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define IB(address)                                                                                \
    {                                                                                              \
        .state = IBV_PORT_ACTIVE, .layer = IBV_LINK_LAYER_INFINIBAND, .width = 2, .speed = 64,     \
        .mtu = IBV_MTU_4096, .gids = {                                                             \
            {address, IBV_GID_TYPE_IB, 0},                                                         \
            {"2001:db8::7", IBV_GID_TYPE_IB, 0}                                                    \
        }                                                                                          \
    }
#define V2(address)                                                                                \
    { address, IBV_GID_TYPE_ROCE_V2, 1 }
#define V1(address)                                                                                \
    { address, IBV_GID_TYPE_ROCE_V1, 1 }
#define DEVICE(name_, ...)                                                                         \
    {                                                                                              \
        .name = name_, .transport = IBV_TRANSPORT_IB, .ports = 1, .port = { __VA_ARGS__ }          \
    }

static struct verbs_device_ports ports;
static struct verbs_interface interfaces[8];
static int ninterfaces;

static void add_interface(const char *name, const char *ip, const char *gid, uint16_t partition) {
    struct verbs_interface *interface = &interfaces[ninterfaces++];
    *interface = (struct verbs_interface){
        .index = 100 + (uint32_t)ninterfaces, .infiniband = gid != NULL, .partition = partition};
    snprintf(interface->name, sizeof(interface->name), "%s", name);
    cr_assert_eq(inet_pton(AF_INET6, ip, interface->ip), 1);
    cr_assert(gid == NULL || inet_pton(AF_INET6, gid, interface->gid) == 1);
}

static rota_status find(const struct machine_device *devices, int count) {
    const struct verbs_calls *calls = machine_make(devices, count, 0);
    struct settings *settings = NULL;
    cr_assert_eq(settings_load(&settings), ROTA_OK);
    rota_status status = verbs_ports_find(calls, settings, interfaces, ninterfaces, &ports);
    settings_free(settings);
    cr_assert_eq(machine_open(), 0, "%d devices or lists are left open", machine_open());
    return status;
}

static void unset_all(void) {
    unsetenv("ROTA_RDMA_DEVICE");
    unsetenv("ROTA_RDMA_GID_INDEX");
    unsetenv("ROTA_RDMA_PARTITION");
    unsetenv("ROTA_RDMA_MTU");
    ninterfaces = 0;
}
TestSuite(devices, .init = unset_all);

static const struct verbs_device_port *port_named(const char *device, int number) {
    for (int i = 0; i < ports.count; i++)
        if (strcmp(ports.ports[i].device, device) == 0 && ports.ports[i].number == number)
            return &ports.ports[i];
    cr_assert_fail("%s:%d is not listed", device, number);
    return NULL;
}

static void expect_used(const char *device, int number, const char *text) {
    const struct verbs_device_port *port = port_named(device, number);
    cr_expect(port->used, "%s:%d is not used: %s", device, number, port->why);
    cr_expect_str_eq(port->why, text);
}

static void expect_unused(const char *device, int number, const char *text) {
    const struct verbs_device_port *port = port_named(device, number);
    cr_expect_not(port->used, "%s:%d is used", device, number);
    cr_expect_not_null(strstr(port->why, text), "\"%s\" is not in: %s", text, port->why);
}

static const struct machine_device rxe =
    DEVICE("rxe0", ROCE(V2("fe80::5054:ff:fe00:1"), V2("::ffff:10.77.0.1")));

Test(devices, one_port) {
    cr_assert_eq(find(&rxe, 1), ROTA_OK);
    cr_assert_eq(ports.count, 1);
    cr_assert_eq(ports.used, 1);
    expect_used("rxe0", 1, "RoCE v2 over lo, 100 Gb/s, GID 1, address 10.77.0.1, MTU 4096");
    const struct verbs_device_port *port = &ports.ports[0];
    static const uint8_t ip[16] = {[10] = 0xff, [11] = 0xff, [12] = 10, [13] = 77, [15] = 1};
    cr_assert_arr_eq(port->ip, ip, 16);
    cr_assert_eq(port->mtu, 4096);
    cr_assert(port->ethernet && !port->iwarp);
}

Test(devices, none_and_no_list) {
    cr_assert_eq(find(&rxe, 0), ROTA_OK);
    cr_assert_eq(ports.used, 0);
    cr_assert_eq(ports.system_error, 0);
    cr_assert_str_eq(ports.why, "no RDMA device");
    const struct verbs_calls *calls = machine_make(&rxe, 1, ENOSYS);
    struct settings *settings = NULL;
    cr_assert_eq(settings_load(&settings), ROTA_OK);
    cr_assert_eq(verbs_ports_find(calls, settings, interfaces, ninterfaces, &ports), ROTA_OK);
    settings_free(settings);
    cr_assert_eq(ports.used, 0);
    cr_assert_eq(ports.system_error, ENOSYS);
    cr_assert_not_null(strstr(ports.why, "ibv_get_device_list: Function not implemented"));
}

Test(devices, C79_second_of_three_cannot_be_opened) {
    struct machine_device three[3] = {rxe, rxe, rxe};
    three[0].name = "mlx5_0";
    three[1].name = "mlx5_1";
    three[1].open_error = EACCES;
    three[2].name = "mlx5_2";
    cr_assert_eq(find(three, 3), ROTA_OK);
    cr_assert_eq(ports.used, 2);
    expect_unused("mlx5_1", 1, "ibv_open_device: Permission denied");
    cr_assert_eq(port_named("mlx5_1", 1)->system_error, EACCES);
    cr_assert_eq(ports.why[0], '\0');
}

Test(devices, C79_none_can_be_opened) {
    struct machine_device two[2] = {rxe, rxe};
    two[0].open_error = two[1].open_error = EACCES;
    two[1].name = "rxe1";
    cr_assert_eq(find(two, 2), ROTA_OK);
    cr_assert_eq(ports.used, 0);
    cr_assert_eq(ports.system_error, EACCES);
    cr_assert_str_eq(ports.why, "rxe0:1: ibv_open_device: Permission denied; "
                                "rxe1:1: ibv_open_device: Permission denied");
}

Test(devices, queries_that_fail) {
    struct machine_device three[3] = {rxe, rxe, rxe};
    three[0].device_error = EIO;
    three[1].port_error = EINVAL;
    three[2].gid_error = ENOMEM;
    three[1].name = "rxe1";
    three[2].name = "rxe2";
    cr_assert_eq(find(three, 3), ROTA_OK);
    cr_assert_eq(ports.used, 0);
    expect_unused("rxe0", 1, "ibv_query_device: Input/output error");
    expect_unused("rxe1", 1, "ibv_query_port: Invalid argument");
    expect_unused("rxe2", 1, "ibv_query_gid_table: Cannot allocate memory");
}

/* -- GIDs ---------------------------------------------------------------------------------- */

Test(devices, best_gid) {
    static const struct machine_device several[] = {
        DEVICE("a", ROCE(V1("::ffff:10.0.0.1"), V2("::ffff:10.0.0.1"))),
        DEVICE("b", ROCE(V2("fe80::1"), V2("2001:db8::1"), V2("::ffff:169.254.1.1"))),
        DEVICE("c", ROCE(V2("fe80::1"), V2("::ffff:169.254.1.1"))),
        DEVICE("d", ROCE(V1("fe80::1"), V2("fe80::1"))),
        DEVICE("e", ROCE(V1("fe80::1"), V1("::ffff:10.0.0.1"))),
        DEVICE("f", ROCE(V2("::ffff:127.0.0.1"), V2("::1"))),
        DEVICE("g", ROCE({NULL, 0, 0})),
    };
    cr_assert_eq(find(several, 7), ROTA_OK);
    expect_used("a", 1, "RoCE v2 over lo, 100 Gb/s, GID 1, address 10.0.0.1, MTU 4096");
    expect_used("b", 1, "RoCE v2 over lo, 100 Gb/s, GID 1, address 2001:db8::1, MTU 4096");
    expect_used("c", 1, "RoCE v2 over lo, 100 Gb/s, GID 1, address 169.254.1.1, MTU 4096");
    expect_used("d", 1, "RoCE v2 over lo, 100 Gb/s, GID 1, address fe80::1, MTU 4096");
    expect_unused("e", 1, "no GID of RoCE v2 with an IP address");
    expect_unused("f", 1, "no GID of RoCE v2 with an IP address");
    expect_unused("g", 1, "no GID: its network interface is down");
}

Test(devices, gid_by_setting) {
    setenv("ROTA_RDMA_GID_INDEX", "0", 1);
    cr_assert_eq(find(&rxe, 1), ROTA_OK);
    expect_used("rxe0", 1,
                "RoCE v2 over lo, 100 Gb/s, GID 0, address fe80::5054:ff:fe00:1, MTU 4096");
    setenv("ROTA_RDMA_GID_INDEX", "5", 1);
    cr_assert_eq(find(&rxe, 1), ROTA_OK);
    expect_unused("rxe0", 1, "GID 5 (ROTA_RDMA_GID_INDEX) is not there");
    cr_assert_not_null(strstr(ports.why, "rxe0:1: GID 5"));
    static const struct machine_device first = DEVICE("a", ROCE(V1("::ffff:10.0.0.1")));
    setenv("ROTA_RDMA_GID_INDEX", "0", 1);
    cr_assert_eq(find(&first, 1), ROTA_OK);
    expect_unused("a", 1, "not of RoCE v2");
}

/* -- states and layers --------------------------------------------------------------------- */

static const struct machine_device fabric = DEVICE("mlx4_0", IB("fe80::2:c903:1"));

Test(devices, not_active) {
    struct machine_device several[3] = {rxe, fabric, fabric};
    several[2].name = "mlx4_1";
    several[0].port[0].state = IBV_PORT_DOWN;
    several[1].port[0].state = IBV_PORT_INIT;
    several[2].port[0].state = IBV_PORT_DOWN;
    cr_assert_eq(find(several, 3), ROTA_OK);
    cr_assert_eq(ports.used, 0);
    cr_assert_eq(ports.system_error, 0);
    expect_unused("rxe0", 1, "the port is down: its network interface is");
    expect_unused("mlx4_0", 1, "no subnet manager");
    expect_unused("mlx4_1", 1, "the port is down: no cable");
}

Test(devices, other_kinds) {
    struct machine_device several[3] = {rxe, rxe, rxe};
    several[0].name = "efa_0";
    several[0].transport = IBV_TRANSPORT_UNSPECIFIED;
    several[1].name = "siw0";
    several[1].transport = IBV_TRANSPORT_IWARP;
    several[1].port[0].gids[0] = (struct machine_gid){"5254::", IBV_GID_TYPE_IB, 101};
    several[2].name = "siw1";
    several[2].transport = IBV_TRANSPORT_IWARP;
    several[2].port[0].gids[0] = (struct machine_gid){"5254::", IBV_GID_TYPE_IB, 0};
    add_interface("eth5", "::ffff:10.5.0.1", NULL, 0);
    cr_assert_eq(find(several, 3), ROTA_OK);
    expect_unused("efa_0", 1, "neither InfiniBand nor RoCE nor iWARP");
    expect_used("siw0", 1, "iWARP over eth5, 100 Gb/s, GID 0, address 10.5.0.1, MTU 4096");
    cr_assert(port_named("siw0", 1)->iwarp);
    expect_unused("siw1", 1, "iWARP, and no address of its network interface");
}

/* On InfiniBand the address is that of an IPoIB interface, which belongs to a partition. */
Test(devices, partitions) {
    add_interface("eth0", "::ffff:10.0.0.1", NULL, 0);
    cr_assert_eq(find(&fabric, 1), ROTA_OK);
    expect_unused("mlx4_0", 1, "no IPoIB interface with an address");
    add_interface("ib9", "::ffff:10.9.0.1", "fe80::2:c903:99", 0xffff);
    cr_assert_eq(find(&fabric, 1), ROTA_OK);
    expect_unused("mlx4_0", 1, "no IPoIB interface with an address");
    add_interface("ib0.1", "::ffff:10.1.0.1", "fe80::2:c903:1", 0x0001);
    cr_assert_eq(find(&fabric, 1), ROTA_OK);
    expect_used("mlx4_0", 1,
                "InfiniBand over ib0.1, 200 Gb/s, GID 0, address 10.1.0.1, partition "
                "0x0001, MTU 4096");
    add_interface("ib0.8007", "::ffff:10.7.0.1", "fe80::2:c903:1", 0x8007);
    add_interface("ib0", "::ffff:10.2.0.1", "fe80::2:c903:1", 0xffff);
    cr_assert_eq(find(&fabric, 1), ROTA_OK);
    cr_assert_eq(ports.ports[0].partition, 0x8007, "the first with full membership");
    setenv("ROTA_RDMA_PARTITION", "0x7fff", 1);
    cr_assert_eq(find(&fabric, 1), ROTA_OK);
    expect_used("mlx4_0", 1,
                "InfiniBand over ib0, 200 Gb/s, GID 0, address 10.2.0.1, partition "
                "0xffff, MTU 4096");
    setenv("ROTA_RDMA_PARTITION", "32769", 1); /* 0x8001: only a limited member of it */
    cr_assert_eq(find(&fabric, 1), ROTA_OK);
    cr_assert_eq(ports.ports[0].partition, 0x0001);
    setenv("ROTA_RDMA_PARTITION", "0x8009", 1);
    cr_assert_eq(find(&fabric, 1), ROTA_OK);
    expect_unused("mlx4_0", 1, "in partition 0x8009 (ROTA_RDMA_PARTITION)");
    setenv("ROTA_RDMA_GID_INDEX", "1", 1);
    cr_assert_eq(find(&fabric, 1), ROTA_OK);
    expect_unused("mlx4_0", 1, "GID 1 (ROTA_RDMA_GID_INDEX) is not there or not of an IPoIB");
}

Test(devices, partition_setting) {
    static const char *const refused[] = {"x", "0x10000", "0x8000", "0", "0x8001,0x8002", "-1"};
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        setenv("ROTA_RDMA_PARTITION", refused[i], 1);
        cr_expect_eq(find(&rxe, 1), ROTA_ERR_SETTING, "%s is taken", refused[i]);
    }
}

/* What this machine has: at least the loopback interface. */
Test(devices, interfaces_of_this_machine) {
    static const uint8_t loopback[16] = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1};
    struct verbs_interface found[VERBS_INTERFACES];
    int count = verbs_interfaces(found), at = -1;
    for (int i = 0; i < count; i++)
        if (strcmp(found[i].name, "lo") == 0 && memcmp(found[i].ip, loopback, 16) == 0)
            at = i;
    cr_assert_geq(at, 0, "lo is not among %d interfaces", count);
    cr_assert_eq(found[at].index, 1);
    cr_assert_not(found[at].infiniband);
}

/* -- settings that choose ------------------------------------------------------------------ */

static struct machine_device fast_and_slow[3];

static void make_fast_and_slow(void) {
    unset_all();
    for (int i = 0; i < 3; i++)
        fast_and_slow[i] = rxe;
    fast_and_slow[0].name = "mlx5_10";
    fast_and_slow[1].name = "mlx5_2";
    fast_and_slow[1].ports = 2;
    fast_and_slow[1].port[1] = fast_and_slow[1].port[0];
    fast_and_slow[2].name = "bnxt_re0";
    fast_and_slow[2].port[0].speed = 4; /* 40 Gb/s */
}
TestSuite(choice, .init = make_fast_and_slow);

/* Names of the used ports, in order. */
static const char *used_ports(void) {
    static char text[256];
    text[0] = '\0';
    for (int i = 0; i < ports.count; i++)
        if (ports.ports[i].used)
            snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s:%u",
                     text[0] != '\0' ? " " : "", ports.ports[i].device, ports.ports[i].number);
    return text;
}

static const char *used_with(const char *setting) {
    setenv("ROTA_RDMA_DEVICE", setting, 1);
    cr_assert_eq(find(fast_and_slow, 3), ROTA_OK);
    return used_ports();
}

Test(choice, by_speed_and_name) {
    cr_assert_str_eq(used_with(""), "mlx5_2:1 mlx5_2:2 mlx5_10:1");
    expect_unused("bnxt_re0", 1,
                  "slower (40 Gb/s) than mlx5_2:1 (100 Gb/s): ROTA_RDMA_DEVICE can name it");
    cr_assert_str_eq(used_with("bnxt_re0"), "bnxt_re0:1");
    expect_unused("mlx5_2", 2, "left out by ROTA_RDMA_DEVICE");
    cr_assert_str_eq(used_with("mlx5_2"), "mlx5_2:1 mlx5_2:2");
    cr_assert_str_eq(used_with("mlx5_2:2"), "mlx5_2:2");
    cr_assert_str_eq(used_with("mlx5_*,bnxt_re0:1"), "bnxt_re0:1 mlx5_2:1 mlx5_2:2 mlx5_10:1");
    cr_assert_str_eq(used_with("^mlx5_2"), "mlx5_10:1");
    cr_assert_str_eq(used_with("^mlx5_*"), "bnxt_re0:1");
    cr_assert_str_eq(used_with("^mlx5_2:1"), "mlx5_2:2 mlx5_10:1");
    cr_assert_str_eq(used_with("mlx5_7"), "");
    cr_assert_not_null(strstr(ports.why, "left out by ROTA_RDMA_DEVICE"));
}

Test(choice, mtu) {
    setenv("ROTA_RDMA_MTU", "1024", 1);
    cr_assert_eq(find(&rxe, 1), ROTA_OK);
    cr_assert_eq(ports.ports[0].mtu, 1024);
    cr_assert_eq(ports.ports[0].link_mtu, 4096);
    struct machine_device small = rxe;
    small.port[0].mtu = IBV_MTU_512;
    cr_assert_eq(find(&small, 1), ROTA_OK);
    cr_assert_eq(ports.ports[0].mtu, 512, "a setting cannot make packets larger");
}

Test(choice, many_ports) {
    struct machine_device many[MACHINE_DEVICES];
    static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    for (int i = 0; i < MACHINE_DEVICES; i++) {
        many[i] = fast_and_slow[1];
        many[i].ports = 3;
        many[i].port[2] = many[i].port[0];
        many[i].name = names[i];
    }
    cr_assert_eq(find(many, MACHINE_DEVICES), ROTA_OK);
    cr_assert_eq(ports.count, VERBS_DEVICE_PORTS);
    cr_assert_eq(ports.used, VERBS_DEVICE_PORTS);
}

/* -- addresses and routes ------------------------------------------------------------------ */

static struct verbs_rail rails[2];
static int rail_count;

static void no_rails(void) {
    memset(rails, 0, sizeof(rails));
    rail_count = 0;
}
TestSuite(route, .init = no_rails);

static const uint8_t *ip_of(const char *address) {
    static uint8_t ip[16];
    cr_assert_eq(inet_pton(AF_INET6, address, ip), 1);
    return ip;
}

static void set_rail(int i, const char *address) {
    rails[i].ethernet = rails[i].immediate = true;
    rails[i].mtu = 4096;
    memcpy(rails[i].ip, ip_of(address), 16);
    verbs_address(rails[i].ip, 0, 0, &rails[i].address);
}

static int route_to(const char *address, uint32_t *mtu) {
    return verbs_route(rails, rail_count, ip_of(address), mtu);
}

Test(route, addresses) {
    struct sockaddr_storage address;
    verbs_address(ip_of("::ffff:10.1.2.3"), 7, 4791, &address);
    const struct sockaddr_in *in = (const void *)&address;
    cr_assert_eq(in->sin_family, AF_INET);
    cr_assert_eq(ntohl(in->sin_addr.s_addr), 0x0a010203);
    cr_assert_eq(ntohs(in->sin_port), 4791);
    verbs_address(ip_of("fe80::1"), 7, 4791, &address);
    const struct sockaddr_in6 *in6 = (const void *)&address;
    cr_assert_eq(in6->sin6_family, AF_INET6);
    cr_assert_eq(in6->sin6_scope_id, 7);
    cr_assert_eq(ntohs(in6->sin6_port), 4791);
    verbs_address(ip_of("2001:db8::1"), 7, 4791, &address);
    cr_assert_eq(in6->sin6_scope_id, 0);
}

Test(route, over_ethernet) {
    uint32_t mtu = 0;
    cr_assert_eq(route_to("::ffff:127.0.0.1", &mtu), -1, "without a rail");
    set_rail(0, "::ffff:203.0.113.1");
    rail_count = 1;
    cr_assert_eq(route_to("::ffff:127.0.0.1", &mtu), -1, "from an address that is not here");
    set_rail(1, "::ffff:127.0.0.1");
    rail_count = 2;
    cr_assert_eq(route_to("::ffff:127.0.0.1", &mtu), 1);
    cr_assert_eq(mtu, 4096);
    rails[1].mtu = 512;
    cr_assert_eq(route_to("::ffff:127.0.0.1", &mtu), 1);
    cr_assert_eq(mtu, 512);
    /* The kernel would begin at 127.0.0.1; only another loopback address is a rail. */
    set_rail(1, "::ffff:127.0.0.5");
    cr_assert_eq(route_to("::ffff:127.0.0.1", &mtu), 1);
    cr_assert_eq(route_to("::1", &mtu), -1, "another family");
}

/* Packets of IPoIB are not those of RDMA beside it. */
Test(route, mtu_by_kind) {
    static const uint32_t mtus[][2] = {{0, 256}, {256, 256}, {3000, 2048}, {65535, 4096}};
    uint32_t mtu = 0;
    set_rail(0, "::ffff:127.0.0.1");
    rail_count = 1;
    for (size_t i = 0; i < sizeof(mtus) / sizeof(mtus[0]); i++) {
        rails[0].mtu = mtus[i][0];
        rails[0].ethernet = i % 2 == 0;
        cr_assert_eq(route_to("::ffff:127.0.0.1", &mtu), 0);
        cr_assert_eq(mtu, mtus[i][1], "%u gives %u", mtus[i][0], mtu);
    }
}

/* -- rails --------------------------------------------------------------------------------- */

static rota_status find_rails(const struct machine_device *devices, int count) {
    const struct verbs_calls *calls = machine_make(devices, count, 0);
    struct settings *settings = NULL;
    cr_assert_eq(settings_load(&settings), ROTA_OK);
    no_rails();
    rota_status status = verbs_rails_find(calls, settings, rails, 2, &rail_count);
    settings_free(settings);
    cr_assert_eq(machine_open(), 0, "%d devices or lists are left open", machine_open());
    return status;
}

Test(devices, rails) {
    struct machine_device two[2] = {rxe, rxe};
    two[1].name = "rxe1";
    two[1].port[0].gids[1].address = "::ffff:10.77.0.2";
    cr_assert_eq(find_rails(two, 2), ROTA_OK);
    cr_assert_eq(rail_count, 2);
    cr_assert_str_eq(rails[0].name, "rxe0:1");
    cr_assert_str_eq(rails[1].name, "rxe1:1");
    cr_assert(rails[1].immediate);
    cr_assert_eq(rails[1].mtu, 4096);
    cr_assert_str_eq(rails[1].context->device->name, "rxe1");
    const struct sockaddr_in *address = (const void *)&rails[1].address;
    cr_assert_eq(ntohl(address->sin_addr.s_addr), 0x0a4d0002);
    cr_assert_eq(address->sin_port, 0);
    setenv("ROTA_RDMA_DEVICE", "rxe1", 1);
    cr_assert_eq(find_rails(two, 2), ROTA_OK);
    cr_assert_eq(rail_count, 1);
    cr_assert_str_eq(rails[0].name, "rxe1:1");
}

Test(devices, C79_no_rails) {
    struct machine_device closed = rxe;
    cr_assert_eq(find_rails(&rxe, 0), ROTA_ERR_UNSUPPORTED);
    cr_assert_eq(error_record()->system_error, 0, "nothing failed: there is none");
    closed.open_error = EACCES;
    cr_assert_eq(find_rails(&closed, 1), ROTA_ERR_UNSUPPORTED);
    cr_assert_eq(error_record()->system_error, EACCES);
    cr_assert_str_eq(error_record()->message, "rxe0:1: ibv_open_device: Permission denied");
    closed = rxe;
    closed.cm_error = ENODEV;
    cr_assert_eq(find_rails(&closed, 1), ROTA_ERR_UNSUPPORTED);
    cr_assert_str_eq(error_record()->message, "rdma_get_devices: No such device");
    setenv("ROTA_RDMA_PARTITION", "seven", 1);
    cr_assert_eq(find_rails(&rxe, 1), ROTA_ERR_SETTING);
}
