/* C67: strangers at every socket on which ranks listen, while the ranks meet and while they work.
 *
 * What strangers send: bytes without sense, a request of another protocol, the first message of a
 * handshake without the secret, one full of absurd numbers, what a real rank sent before (taken off
 * the wire), nothing at all for a while, and a mere connect. */
#include "kit.h"
#include "net/proof.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { JUNK_BYTES = 64 * 1024, RECORDED = 64, RECORDED_BYTES = 2048, MIB = 1 << 20 };

/* What all strangers share. */
struct plot {
    _Atomic uint64_t connections;
    _Atomic int pause; /* they rest */
    _Atomic int nrecorded;
    struct {
        uint16_t from, to; /* ports */
        uint32_t next;     /* sequence number expected */
        size_t bytes;
        unsigned char data[RECORDED_BYTES];
    } recorded[RECORDED];
};

/* -- whom to attack ---------------------------------------------------------------------------- */

struct target {
    int port; /* 0: a local name */
    char name[108];
};

enum { TARGETS = 64 };

static int find_ports(const char *path, struct target *targets, int count) {
    FILE *table = fopen(path, "re");
    char line[512];
    while (table != NULL && count < TARGETS && fgets(line, sizeof(line), table) != NULL) {
        unsigned port, state;
        if (sscanf(line, " %*d: %*[0-9A-F]:%x %*[0-9A-F]:%*x %x", &port, &state) == 2 &&
            state == 0x0A)
            targets[count++] = (struct target){.port = (int)port};
    }
    if (table != NULL)
        fclose(table);
    return count;
}

static int find_targets(struct target *targets) {
    int count = find_ports("/proc/self/net/tcp", targets, 0);
    count = find_ports("/proc/self/net/tcp6", targets, count);
    FILE *table = fopen("/proc/self/net/unix", "re");
    char line[512];
    while (table != NULL && count < TARGETS && fgets(line, sizeof(line), table) != NULL) {
        struct target target = {.port = 0};
        unsigned flags;
        if (sscanf(line, "%*s %*s %*s %x %*s %*s %*s @%100s", &flags, target.name) == 2 &&
            (flags & 0x10000) != 0)
            targets[count++] = target;
    }
    if (table != NULL)
        fclose(table);
    return count;
}

static int reach(const struct target *target) {
    struct sockaddr_in inet = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)target->port),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    memcpy(local.sun_path + 1, target->name, strlen(target->name));
    socklen_t length =
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(target->name));
    int fd = socket(target->port != 0 ? AF_INET : AF_UNIX,
                    SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int failed = target->port != 0 ? connect(fd, (struct sockaddr *)&inet, sizeof(inet))
                                   : connect(fd, (struct sockaddr *)&local, length);
    struct pollfd ready = {.fd = fd, .events = POLLOUT};
    if (failed != 0 && (errno != EINPROGRESS || poll(&ready, 1, 100) != 1)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* -- what to send ------------------------------------------------------------------------------ */

enum attack { JUNK, HTTP, WRONG_SECRET, ABSURD, REPLAY, SILENCE, SCAN, ATTACKS };

static void fill_hello(struct net_hello_message *message, const rota_unique_id *id, bool absurd) {
    memset(message, absurd ? 0xff : 0, sizeof(*message));
    message->hello.magic = NET_MAGIC;
    message->hello.protocol_first = NET_PROTOCOL_FIRST;
    message->hello.protocol_last = NET_PROTOCOL_LAST;
    message->hello.purpose = absurd ? NET_PURPOSE_RENDEZVOUS : NET_PURPOSE_DATA + 2;
    message->hello.rank = absurd ? INT32_MAX : 1;
    message->hello.target_rank = absurd ? INT32_MAX : 0;
    message->hello.next_frame = absurd ? INT64_MAX : 0;
    if (id != NULL)
        memcpy(message->hello.job, id->bytes + 8 + NET_KEY_BYTES, sizeof(message->hello.job));
    if (getrandom(message->nonce, sizeof(message->nonce), 0) < 0 || absurd)
        return;
    /* The right proof, by another key. */
    struct net_challenge challenge = {.magic = NET_MAGIC};
    uint8_t key[NET_KEY_BYTES] = "not the secret of this job";
    net_proof_hello(key, &challenge, message, message->mac);
}

static void send_some(int fd, const void *data, size_t bytes) {
    (void)!send(fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void attack(struct plot *plot, int fd, enum attack kind, const rota_unique_id *id) {
    static unsigned char junk[JUNK_BYTES];
    static const char request[] = "GET / HTTP/1.1\r\nHost: rank0\r\nUser-Agent: curl\r\n\r\n";
    struct {
        struct net_hello_message message;
        uint32_t magic;
        uint16_t type, unused;
        uint64_t bytes;
    } absurd;
    switch (kind) {
    case JUNK:
        if (getrandom(junk, sizeof(junk), 0) > 0)
            send_some(fd, junk, sizeof(junk));
        break;
    case HTTP:
        send_some(fd, request, sizeof(request) - 1);
        break;
    case WRONG_SECRET:
        fill_hello(&absurd.message, id, false);
        send_some(fd, &absurd.message, sizeof(absurd.message));
        break;
    case ABSURD:
        fill_hello(&absurd.message, id, true);
        absurd.magic = NET_MAGIC;
        absurd.type = 1;
        absurd.bytes = INT64_MAX;
        send_some(fd, &absurd, sizeof(absurd));
        break;
    case REPLAY: {
        int n = atomic_load(&plot->nrecorded), chosen = n > 0 ? rand() % n : 0;
        if (n > 0)
            send_some(fd, plot->recorded[chosen].data, plot->recorded[chosen].bytes);
        break;
    }
    case SILENCE:
        kit_sleep_ms(20);
        break;
    default:
        break;
    }
}

/* Looking for targets costs the strangers more than visiting them, and it is the visits that are
 * tested. New ports come while ranks meet; later all are known. */
static bool looks_again(int64_t began_ms, int64_t looked_ms, int count) {
    enum { MEETING_MS = 4000, LATER_MS = 2000 };
    int64_t now = kit_now_ms();
    return count == 0 || now - began_ms < MEETING_MS || now - looked_ms >= LATER_MS;
}

/* Attacks everybody in turn, for ever. */
static pid_t start_stranger(struct plot *plot, const struct kit_job *job, int pause_ms,
                            bool scans) {
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    srand((unsigned)getpid());
    struct target targets[TARGETS];
    int64_t began_ms = kit_now_ms(), looked_ms = 0;
    int count = 0;
    for (unsigned turn = 0;; turn++) {
        if (looks_again(began_ms, looked_ms, count)) {
            count = find_targets(targets);
            looked_ms = kit_now_ms();
        }
        for (int i = 0; i < count; i++) {
            while (atomic_load(&plot->pause))
                kit_sleep_ms(5);
            int fd = reach(&targets[i]);
            if (fd < 0)
                continue;
            atomic_fetch_add(&plot->connections, 1);
            attack(plot, fd, scans ? SCAN : (enum attack)((turn + (unsigned)i) % ATTACKS),
                   kit_job_id(job));
            if (pause_ms > 0)
                kit_sleep_ms(pause_ms);
            close(fd);
        }
        if (count == 0)
            kit_sleep_ms(1);
    }
}

/* -- what real ranks sent ---------------------------------------------------------------------- */

static void record(struct plot *plot, const struct tcphdr *tcp, const unsigned char *data,
                   size_t bytes) {
    int n = atomic_load(&plot->nrecorded), i = 0;
    uint32_t at = ntohl(tcp->seq);
    while (i < n && (plot->recorded[i].from != tcp->source || plot->recorded[i].to != tcp->dest))
        i++;
    if (i == RECORDED)
        return;
    if (i == n) {
        plot->recorded[i].from = tcp->source;
        plot->recorded[i].to = tcp->dest;
        plot->recorded[i].next = at;
        plot->recorded[i].bytes = 0;
        atomic_store(&plot->nrecorded, n + 1);
    }
    size_t room = RECORDED_BYTES - plot->recorded[i].bytes;
    if (at != plot->recorded[i].next || bytes > room)
        return;
    memcpy(plot->recorded[i].data + plot->recorded[i].bytes, data, bytes);
    plot->recorded[i].bytes += bytes;
    plot->recorded[i].next += (uint32_t)bytes;
}

/* Takes the beginnings of the ranks' connections off the loopback interface. */
static pid_t start_eavesdropper(struct plot *plot) {
    int fd = socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, htons(ETH_P_IP));
    if (fd < 0)
        kit_skip("packets cannot be read: %s", strerror(errno));
    pid_t pid = fork();
    if (pid != 0) {
        close(fd);
        return pid;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
        static unsigned char packet[1 << 17];
        struct sockaddr_ll from;
        socklen_t length = sizeof(from);
        ssize_t got = recvfrom(fd, packet, sizeof(packet), 0, (struct sockaddr *)&from, &length);
        const struct iphdr *ip = (const struct iphdr *)packet;
        if (got < (ssize_t)sizeof(*ip) || from.sll_pkttype == PACKET_OUTGOING ||
            ip->protocol != IPPROTO_TCP)
            continue;
        const struct tcphdr *tcp = (const struct tcphdr *)(packet + ip->ihl * 4u);
        size_t heads = ip->ihl * 4u + tcp->doff * 4u, total = ntohs(ip->tot_len);
        if (total > heads && (size_t)got >= total && tcp->dest != 0)
            record(plot, tcp, packet + heads, total - heads);
    }
}

/* -- the ranks --------------------------------------------------------------------------------- */

static uint64_t resident_bytes(void) {
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file == NULL || fscanf(file, "%*s %llu", &pages) != 1)
        pages = 0;
    if (file != NULL)
        fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Sums of 1 KiB until all are told to stop. Values: memory after a second and in the end; the last
 * one is the sign to stop. */
static rota_status work(struct kit_seat *seat) {
    enum { COUNT = 256 };
    int32_t in[COUNT], out[COUNT], stop = 0;
    rota_status status = ROTA_OK;
    int64_t began = kit_now_ms();
    _Atomic uint64_t *values = seat->outcome->values;
    for (int round = 0; status == ROTA_OK && stop < seat->nranks; round++) {
        for (int i = 0; i < COUNT; i++)
            in[i] = round + i + seat->rank;
        in[COUNT - 1] = atomic_load(&values[KIT_VALUES - 1]) != 0;
        status = rota_all_reduce(in, out, COUNT, ROTA_INT32, ROTA_SUM, seat->comm, NULL);
        int n = seat->nranks;
        for (int i = 0; status == ROTA_OK && i < COUNT - 1; i++)
            seat->outcome->wrong += out[i] != n * (round + i) + n * (n - 1) / 2;
        stop = out[COUNT - 1];
        atomic_fetch_add(&seat->outcome->rounds, 1);
        if (atomic_load(&values[0]) == 0 && kit_now_ms() - began > 1000)
            atomic_store(&values[0], resident_bytes());
        if (round % 500 == 499 && status == ROTA_OK)
            status = kit_exchange(seat, 3000);
    }
    atomic_store(&values[1], resident_bytes());
    return status;
}

static void stop_work(struct kit_job *job) {
    for (int r = 0; r < job->nranks; r++)
        atomic_store(&job->outcomes[r].values[KIT_VALUES - 1], 1);
}

/* AddressSanitizer keeps what was freed for a while. */
#ifdef __SANITIZE_ADDRESS__
#define GROWTH (64 * MIB)
#else
#define GROWTH (16 * MIB)
#endif

static void check_memory(const struct kit_job *job) {
    for (int r = 0; r < job->nranks; r++) {
        uint64_t early = atomic_load(&job->outcomes[r].values[0]);
        uint64_t late = atomic_load(&job->outcomes[r].values[1]);
        CHECK(early > 0 && late < early + GROWTH, "rank %d: memory grew from %llu to %llu bytes", r,
              (unsigned long long)early, (unsigned long long)late);
    }
}

static void C67_attack(void) {
    static const char *const transports[] = {"tcp", NULL};
    struct plot *plot = kit_shared(sizeof(*plot));
    for (int t = 0; t < 2; t++) {
        struct kit_job job = {
            .nranks = 4, .transport = transports[t], .body = work, .timeout_ms = 20000};
        pid_t strangers[4];
        kit_job_prepare(&job);
        pid_t eavesdropper = start_eavesdropper(plot);
        for (int i = 0; i < 4; i++)
            strangers[i] = start_stranger(plot, &job, i % 2, i == 3);
        for (int r = 0; r < 4; r++)
            kit_rank_start(&job, r);
        kit_sleep_ms(3000);
        stop_work(&job);
        kit_job_wait(&job, 30000);
        for (int i = 0; i < 4; i++)
            kill(strangers[i], SIGKILL);
        kill(eavesdropper, SIGKILL);
        kit_expect_success(&job, "under attack");
        check_memory(&job);
        uint64_t connections = atomic_load(&plot->connections);
        CHECK(connections > 300, "only %llu attacks", (unsigned long long)connections);
        CHECK(atomic_load(&plot->nrecorded) > 0 || t > 0, "nothing was recorded");
        for (int r = 0; r < 4; r++) {
            CHECK(job.outcomes[r].init_ms < 10000, "rank %d joined after %lld ms", r,
                  (long long)job.outcomes[r].init_ms);
            CHECK(kit_lines(kit_said(&job, r)) <= 100, "rank %d said %d lines", r,
                  kit_lines(kit_said(&job, r)));
        }
    }
}

/* -- one who knows the secret --------------------------------------------------------------------
 */

/* Whoever knows the secret can disturb the job, but not make a rank crash or fill its memory:
 * proves to be a rank that there is not, and goes on with absurd numbers. */
static pid_t start_insider(struct plot *plot, const struct kit_job *job) {
    static const enum net_purpose purposes[] = {
        NET_PURPOSE_RENDEZVOUS, NET_PURPOSE_TABLE,    NET_PURPOSE_CONTROL, NET_PURPOSE_DATA,
        NET_PURPOSE_DATA + 1,   NET_PURPOSE_DATA + 2, UINT16_MAX};
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (unsigned turn = 0;; turn++) {
        struct target targets[TARGETS];
        int count = find_targets(targets);
        const rota_unique_id *id = kit_job_id(job);
        for (int i = 0; i < count && id != NULL; i++) {
            struct {
                uint32_t magic;
                uint16_t type, unused;
                uint64_t bytes;
                unsigned char body[4096];
            } absurd = {.magic = NET_MAGIC, .type = (uint16_t)(turn % 5), .bytes = INT64_MAX};
            struct net_challenge challenge;
            struct net_hello_message message;
            struct pollfd ready = {.events = POLLIN};
            fill_hello(&message, id, turn % 3 == 0);
            message.hello.magic = NET_MAGIC;
            message.hello.rank = turn % 2 == 0 ? INT32_MAX : (uint32_t)job->nranks;
            message.hello.target_rank = turn % 4;
            message.hello.purpose = (uint16_t)purposes[turn % 7];
            memcpy(message.hello.job, id->bytes + 8 + NET_KEY_BYTES, sizeof(message.hello.job));
            memset(absurd.body, turn % 2 == 0 ? 0xff : 0, sizeof(absurd.body));
            ready.fd = reach(&targets[i]);
            if (ready.fd < 0)
                continue;
            if (poll(&ready, 1, 100) == 1 &&
                recv(ready.fd, &challenge, sizeof(challenge), 0) == (ssize_t)sizeof(challenge)) {
                net_proof_hello(id->bytes + 8, &challenge, &message, message.mac);
                send_some(ready.fd, &message, sizeof(message));
                send_some(ready.fd, &absurd, sizeof(absurd));
                (void)poll(&ready, 1, 5);
                atomic_fetch_add(&plot->connections, 1);
            }
            close(ready.fd);
        }
        kit_sleep_ms(1);
    }
}

static void C67_one_who_knows_the_secret(void) {
    struct plot *plot = kit_shared(sizeof(*plot));
    struct kit_job job = {.nranks = 4, .transport = "tcp", .body = work, .timeout_ms = 20000};
    kit_job_start(&job);
    for (int r = 0; r < 4; r++)
        for (int i = 0; i < 5000 && atomic_load(&job.outcomes[r].stage) < 2; i++)
            kit_sleep_ms(1);
    pid_t insider = start_insider(plot, &job);
    kit_sleep_ms(2500);
    stop_work(&job);
    kit_job_wait(&job, 30000);
    kill(insider, SIGKILL);
    kit_expect_success(&job, "with one who knows the secret");
    check_memory(&job);
    CHECK(atomic_load(&plot->connections) > 50, "only %llu connections",
          (unsigned long long)atomic_load(&plot->connections));
}

/* -- silent ones ------------------------------------------------------------------------------- */

static bool was_closed(int fd) {
    char said[64];
    ssize_t got;
    do
        got = recv(fd, said, sizeof(said), MSG_DONTWAIT);
    while (got > 0);
    return got == 0 || (errno != EAGAIN && errno != EINTR);
}

/* Keeps as many silent connections to everybody as it gets, and makes a new one for each that is
 * closed. */
static pid_t start_crowd(struct plot *plot) {
    enum { CROWD = 300 };
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int held[CROWD];
    memset(held, 0xff, sizeof(held));
    for (;;) {
        struct target targets[TARGETS];
        int count = find_targets(targets);
        for (int i = 0; i < CROWD; i++) {
            if (held[i] >= 0 && was_closed(held[i])) {
                close(held[i]);
                held[i] = -1;
            }
            if (held[i] >= 0 || count == 0)
                continue;
            held[i] = reach(&targets[i % count]);
            atomic_fetch_add(&plot->connections, held[i] >= 0);
        }
        kit_sleep_ms(1);
    }
}

static void C67_crowd_of_silent_connections(void) {
    static const char *const transports[] = {"tcp", NULL};
    struct plot *plot = kit_shared(sizeof(*plot));
    for (int t = 0; t < 2; t++) {
        struct kit_job job = {
            .nranks = 4, .transport = transports[t], .body = work, .timeout_ms = 20000};
        pid_t crowds[2] = {start_crowd(plot), start_crowd(plot)};
        kit_job_start(&job);
        kit_sleep_ms(2500);
        stop_work(&job);
        kit_job_wait(&job, 30000);
        for (int i = 0; i < 2; i++)
            kill(crowds[i], SIGKILL);
        kit_expect_success(&job, "among silent strangers");
        check_memory(&job);
        for (int r = 0; r < 4; r++)
            CHECK(job.outcomes[r].init_ms < 10000 && kit_lines(kit_said(&job, r)) <= 100,
                  "rank %d joined after %lld ms and said %d lines", r,
                  (long long)job.outcomes[r].init_ms, kit_lines(kit_said(&job, r)));
    }
    printf("  %llu connections of strangers\n",
           (unsigned long long)atomic_load(&plot->connections));
    fflush(stdout);
    CHECK(atomic_load(&plot->connections) > 500, "only %llu connections",
          (unsigned long long)atomic_load(&plot->connections));
}

/* -- what they cost ---------------------------------------------------------------------------- */

/* Processor time and calls of all ranks together. */
struct account {
    double processor_s;
    uint64_t calls;
};

static struct account account_now(const struct kit_job *job) {
    struct account account = {0};
    for (int r = 0; r < job->nranks; r++) {
        clockid_t clock;
        struct timespec used = {0};
        if (clock_getcpuclockid(job->outcomes[r].pid, &clock) == 0)
            clock_gettime(clock, &used);
        account.processor_s += (double)used.tv_sec + (double)used.tv_nsec * 1e-9;
        account.calls += atomic_load(&job->outcomes[r].rounds);
    }
    return account;
}

static void add_since(struct account *sum, const struct account *before,
                      const struct account *now) {
    sum->processor_s += now->processor_s - before->processor_s;
    sum->calls += now->calls - before->calls;
}

/* A port scanner and a sender of junk, a minute in all, in turns with quiet: what differs between
 * the two is theirs. */
static void C67_cost_of_strangers(void) {
    enum { RANKS = 8, TURNS = 30, TURN_MS = 2000 };
    struct plot *plot = kit_shared(sizeof(*plot));
    struct kit_job job = {.nranks = RANKS, .body = work, .timeout_ms = 60000};
    struct account quiet = {0}, attacked = {0};
    kit_job_start(&job);
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < 2000 && atomic_load(&job.outcomes[r].stage) < 2; i++)
            kit_sleep_ms(5);
    atomic_store(&plot->pause, 1);
    pid_t scanner = start_stranger(plot, &job, 10, true);
    pid_t sender = start_stranger(plot, &job, 20, false);
    kit_sleep_ms(1500);
    for (int turn = 0; turn < 2 * TURNS; turn++) {
        /* Each half of a pair comes first as often as second. */
        bool attack_now = (turn + turn / 2) % 2 != 0;
        atomic_store(&plot->pause, !attack_now);
        kit_sleep_ms(50);
        struct account before = account_now(&job);
        kit_sleep_ms(TURN_MS - 50);
        struct account now = account_now(&job);
        add_since(attack_now ? &attacked : &quiet, &before, &now);
    }
    kill(scanner, SIGKILL);
    kill(sender, SIGKILL);
    stop_work(&job);
    kit_job_wait(&job, 60000);
    kit_expect_success(&job, "under a scanner and a sender of junk");
    check_memory(&job);
    double alone = quiet.processor_s / (double)quiet.calls * 1e6;
    double visited = attacked.processor_s / (double)attacked.calls * 1e6;
    printf("  %llu connections of strangers; processor time per call %.2f us without, %.2f us with "
           "them (%+.1f %%)\n",
           (unsigned long long)atomic_load(&plot->connections), alone, visited,
           (visited / alone - 1) * 100);
    fflush(stdout);
    CHECK(visited <= alone * 1.05, "a call costs %.1f %% more", (visited / alone - 1) * 100);
}

int main(int argc, char **argv) {
    static const struct kit_case cases[] = {
        {"C67_attack", C67_attack, 120},
        {"C67_one_who_knows_the_secret", C67_one_who_knows_the_secret, 60},
        {"C67_crowd_of_silent_connections", C67_crowd_of_silent_connections, 120},
        {"C67_cost_of_strangers", C67_cost_of_strangers, 300},
        {NULL, NULL, 0},
    };
    return kit_main(cases, argc, argv);
}
