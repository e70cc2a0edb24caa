/* Addresses: forms, parsing, interface choice, candidates. */
#include "net/address.h"
#include "base/error.h"
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct net_address parse_one(const char *text) {
    struct net_address address[4];
    int count = 0;
    cr_assert_eq(net_address_parse(text, address, 4, &count), ROTA_OK, "%s", text);
    cr_assert_geq(count, 1);
    return address[0];
}

Test(address, parses_and_prints) {
    static const char *const texts[] = {"10.0.0.1:5000", "[fd00::1]:5000", "127.0.0.1:65535",
                                        "[::1]:1"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char text[NET_ADDRESS_TEXT];
        struct net_address address = parse_one(texts[i]);
        net_address_text(&address, text);
        cr_assert_str_eq(text, texts[i]);
    }
}

Test(address, keeps_the_scope) {
    char text[NET_ADDRESS_TEXT];
    struct net_address address = parse_one("[fe80::1%lo]:7");
    cr_assert_eq(address.scope, 1);
    cr_assert(net_address_is_link_local(&address));
    net_address_text(&address, text);
    cr_assert_str_eq(text, "[fe80::1%1]:7");
    struct sockaddr_storage storage;
    socklen_t length;
    struct net_address back;
    net_address_to_socket(&address, &storage, &length);
    net_address_from_socket((struct sockaddr *)&storage, &back);
    cr_assert_eq(memcmp(&address, &back, sizeof back), 0);
}

Test(address, refuses_bad_forms) {
    static const char *const texts[] = {
        "",        ":",           "host",      "host:",     "host:0",    "host:65536",
        "host:-1", "host:5 ",     "fd00::1:5", "[fd00::1]", "[fd00::1:", "[]:5",
        ":5000",   "host:999999", "host:5x",   "[fd00::1]5"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct net_address address;
        int count = -7;
        cr_assert_eq(net_address_parse(texts[i], &address, 1, &count), ROTA_ERR_ARGUMENT, "%s",
                     texts[i]);
        cr_assert_eq(count, -7);
    }
}

Test(address, loopback) {
    struct net_address address = parse_one("127.0.1.1:5");
    cr_assert(net_address_is_loopback(&address));
    address = parse_one("[::1]:5");
    cr_assert(net_address_is_loopback(&address));
    address = parse_one("[::ffff:127.0.0.1]:5");
    cr_assert_eq(address.family, AF_INET);
    cr_assert(net_address_is_loopback(&address));
    address = parse_one("192.0.2.7:5");
    cr_assert_not(net_address_is_loopback(&address));
}

static rota_status interfaces(const char *value, struct net_address *addresses, int *count) {
    struct settings *settings;
    if (value != NULL)
        setenv("ROTA_INTERFACE", value, 1);
    cr_assert_eq(settings_load(&settings), ROTA_OK);
    rota_status status = net_interfaces(settings, addresses, NET_MAX_ADDRESSES, count);
    settings_free(settings);
    return status;
}

Test(address, loopback_is_never_first_choice) {
    struct net_address addresses[NET_MAX_ADDRESSES];
    int count = 0, loopback = 0;
    cr_assert_eq(interfaces(NULL, addresses, &count), ROTA_OK);
    cr_assert_geq(count, 1);
    for (int i = 0; i < count; i++)
        loopback += net_address_is_loopback(&addresses[i]);
    cr_assert(loopback == 0 || loopback == count);
}

Test(address, named_loopback_is_taken) {
    struct net_address addresses[NET_MAX_ADDRESSES];
    int count = 0;
    cr_assert_eq(interfaces("nosuch0,lo", addresses, &count), ROTA_OK);
    cr_assert_geq(count, 1);
    cr_assert(net_address_is_loopback(&addresses[0]));
}

Test(address, C61_unknown_interface_lists_those_found) {
    struct net_address addresses[NET_MAX_ADDRESSES];
    int count = -7;
    cr_assert_eq(interfaces("nosuch0", addresses, &count), ROTA_ERR_SETTING);
    cr_assert_eq(count, -7);
    cr_assert(strstr(error_record()->message, "ROTA_INTERFACE"));
    cr_assert(strstr(error_record()->message, "lo"));
    cr_assert(strstr(error_record()->message, "nosuch0"));
}

Test(address, exclusion) {
    struct net_address all[NET_MAX_ADDRESSES], rest[NET_MAX_ADDRESSES];
    int count = 0, left = 0;
    cr_assert_eq(interfaces("^lo,nosuch0", rest, &left), ROTA_OK);
    for (int i = 0; i < left; i++)
        cr_assert_not(net_address_is_loopback(&rest[i]));
    cr_assert_eq(interfaces("^*", all, &count), ROTA_OK);
    cr_assert_eq(count, 0);
}

Test(address, candidates) {
    struct net_addresses peer = {.local_name = "x"};
    struct net_address address;
    cr_assert_not(net_pick_address(&peer, true, 0, &address));
    peer.inet[0] = parse_one("10.0.0.1:77");
    peer.inet[1] = parse_one("[fd00::1]:77");
    static const char *const same[] = {"127.0.0.1:77", "[::1]:77", "10.0.0.1:77", "[fd00::1]:77"};
    for (int host = 0; host < 2; host++) {
        int n = 0;
        for (; net_pick_address(&peer, host == 0, n, &address); n++) {
            char text[NET_ADDRESS_TEXT];
            net_address_text(&address, text);
            cr_assert_str_eq(text, same[host == 0 ? n : n + 2]);
        }
        cr_assert_eq(n, host == 0 ? 4 : 2);
    }
    cr_assert_not(net_pick_address(&peer, true, -1, &address));
}

Test(address, hostile_announcements) {
    struct net_addresses peer = {.local_name = "x"};
    cr_assert(net_addresses_valid(&peer));
    peer.inet[0].family = 77;
    peer.inet[0].port = 1;
    cr_assert_not(net_addresses_valid(&peer));
    peer.inet[0].family = AF_INET;
    cr_assert(net_addresses_valid(&peer));
    peer.inet[0].port = 0;
    cr_assert_not(net_addresses_valid(&peer));
    peer.inet[0].family = 0;
    memset(peer.local_name, 'a', sizeof peer.local_name);
    cr_assert_not(net_addresses_valid(&peer));
}
