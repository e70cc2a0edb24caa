/* The handshake between a listener and dials of one process, and what strangers can do to it. */
#include "net/handshake.h"
#include "base/clock.h"
#include "base/error.h"
#include "net/proof.h"
#include "net/socket.h"
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define SECOND 1000000000ll

struct world {
    struct net_identity server, client;
    struct net_gate gate;
    struct net_listener *listener;
    struct net_addresses addresses;
    enum net_verdict verdict;
    int offer[NET_MAX_DESCRIPTORS], noffer;
    /* what was admitted last */
    int admitted, socket, received[NET_MAX_DESCRIPTORS], nreceived;
    struct net_hello hello;
};

static const struct net_identity *find(void *context, const struct net_hello *hello) {
    struct world *world = context;
    return memcmp(hello->job, world->server.job, 16) == 0 ? &world->server : NULL;
}

static enum net_verdict judge(void *context, const struct net_hello *hello, int *descriptors,
                              int *ndescriptors) {
    struct world *world = context;
    (void)hello;
    memcpy(descriptors, world->offer, sizeof world->offer);
    *ndescriptors = world->noffer;
    return world->verdict;
}

static void admit(void *context, const struct net_hello *hello, int socket, const int *descriptors,
                  int ndescriptors) {
    struct world *world = context;
    world->admitted++;
    world->hello = *hello;
    world->socket = socket;
    world->nreceived = ndescriptors;
    for (int i = 0; i < ndescriptors; i++)
        world->received[i] = descriptors[i];
}

static int count_descriptors(void) {
    DIR *folder = opendir("/proc/self/fd");
    int n = 0;
    while (readdir(folder) != NULL)
        n++;
    closedir(folder);
    return n;
}

static struct world *world_open(void) {
    struct world *world = calloc(1, sizeof *world);
    net_random(world->server.key, sizeof world->server.key);
    net_random(world->server.job, sizeof world->server.job);
    world->server.protocol_first = world->server.protocol_last = 1;
    world->server.agreement = 5;
    world->client = world->server;
    world->server.rank = 1;
    world->server.incarnation = 77;
    world->client.incarnation = 99;
    world->gate = (struct net_gate){.context = world, .find = find, .judge = judge, .admit = admit};
    world->socket = -1;
    cr_assert_eq(net_listener_open(NULL, &world->gate, &world->addresses, &world->listener),
                 ROTA_OK);
    return world;
}

static void world_close(struct world *world) {
    net_listener_close(world->listener);
    if (world->socket >= 0)
        close(world->socket);
    free(world);
}

static struct net_target target_of(const struct world *world, bool local) {
    struct net_target target = {.local_name = world->addresses.local_name};
    if (!local)
        cr_assert(net_pick_address(&world->addresses, true, 0, &target.inet));
    return target;
}

/* Drives both sides until the dial ends. */
static rota_status drive(struct world *world, struct net_dial *dial, struct net_answer *answer) {
    for (;;) {
        bool finished = false;
        uint32_t events;
        rota_status status = net_dial_step(dial, &finished, answer);
        if (status != ROTA_OK || finished)
            return status;
        struct pollfd fds[2] = {{.fd = net_listener_descriptor(world->listener), .events = POLLIN},
                                {.fd = net_dial_descriptor(dial, &events)}};
        fds[1].events = (short)events;
        poll(fds, 2, 20);
        net_listener_step(world->listener);
    }
}

static rota_status dial_world(struct world *world, bool local, struct net_answer *answer,
                              int *socket) {
    struct net_target target = target_of(world, local);
    struct net_dial *dial;
    rota_status status = net_dial_start(&world->client, &target, 1, NET_PURPOSE_DATA, NULL, 0,
                                        clock_now_ns() + 3 * SECOND, &dial);
    if (status != ROTA_OK)
        return status;
    status = drive(world, dial, answer);
    if (status == ROTA_OK)
        *socket = net_dial_take(dial, NULL, NULL);
    net_dial_free(dial);
    for (int i = 0; i < 20 && status == ROTA_OK && world->admitted == 0; i++)
        net_listener_step(world->listener);
    return status;
}

/* Connections begin without pacing and take the system's way when they are told that it is far. */
static void check_congestion_control(int socket_) {
    char usual[16] = "", name[16] = "";
    socklen_t length = sizeof usual;
    int fresh = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(getsockopt(fresh, IPPROTO_TCP, TCP_CONGESTION, usual, &length), 0);
    close(fresh);
    length = sizeof name;
    cr_assert_eq(getsockopt(socket_, IPPROTO_TCP, TCP_CONGESTION, name, &length), 0);
    cr_assert_str_eq(name, "reno");
    net_far(socket_);
    length = sizeof name;
    cr_assert_eq(getsockopt(socket_, IPPROTO_TCP, TCP_CONGESTION, name, &length), 0);
    cr_assert_str_eq(name, usual);
}

Test(handshake, both_kinds_of_socket) {
    int before = count_descriptors();
    for (int local = 0; local < 2; local++) {
        struct world *world = world_open();
        struct net_answer answer;
        int socket = -1;
        cr_assert_eq(dial_world(world, local == 1, &answer, &socket), ROTA_OK, "%s",
                     error_record()->message);
        cr_assert_eq(world->admitted, 1);
        cr_assert_eq(world->hello.incarnation, 99);
        cr_assert_eq(world->hello.purpose, NET_PURPOSE_DATA);
        cr_assert_eq(answer.incarnation, 77);
        cr_assert_eq(answer.protocol, 1);
        int flags = fcntl(socket, F_GETFL);
        cr_assert(flags & O_NONBLOCK);
        cr_assert(fcntl(socket, F_GETFD) & FD_CLOEXEC);
        cr_assert(fcntl(world->socket, F_GETFL) & O_NONBLOCK);
        cr_assert(fcntl(world->socket, F_GETFD) & FD_CLOEXEC);
        char text[6] = "";
        cr_assert_eq(net_write_all(socket, "hello", 6, clock_deadline(1000)), ROTA_OK);
        cr_assert_eq(net_read_all(world->socket, text, 6, clock_deadline(1000)), ROTA_OK);
        cr_assert_str_eq(text, "hello");
        if (local == 0) {
            check_congestion_control(socket);
            check_congestion_control(world->socket);
        }
        close(socket);
        cr_assert_eq(net_read_all(world->socket, text, 1, clock_deadline(1000)), ROTA_ERR_PEER);
        world_close(world);
    }
    cr_assert_eq(count_descriptors(), before);
}

Test(handshake, wrong_key_never_enters) {
    struct world *world = world_open();
    struct net_answer answer;
    int socket;
    world->client.key[31] ^= 1;
    cr_assert_eq(dial_world(world, false, &answer, &socket), ROTA_ERR_FORMAT);
    cr_assert_eq(dial_world(world, true, &answer, &socket), ROTA_ERR_FORMAT);
    cr_assert(strstr(error_record()->message, "key"));
    cr_assert_eq(world->admitted, 0);
    world_close(world);
}

Test(handshake, impostor_listener_is_found_out) {
    /* The listener's owner has another key but lets everybody in: its answer proves nothing. */
    struct world *world = world_open();
    struct net_target target = target_of(world, false);
    struct net_dial *dial;
    struct net_answer answer;
    struct net_address address = target.inet;
    net_listener_close(world->listener);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    struct sockaddr_storage storage;
    socklen_t length;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    net_address_to_socket(&address, &storage, &length);
    cr_assert_eq(bind(fd, (struct sockaddr *)&storage, length), 0);
    listen(fd, 1);
    cr_assert_eq(net_dial_start(&world->client, &target, 1, NET_PURPOSE_DATA, NULL, 0,
                                clock_deadline(2000), &dial),
                 ROTA_OK);
    int peer = accept(fd, NULL, NULL);
    struct net_challenge challenge = {.magic = NET_MAGIC, .protocol_first = 1, .protocol_last = 1};
    struct net_answer_message message = {.answer = {.verdict = NET_GO, .protocol = 1, .rank = 1}};
    send(peer, &challenge, sizeof challenge, 0);
    send(peer, &message, sizeof message, 0);
    bool finished = false;
    rota_status status = ROTA_OK;
    for (int i = 0; i < 100 && status == ROTA_OK; i++) {
        status = net_dial_step(dial, &finished, &answer);
        usleep(1000);
    }
    cr_assert_eq(status, ROTA_ERR_FORMAT);
    cr_assert_not(finished);
    net_dial_free(dial);
    close(peer);
    close(fd);
    free(world);
}

Test(handshake, verdicts_reach_the_dialer) {
    static const enum net_verdict verdicts[] = {NET_REFUSED_CROSSING, NET_REFUSED_TARGET,
                                                NET_REFUSED_SETTINGS, NET_REFUSED_GIVEN_UP};
    int before = count_descriptors();
    struct world *world = world_open();
    for (size_t i = 0; i < sizeof verdicts / sizeof *verdicts; i++) {
        struct net_answer answer;
        int socket;
        world->verdict = verdicts[i];
        cr_assert_eq(dial_world(world, i % 2, &answer, &socket), ROTA_ERR_MISMATCH);
        cr_assert_eq(answer.verdict, verdicts[i]);
        cr_assert_eq(error_record()->peer, 1);
    }
    cr_assert_eq(world->admitted, 0);
    world_close(world);
    cr_assert_eq(count_descriptors(), before);
}

Test(handshake, unknown_job_is_a_target_refusal) {
    struct world *world = world_open();
    struct net_answer answer;
    int socket;
    world->client.job[0] ^= 1;
    cr_assert_eq(dial_world(world, false, &answer, &socket), ROTA_ERR_MISMATCH);
    cr_assert_eq(answer.verdict, NET_REFUSED_TARGET);
    world_close(world);
}

Test(handshake, protocols) {
    struct world *world = world_open();
    struct net_answer answer;
    int socket = -1;
    world->client.protocol_first = 7;
    world->client.protocol_last = 9;
    cr_assert_eq(dial_world(world, false, &answer, &socket), ROTA_ERR_MISMATCH);
    cr_assert_eq(answer.verdict, NET_REFUSED_PROTOCOL);
    cr_assert(strstr(error_record()->message, "1 to 1"));
    cr_assert(strstr(error_record()->message, "7 to 9"));
    world->server.protocol_last = 8;
    cr_assert_eq(dial_world(world, false, &answer, &socket), ROTA_OK);
    cr_assert_eq(answer.protocol, 8);
    close(socket);
    world_close(world);
}

Test(handshake, different_settings_are_refused) {
    struct world *world = world_open();
    struct net_answer answer;
    int socket;
    world->client.agreement = 6;
    cr_assert_eq(dial_world(world, false, &answer, &socket), ROTA_ERR_MISMATCH);
    cr_assert_eq(answer.verdict, NET_REFUSED_SETTINGS);
    world_close(world);
}

Test(handshake, descriptors_both_ways) {
    int before = count_descriptors();
    struct world *world = world_open();
    int there[2], back[2];
    cr_assert_eq(pipe2(there, O_CLOEXEC), 0);
    cr_assert_eq(pipe2(back, O_CLOEXEC), 0);
    world->offer[0] = back[1];
    world->noffer = 1;
    struct net_target target = target_of(world, true);
    struct net_dial *dial;
    struct net_answer answer;
    cr_assert_eq(net_dial_start(&world->client, &target, 1, NET_PURPOSE_DATA, there, 2,
                                clock_deadline(3000), &dial),
                 ROTA_OK);
    cr_assert_eq(drive(world, dial, &answer), ROTA_OK);
    int got[NET_MAX_DESCRIPTORS], ngot = 0;
    int socket = net_dial_take(dial, got, &ngot);
    net_dial_free(dial);
    for (int i = 0; i < 20 && world->admitted == 0; i++)
        net_listener_step(world->listener);
    cr_assert_eq(ngot, 1);
    cr_assert_eq(world->nreceived, 2);
    char letter = 0;
    cr_assert_eq(write(world->received[1], "x", 1), 1);
    cr_assert_eq(read(there[0], &letter, 1), 1);
    cr_assert_eq(letter, 'x');
    cr_assert_eq(write(got[0], "y", 1), 1);
    cr_assert_eq(read(back[0], &letter, 1), 1);
    cr_assert_eq(letter, 'y');
    cr_assert(fcntl(got[0], F_GETFD) & FD_CLOEXEC);
    cr_assert(fcntl(world->received[0], F_GETFD) & FD_CLOEXEC);
    int all[] = {
        got[0], world->received[0], world->received[1], there[0], there[1], back[0], back[1],
        socket};
    net_close_all(all, 8);
    world_close(world);
    cr_assert_eq(count_descriptors(), before);
}

/* -- strangers ---------------------------------------------------------------------------------
 */

static int raw_connect(const struct world *world) {
    struct net_target target = target_of(world, false);
    struct sockaddr_storage storage;
    socklen_t length;
    net_address_to_socket(&target.inet, &storage, &length);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(connect(fd, (struct sockaddr *)&storage, length), 0);
    return fd;
}

static void steps(struct world *world, int ms) {
    int64_t end = clock_deadline(ms);
    while (!clock_passed(end)) {
        struct pollfd one = {.fd = net_listener_descriptor(world->listener), .events = POLLIN};
        poll(&one, 1, 5);
        net_listener_step(world->listener);
    }
}

/* Whether the other side has closed: end of file or reset, after what it had sent. */
static bool is_closed(int fd) {
    char bytes[256];
    for (;;) {
        ssize_t got = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (got == 0)
            return true;
        if (got < 0)
            return errno != EAGAIN;
    }
}

static void fill_hello(const struct world *world, const struct net_challenge *challenge,
                       struct net_hello_message *message) {
    memset(message, 0, sizeof *message);
    message->hello.magic = NET_MAGIC;
    message->hello.protocol_first = message->hello.protocol_last = 1;
    memcpy(message->hello.job, world->client.job, 16);
    message->hello.target_rank = 1;
    message->hello.purpose = NET_PURPOSE_DATA;
    message->hello.agreement = 5;
    net_proof_hello(world->client.key, challenge, message, message->mac);
}

static void read_challenge(struct world *world, int fd, struct net_challenge *challenge) {
    steps(world, 20);
    cr_assert_eq(recv(fd, challenge, sizeof *challenge, MSG_DONTWAIT), (ssize_t)sizeof *challenge);
    cr_assert_eq(challenge->magic, NET_MAGIC);
}

Test(handshake, C67_garbage_is_dropped_at_once) {
    struct world *world = world_open();
    static char noise[65536];
    net_random(noise, sizeof noise);
    int a = raw_connect(world), b = raw_connect(world), c = raw_connect(world);
    cr_assert_gt(send(a, noise, sizeof noise, MSG_DONTWAIT | MSG_NOSIGNAL), 0);
    cr_assert_gt(send(b, "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL), 0);
    struct net_hello_message lie = {.hello = {.magic = NET_MAGIC,
                                              .rank = INT32_MAX,
                                              .protocol_last = 65535,
                                              .next_frame = INT64_MAX,
                                              .purpose = NET_PURPOSE_DATA}};
    memcpy(lie.hello.job, world->server.job, 16);
    cr_assert_gt(send(c, &lie, sizeof lie, MSG_NOSIGNAL), 0);
    steps(world, 50);
    cr_assert(is_closed(a));
    cr_assert(is_closed(b));
    cr_assert(is_closed(c));
    cr_assert_eq(world->admitted, 0);
    int all[] = {a, b, c};
    net_close_all(all, 3);
    world_close(world);
}

Test(handshake, C67_replay_is_dropped) {
    struct world *world = world_open();
    struct net_challenge challenge;
    struct net_hello_message message;
    int first = raw_connect(world);
    read_challenge(world, first, &challenge);
    fill_hello(world, &challenge, &message);
    cr_assert_gt(send(first, &message, sizeof message, 0), 0);
    steps(world, 20);
    cr_assert_eq(world->admitted, 1);
    int second = raw_connect(world);
    cr_assert_gt(send(second, &message, sizeof message, 0), 0);
    steps(world, 20);
    cr_assert_eq(world->admitted, 1);
    cr_assert(is_closed(second));
    cr_assert_not(is_closed(first));
    close(first);
    close(second);
    world_close(world);
}

Test(handshake, byte_by_byte) {
    struct world *world = world_open();
    struct net_challenge challenge;
    struct net_hello_message message;
    int fd = raw_connect(world);
    read_challenge(world, fd, &challenge);
    fill_hello(world, &challenge, &message);
    for (size_t i = 0; i < sizeof message; i++) {
        cr_assert_eq(world->admitted, 0);
        cr_assert_eq(send(fd, (char *)&message + i, 1, 0), 1);
        steps(world, 1);
    }
    steps(world, 20);
    cr_assert_eq(world->admitted, 1);
    close(fd);
    world_close(world);
}

Test(handshake, every_changed_bit_of_the_hello_is_noticed) {
    struct world *world = world_open();
    for (size_t byte = 4; byte < sizeof(struct net_hello_message); byte += 7) {
        struct net_challenge challenge;
        struct net_hello_message message;
        int fd = raw_connect(world);
        read_challenge(world, fd, &challenge);
        fill_hello(world, &challenge, &message);
        ((char *)&message)[byte] ^= 0x10;
        cr_assert_gt(send(fd, &message, sizeof message, 0), 0);
        steps(world, 5);
        cr_assert_eq(world->admitted, 0);
        cr_assert(is_closed(fd));
        close(fd);
    }
    world_close(world);
}

Test(handshake, C67_silent_strangers_do_not_keep_a_peer_out) {
    struct world *world = world_open();
    int silent[100];
    for (int i = 0; i < 100; i++) {
        silent[i] = raw_connect(world);
        net_listener_step(world->listener);
    }
    struct net_answer answer;
    int socket = -1;
    int64_t begun = clock_now_ns();
    cr_assert_eq(dial_world(world, false, &answer, &socket), ROTA_OK, "%s",
                 error_record()->message);
    cr_assert_lt(clock_now_ns() - begun, 2 * SECOND);
    close(socket);
    net_close_all(silent, 100);
    world_close(world);
}

Test(handshake, silent_connection_ends_by_the_deadline) {
    struct world *world = world_open();
    int fd = raw_connect(world);
    steps(world, 50);
    int ms = net_listener_step(world->listener);
    cr_assert(ms > 4000 && ms <= 5000, "%d", ms);
    cr_assert_not(is_closed(fd));
    steps(world, 5100);
    cr_assert(is_closed(fd));
    cr_assert_eq(net_listener_step(world->listener), -1);
    close(fd);
    world_close(world);
}

Test(handshake, out_of_descriptors_is_survived) {
    struct world *world = world_open();
    struct net_answer answer;
    int held[64], n = 0, socket = -1;
    struct rlimit limit = {.rlim_cur = 64, .rlim_max = 1024};
    int waiting = raw_connect(world);
    setrlimit(RLIMIT_NOFILE, &limit);
    while (n < 64 && (held[n] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
        n++;
    int ms = net_listener_step(world->listener);
    cr_assert(ms > 0 && ms <= 50, "%d", ms);
    cr_assert_eq(dial_world(world, false, &answer, &socket), ROTA_ERR_SYSTEM);
    cr_assert_eq(error_record()->system_error, EMFILE);
    net_close_all(held, n);
    usleep(60000);
    cr_assert_eq(dial_world(world, false, &answer, &socket), ROTA_OK);
    close(socket);
    close(waiting);
    world_close(world);
}

/* -- dialing -----------------------------------------------------------------------------------
 */

Test(handshake, refused_connection_names_address_and_error) {
    struct world *world = world_open();
    struct net_target target = target_of(world, false);
    struct net_dial *dial = NULL;
    struct net_answer answer;
    char text[NET_ADDRESS_TEXT];
    net_address_text(&target.inet, text);
    net_listener_close(world->listener);
    rota_status status = net_dial_start(&world->client, &target, 1, NET_PURPOSE_DATA, NULL, 0,
                                        clock_deadline(1000), &dial);
    for (int i = 0; i < 100 && status == ROTA_OK; i++) {
        bool finished;
        status = net_dial_step(dial, &finished, &answer);
        usleep(1000);
    }
    cr_assert_eq(status, ROTA_ERR_SYSTEM);
    cr_assert_eq(error_record()->system_error, ECONNREFUSED);
    cr_assert_str_eq(error_record()->address, text);
    cr_assert(strstr(error_record()->message, text));
    net_dial_free(dial);
    free(world);
}

Test(handshake, silent_acceptor_is_a_timeout) {
    struct world *world = world_open();
    struct net_target target = target_of(world, false);
    struct net_dial *dial;
    struct net_answer answer;
    cr_assert_eq(net_dial_start(&world->client, &target, 1, NET_PURPOSE_DATA, NULL, 0,
                                clock_deadline(100), &dial),
                 ROTA_OK);
    rota_status status = ROTA_OK;
    for (int i = 0; i < 500 && status == ROTA_OK; i++) {
        bool finished;
        status = net_dial_step(dial, &finished, &answer);
        usleep(1000);
    }
    cr_assert_eq(status, ROTA_ERR_TIMEOUT);
    cr_assert_geq(error_record()->waited_ms, 99);
    net_dial_free(dial);
    world_close(world);
}

Test(handshake, C63_port_range) {
    struct settings *settings;
    struct world *world = world_open();
    struct net_listener *listeners[3] = {0};
    struct net_addresses addresses;
    unsigned base = 0;
    rota_status status = ROTA_OK;
    /* A range of two free ports, found by trying. */
    for (base = 23000; base < 40000; base += 2) {
        char range[32];
        snprintf(range, sizeof range, "%u-%u", base, base + 1);
        setenv("ROTA_PORT_RANGE", range, 1);
        cr_assert_eq(settings_load(&settings), ROTA_OK);
        int opened = 0;
        while (opened < 3 && (status = net_listener_open(settings, &world->gate, &addresses,
                                                         &listeners[opened])) == ROTA_OK) {
            cr_assert(addresses.inet[0].port == base || addresses.inet[0].port == base + 1);
            opened++;
        }
        settings_free(settings);
        for (int i = 0; i < opened; i++)
            net_listener_close(listeners[i]);
        cr_assert_lt(opened, 3);
        if (opened == 2)
            break;
    }
    cr_assert_eq(status, ROTA_ERR_SYSTEM);
    cr_assert(strstr(error_record()->message, "no free port in the range"));
    world_close(world);
}

Test(handshake, bad_port_ranges) {
    static const char *const ranges[] = {"5",   "5-",      "-5",   "6-5",     "0-5",
                                         "a-b", "1-65536", "1-2x", "1 - 2 3", "99999999999-1"};
    struct world *world = world_open();
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        struct settings *settings;
        struct net_listener *listener = NULL;
        struct net_addresses addresses;
        setenv("ROTA_PORT_RANGE", ranges[i], 1);
        rota_status status = settings_load(&settings); /* may find it already */
        if (status == ROTA_OK) {
            status = net_listener_open(settings, &world->gate, &addresses, &listener);
            settings_free(settings);
        }
        cr_assert_eq(status, ROTA_ERR_SETTING, "%s", ranges[i]);
        cr_assert(strstr(error_record()->message, "ROTA_PORT_RANGE"));
        cr_assert_null(listener);
    }
    world_close(world);
}

Test(handshake, known_place) {
    struct world *world = world_open();
    struct net_listener *listener = NULL, *second = NULL;
    cr_assert_eq(net_listener_open_at(NULL, "rota-test-known-place", &world->gate, &listener),
                 ROTA_OK);
    cr_assert_eq(net_listener_open_at(NULL, "rota-test-known-place", &world->gate, &second),
                 ROTA_ERR_SYSTEM);
    cr_assert_eq(error_record()->system_error, EADDRINUSE);
    net_listener_close(listener);
    cr_assert_eq(net_listener_open_at(NULL, "rota-test-known-place", &world->gate, &second),
                 ROTA_OK);
    net_listener_close(second);
    world_close(world);
}
