#include "cluster.h"

#include "base/clock.h"
#include "base/cpu.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

void cluster_fail(const char *file, int line, const char *condition) {
    fprintf(stderr, "%s:%d: failed: %s\n", file, line, condition);
    fflush(stderr);
    abort();
}

static void on_arrived(void *owner) {
    ((struct cluster_owner *)owner)->arrived++;
}
static void on_writable(void *owner) {
    ((struct cluster_owner *)owner)->writable++;
}
static void on_connected(void *context, struct transport *transport, int peer) {
    struct cluster_rank *rank = context;
    REQUIRE(peer != rank->host.rank);
    (void)transport;
    rank->connected++;
}
static void on_unreachable(void *context, struct transport *transport, int peer, int system_error,
                           const char *text) {
    struct cluster_rank *rank = context;
    (void)transport, (void)peer, (void)system_error;
    rank->unreachable++;
    rank->text = text;
}
static void on_failed(void *context, struct transport *transport, int peer, int system_error,
                      const char *evidence) {
    struct cluster_rank *rank = context;
    (void)transport, (void)peer, (void)system_error;
    rank->failed++;
    rank->text = evidence;
}

static void rank_open(struct cluster *cluster, int r) {
    struct cluster_rank *rank = &cluster->ranks[r];
    rank->line = aligned_alloc(128, sizeof *rank->line);
    REQUIRE(rank->line);
    memset(rank->line, 0, sizeof *rank->line);
    rank->identity = (struct net_identity){
        .job = {7, 7, 7}, .rank = r, .incarnation = 1000 + (uint64_t)r, .protocol_last = 1};
    for (int p = 0; p < cluster->n; p++)
        rank->peers[p] = (struct transport_peer){.rank = p,
                                                 .same_host = true,
                                                 .incarnation = 1000 + (uint64_t)p,
                                                 .addresses = &rank->addresses[p]};
    rank->host = (struct transport_host){.rank = r,
                                         .nranks = cluster->n,
                                         .cores = cpu_usable_cores(),
                                         .identity = &rank->identity,
                                         .settings = cluster->settings,
                                         .peers = rank->peers,
                                         .context = rank,
                                         .arrived = on_arrived,
                                         .writable = on_writable,
                                         .connected = on_connected,
                                         .unreachable = on_unreachable,
                                         .peer_failed = on_failed};
    REQUIRE(doorbell_open(&rank->host.bell, rank->line) == ROTA_OK);
    REQUIRE(transport_shm.open(&rank->host, &rank->transport) == ROTA_OK);
    REQUIRE(rank->host.bell.line != rank->line);
}

void cluster_open(struct cluster *cluster, int n) {
    *cluster = (struct cluster){.n = n};
    cluster->ranks = calloc((size_t)n, sizeof *cluster->ranks);
    REQUIRE(cluster->ranks && n <= CLUSTER_MAX);
    REQUIRE(settings_load(&cluster->settings) == ROTA_OK);
    for (int r = 0; r < n; r++)
        rank_open(cluster, r);
}

static int duplicate(int fd) {
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    REQUIRE(copy >= 0);
    return copy;
}

void cluster_connect(struct cluster *cluster, int a, int b, const int *descriptors) {
    int sockets[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets) == 0);
    int own[2][NET_MAX_DESCRIPTORS];
    int ranks[2] = {a, b}, noffered[2];
    for (int i = 0; i < 2; i++) {
        struct transport *transport = cluster->ranks[ranks[i]].transport;
        REQUIRE(transport_shm.admit(transport, ranks[!i]));
        noffered[i] = transport_shm.offer(transport, ranks[!i], own[i]);
        REQUIRE(noffered[i] == 3);
        own[i][0] = duplicate(i == 1 && descriptors ? descriptors[0] : own[i][0]);
        own[i][1] = duplicate(i == 1 && descriptors ? descriptors[1] : own[i][1]);
        own[i][2] = duplicate(own[i][2]);
    }
    for (int i = 0; i < 2; i++)
        transport_shm.accept(cluster->ranks[ranks[i]].transport, ranks[!i], sockets[i], own[!i],
                             noffered[!i]);
    for (int turn = 0; turn < 3; turn++)
        for (int i = 0; i < 2; i++)
            transport_shm.progress(cluster->ranks[ranks[i]].transport, 10);
}

void cluster_connect_all(struct cluster *cluster) {
    for (int a = 0; a < cluster->n; a++)
        for (int b = a + 1; b < cluster->n; b++)
            cluster_connect(cluster, a, b, NULL);
    for (int r = 0; r < cluster->n; r++)
        REQUIRE(cluster->ranks[r].connected == cluster->n - 1);
}

void cluster_progress(struct cluster *cluster) {
    for (int r = 0; r < cluster->n; r++)
        transport_shm.progress(cluster->ranks[r].transport, 1000);
}

void cluster_close(struct cluster *cluster) {
    for (int r = 0; r < cluster->n; r++) {
        struct cluster_rank *rank = &cluster->ranks[r];
        transport_shm.close(rank->transport);
        REQUIRE(rank->host.bell.line == rank->line);
        doorbell_close(&rank->host.bell);
        free(rank->line);
    }
    settings_free(cluster->settings);
    free(cluster->ranks);
}

static bool wait_pause(struct native_wait *wait, bool (*ready)(const void *arg), const void *arg) {
    struct cluster_wait *own = (struct cluster_wait *)wait;
    if (own->impatient) {
        own->stopped = true;
        return false;
    }
    wait->turns++;
    if (own->crowded || wait->turns % 64 == 0) {
        if (wait->turns % 64 == 0 && clock_passed(own->deadline_ns)) {
            own->stopped = true;
            return false;
        }
        if (!ready(arg))
            sched_yield();
    }
    return true;
}

void cluster_wait_init(struct cluster_wait *wait) {
    *wait = (struct cluster_wait){.wait = {.pause = wait_pause, .waiting_for = -1},
                                  .deadline_ns = clock_deadline(60000)};
}

void cluster_run(int n, void (*body)(struct cluster *cluster, int rank, void *arg), void *arg) {
    struct cluster cluster;
    cluster_open(&cluster, n);
    cluster_connect_all(&cluster);
    pid_t children[CLUSTER_MAX];
    for (int r = 1; r < n; r++) {
        children[r] = fork();
        REQUIRE(children[r] >= 0);
        if (children[r] == 0) {
            body(&cluster, r, arg);
            _exit(0);
        }
    }
    body(&cluster, 0, arg);
    for (int r = 1; r < n; r++) {
        int status = 0;
        REQUIRE(waitpid(children[r], &status, 0) == children[r]);
        REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    cluster_close(&cluster);
}

struct native_group *cluster_group(struct cluster *cluster, int rank, uint32_t comm, int n) {
    int members[CLUSTER_MAX];
    for (int i = 0; i < n; i++)
        members[i] = i;
    struct native_group *group = NULL;
    struct transport *transport = cluster->ranks[rank].transport;
    REQUIRE(shm_native.group_open(transport, comm, 1, members, n, rank, &group) == ROTA_OK);
    int64_t deadline = clock_deadline(20000);
    enum transport_result result;
    while ((result = shm_native.group_connect(group)) == TRANSPORT_AGAIN) {
        REQUIRE(!clock_passed(deadline));
        sched_yield();
    }
    REQUIRE(result == TRANSPORT_OK);
    return group;
}
