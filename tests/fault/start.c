/* How ranks find each other on networks as they are: names that mislead, bridges, IPv6, firewalls,
 * ports that run out, links with small packets. */
#include "kit.h"
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define TWO_AND_TWO                                                                                \
    { 0, 0, 1, 1 }

/* -- C60 --------------------------------------------------------------------------------------- */

static void misleading_hosts_file(void *arg) {
    const char *name = arg;
    char text[512];
    snprintf(text, sizeof(text), "127.0.0.1 localhost\n127.0.1.1 %s\n", name);
    kit_replace_file("/etc/hosts", text);
}

static void join_two_and_two(const char *what) {
    struct kit_job job = {.nranks = 4, .hosts = TWO_AND_TWO};
    kit_job_run(&job, 30000);
    kit_expect_success(&job, what);
}

static void C60_name_resolves_to_loopback(void) {
    kit_two_hosts();
    kit_call_on(0, misleading_hosts_file, "left");
    kit_call_on(1, misleading_hosts_file, "right");
    join_two_and_two("names that resolve to 127.0.1.1");
    struct kit_job job = {.nranks = 4, .hosts = TWO_AND_TWO, .root = "10.7.0.1:5000"};
    kit_job_run(&job, 30000);
    kit_expect_success(&job, "the same with an address of the root");
}

static void C60_name_does_not_resolve(void) {
    char names[2][65];
    for (int h = 0; h < 2; h++) {
        memset(names[h], 'a', 64);
        names[h][63] = (char)('x' + h);
        names[h][64] = 0;
    }
    kit_two_hosts();
    for (int h = 0; h < 2; h++)
        kit_call_on(h, misleading_hosts_file, "somebody");
    join_two_and_two("host names that do not resolve");
    kit_must_on(0, "echo %s >/proc/sys/kernel/hostname", names[0]);
    kit_must_on(1, "echo %s >/proc/sys/kernel/hostname", names[1]);
    join_two_and_two("host names of 64 characters");
}

/* -- C61 --------------------------------------------------------------------------------------- */

static void crowded_hosts(void) {
    kit_two_hosts();
    for (int h = 0; h < 2; h++) {
        kit_must_on(h, "ip link add docker0 type bridge && ip addr add 172.17.0.1/16 dev docker0 "
                       "&& ip link set docker0 up");
        kit_must_on(h, "ip link add veth12ab type veth peer name veth12ac && "
                       "ip addr add 169.254.7.7/16 dev veth12ab && ip link set veth12ab up && "
                       "ip link set veth12ac up");
        kit_must_on(h,
                    "ip link add down0 type veth peer name down1 && "
                    "ip addr add 10.9.0.%d/24 dev down0",
                    h + 1);
    }
}

static void take_interfaces(const struct kit_job *job, int rank) {
    (void)rank;
    if (job->arg != NULL)
        setenv("ROTA_INTERFACE", job->arg, 1);
    if (getenv("ROTA_TEST_LOG"))
        setenv("ROTA_LOG", getenv("ROTA_TEST_LOG"), 1);
}

static void C61_interface_choice(void) {
    static const char *const settings[] = {NULL, "^docker0", "wrong0,eth0", "eth0"};
    crowded_hosts();
    for (int i = 0; i < 4; i++) {
        struct kit_job job = {.nranks = 4,
                              .hosts = TWO_AND_TWO,
                              .prepare = take_interfaces,
                              .arg = (void *)(uintptr_t)settings[i]};
        kit_job_run(&job, 30000);
        kit_expect_success(&job, settings[i] != NULL ? settings[i] : "no setting");
    }
}

static void C61_no_such_interface(void) {
    static char setting[] = "nowhere0";
    crowded_hosts();
    struct kit_job job = {
        .nranks = 4, .hosts = TWO_AND_TWO, .prepare = take_interfaces, .arg = setting};
    kit_job_run(&job, 30000);
    for (int r = 0; r < 4; r++) {
        const struct kit_outcome *outcome = &job.outcomes[r];
        if (r != 0 && outcome->init == ROTA_ERR_STATE)
            continue; /* there was no id to join by */
        CHECK(outcome->init == ROTA_ERR_SETTING && outcome->init_ms < 1000,
              "rank %d: %s after %lld ms", r, rota_status_name(outcome->init),
              (long long)outcome->init_ms);
        CHECK(strstr(outcome->error.message, "nowhere0") != NULL &&
                  strstr(outcome->error.message, "eth0") != NULL &&
                  strstr(outcome->error.message, "docker0") != NULL,
              "rank %d: %s", r, outcome->error.message);
    }
}

/* -- C62 --------------------------------------------------------------------------------------- */

static void wait_for_addresses(void) {
    for (int h = 0; h < 2; h++)
        kit_must_on(h, "for i in $(seq 100); do ip -6 addr show tentative | grep -q . || exit 0; "
                       "sleep 0.1; done; exit 1");
}

static void C62_ipv6_only(void) {
    kit_two_hosts();
    for (int h = 0; h < 2; h++)
        kit_must_on(h,
                    "ip addr flush dev eth0; ip addr del 127.0.0.1/8 dev lo; "
                    "ip addr add fd00::%d/64 dev eth0 nodad",
                    h + 1);
    kit_must("ip addr del 127.0.0.1/8 dev lo");
    wait_for_addresses();
    join_two_and_two("fd00 only");
    struct kit_job job = {.nranks = 4, .hosts = TWO_AND_TWO, .root = "[fd00::1]:5000"};
    kit_job_run(&job, 30000);
    kit_expect_success(&job, "fd00 only, with an address of the root");
}

static void C62_link_local_comes_last(void) {
    int left = kit_host("left"), right = kit_host("right");
    kit_cable(left, "eth0", right, "eth0");
    kit_cable(left, "eth1", right, "eth1");
    for (int h = 0; h < 2; h++)
        kit_must_on(h,
                    "ip link set eth0 up; ip link set eth1 up; "
                    "ip addr add fd00::%d/64 dev eth1 nodad",
                    h + 1);
    wait_for_addresses();
    join_two_and_two("fe80 on eth0, fd00 on eth1");
}

static void C62_link_local_only(void) {
    int left = kit_host("left"), right = kit_host("right");
    kit_cable(left, "eth0", right, "eth0");
    for (int h = 0; h < 2; h++)
        kit_must_on(h, "ip link set eth0 up");
    wait_for_addresses();
    join_two_and_two("fe80 only");
}

static void C62_ipv6_disabled(void) {
    kit_two_hosts();
    for (int h = 0; h < 2; h++)
        kit_must_on(h, "sysctl -qw net.ipv6.conf.all.disable_ipv6=1");
    join_two_and_two("disable_ipv6=1");
}

/* -- C63 --------------------------------------------------------------------------------------- */

static void firewall(const char *verdict) {
    kit_need("nft");
    kit_two_hosts();
    for (int h = 0; h < 2; h++)
        kit_must_on(h,
                    "nft 'add table inet wall; add chain inet wall in "
                    "{ type filter hook input priority 0; }; "
                    "add rule inet wall in iif lo accept; "
                    "add rule inet wall in tcp dport 5000-5031 accept; "
                    "add rule inet wall in tcp flags & (syn | ack) == syn %s'",
                    verdict);
}

static void take_ports(const struct kit_job *job, int rank) {
    (void)rank;
    if (job->arg != NULL)
        setenv("ROTA_PORT_RANGE", job->arg, 1);
}

/* Listening ports of a process's network: written as "PORT PORT ...". */
static void listening_ports(char *text, size_t size) {
    FILE *table = popen("cat /proc/self/net/tcp /proc/self/net/tcp6", "re");
    char line[512];
    size_t length = 0;
    text[0] = 0;
    while (table != NULL && fgets(line, sizeof(line), table) != NULL) {
        unsigned port, state;
        if (sscanf(line, " %*d: %*[0-9A-F]:%x %*[0-9A-F]:%*x %x", &port, &state) == 2 &&
            state == 0x0A && length + 8 < size)
            length += (size_t)snprintf(text + length, size - length, "%u ", port);
    }
    if (table != NULL)
        pclose(table);
}

static rota_status sums_inside_range(struct kit_seat *seat) {
    char text[1024], *at = text;
    rota_status status = kit_sums(seat);
    listening_ports(text, sizeof(text));
    CHECK(*text != 0, "nobody listens");
    while (*at != 0) {
        long port = strtol(at, &at, 10);
        CHECK(port >= 5000 && port <= 5031, "rank %d listens on %ld", seat->rank, port);
        while (isspace((unsigned char)*at))
            at++;
    }
    return status == ROTA_OK ? rota_barrier(seat->comm, NULL) : status;
}

static void C63_port_range(void) {
    static char range[] = "5000-5031";
    firewall("drop");
    struct kit_job job = {.nranks = 4,
                          .hosts = TWO_AND_TWO,
                          .prepare = take_ports,
                          .arg = range,
                          .body = sums_inside_range};
    kit_job_run(&job, 30000);
    kit_expect_success(&job, "inside of the range");
}

/* Without a range the ranks cannot meet, and the error names address, port and cause. */
static void refused_by_firewall(const char *verdict, const char *cause) {
    firewall(verdict);
    struct kit_job job = {.nranks = 4, .hosts = TWO_AND_TWO, .init_timeout_ms = 4000};
    kit_job_run(&job, 20000);
    for (int r = 0; r < 4; r++) {
        const struct kit_outcome *outcome = &job.outcomes[r];
        CHECK(outcome->init != ROTA_OK && outcome->init_ms < 4000 + 2000,
              "rank %d: %s after %lld ms", r, rota_status_name(outcome->init),
              (long long)outcome->init_ms);
        if (r >= 2)
            CHECK(strstr(outcome->error.message, "10.7.0.1:") != NULL &&
                      strstr(outcome->error.message, cause) != NULL,
                  "rank %d: %s", r, outcome->error.message);
    }
    if (kit_failures() > 0)
        kit_tell(&job);
}

static void C63_dropped_without_range(void) {
    refused_by_firewall("drop", "");
}

static void C63_rejected_without_range(void) {
    refused_by_firewall("reject with tcp reset", "refused");
}

/* Ranks of one host need one port each; two ports do not do for four. */
static void C63_range_exhausted(void) {
    static char range[] = "5000-5001";
    struct kit_job job = {
        .nranks = 4, .prepare = take_ports, .arg = range, .init_timeout_ms = 4000};
    kit_job_run(&job, 20000);
    int named = 0;
    for (int r = 0; r < 4; r++) {
        const struct kit_outcome *outcome = &job.outcomes[r];
        CHECK(outcome->init != ROTA_OK && outcome->init_ms < 6000, "rank %d: %s after %lld ms", r,
              rota_status_name(outcome->init), (long long)outcome->init_ms);
        if (strstr(outcome->error.message, "no free port") != NULL) {
            named++;
            CHECK(outcome->init_ms < 2000, "rank %d said so after %lld ms", r,
                  (long long)outcome->init_ms);
        }
    }
    CHECK(named >= 2, "%d ranks say that there is no free port", named);
    if (kit_failures() > 0)
        kit_tell(&job);
}

/* -- C64 --------------------------------------------------------------------------------------- */

/* Takes and frees ports of the range at random. */
static _Noreturn void grab_ports(void) {
    int held[8];
    unsigned state = 7;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int i = 0; i < 8; i++)
        held[i] = -1;
    for (;;) {
        unsigned i = (state = state * 1103515245 + 12345) >> 16 & 7;
        struct sockaddr_in address = {.sin_family = AF_INET,
                                      .sin_port = htons((uint16_t)(40000 + (state >> 20 & 31)))};
        if (held[i] >= 0)
            close(held[i]);
        held[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (bind(held[i], (struct sockaddr *)&address, sizeof(address)) == 0)
            (void)listen(held[i], 1);
        kit_sleep_ms(2);
    }
}

/* Established connections in this network, each seen from both of its ends. */
static int connections(void) {
    static const char *const tables[] = {"/proc/self/net/tcp", "/proc/self/net/tcp6"};
    int count = 0;
    for (int t = 0; t < 2; t++) {
        FILE *table = fopen(tables[t], "re");
        char line[512];
        unsigned state;
        while (table != NULL && fgets(line, sizeof(line), table) != NULL)
            count +=
                sscanf(line, " %*d: %*[0-9A-F]:%*x %*[0-9A-F]:%*x %x", &state) == 1 && state == 1;
        if (table != NULL)
            fclose(table);
    }
    return count / 2;
}

/* One connection per pair for the data, and few more. */
static rota_status exchange_once(struct kit_seat *seat) {
    int n = seat->nranks;
    rota_status status = kit_exchange(seat, 500);
    if (status == ROTA_OK)
        status = rota_barrier(seat->comm, NULL);
    if (status == ROTA_OK && seat->rank == 0)
        CHECK(connections() <= n * (n - 1) / 2 + n, "%d connections of %d ranks", connections(), n);
    return status == ROTA_OK ? rota_barrier(seat->comm, NULL) : status;
}

static void C64_ports_run_out(void) {
    int cycles = 10, worked = 0;
    const char *wanted = getenv("ROTA_TEST_CYCLES");
    if (wanted != NULL)
        cycles = atoi(wanted);
    kit_must("sysctl -qw net.ipv4.ip_local_port_range='40000 40031'");
    pid_t grabber = fork();
    if (grabber == 0)
        grab_ports();
    for (int i = 0; i < cycles; i++) {
        struct kit_job job = {.nranks = 8,
                              .transport = "tcp",
                              .body = exchange_once,
                              .init_timeout_ms = 10000,
                              .timeout_ms = 10000};
        bool good = true;
        kit_job_run(&job, 30000);
        for (int r = 0; r < 8; r++) {
            const struct kit_outcome *outcome = &job.outcomes[r];
            good &= outcome->init == ROTA_OK && outcome->body == ROTA_OK;
            CHECK(outcome->wait_status == 0 && outcome->wrong == 0 && outcome->init_ms < 12000,
                  "cycle %d, rank %d", i, r);
            if (outcome->init != ROTA_OK || outcome->body != ROTA_OK)
                CHECK(outcome->error.message[0] != 0, "an error without a message");
        }
        worked += good;
        if (!good)
            kit_tell(&job);
    }
    CHECK(worked == cycles, "%d of %d cycles worked", worked, cycles);
    kill(grabber, SIGKILL);
}

/* -- C70 --------------------------------------------------------------------------------------- */

static void black_hole(void) {
    kit_need("nft");
    int a = kit_host("a"), r = kit_host("r"), b = kit_host("b");
    kit_cable(a, "eth0", r, "eth0");
    kit_cable(r, "eth1", b, "eth0");
    kit_must_on(a, "ip addr add 10.1.0.1/24 dev eth0; ip link set eth0 up; "
                   "ip route add default via 10.1.0.2");
    kit_must_on(r, "ip addr add 10.1.0.2/24 dev eth0; ip addr add 10.2.0.2/24 dev eth1; "
                   "ip link set eth0 up; ip link set eth1 up mtu 1280; "
                   "sysctl -qw net.ipv4.ip_forward=1; "
                   "nft 'add table ip hole; add chain ip hole out "
                   "{ type filter hook output priority 0; }; "
                   "add rule ip hole out icmp type destination-unreachable drop'");
    kit_must_on(b, "ip addr add 10.2.0.1/24 dev eth0; ip link set eth0 up; "
                   "ip route add default via 10.2.0.2");
}

/* 1 KiB, then 1 MiB. */
static rota_status small_and_large(struct kit_seat *seat) {
    rota_status status = kit_sum(seat, 256);
    kit_call_began(seat);
    if (status == ROTA_OK)
        status = kit_sum(seat, 1 << 18);
    return status;
}

/* Rank 0 is the one whose packets get lost: it is to speak before rank 1 is tired of waiting. */
static void be_patient(const struct kit_job *job, int rank) {
    (void)job;
    if (rank == 1)
        setenv("ROTA_TIMEOUT_MS", "4000", 1);
}

static void C70_path_mtu_black_hole(void) {
    black_hole();
    struct kit_job job = {.nranks = 2,
                          .hosts = {0, 2},
                          .prepare = be_patient,
                          .body = small_and_large,
                          .timeout_ms = 3000};
    kit_job_run(&job, 30000);
    bool hinted = false;
    for (int r = 0; r < 2; r++) {
        const struct kit_outcome *outcome = &job.outcomes[r];
        CHECK(outcome->init == ROTA_OK && outcome->began_ms > 0, "rank %d did not come so far", r);
        CHECK(outcome->body != ROTA_OK && outcome->ended_ms - outcome->began_ms < 4000 + 2000,
              "rank %d: %s after %lld ms", r, rota_status_name(outcome->body),
              (long long)(outcome->ended_ms - outcome->began_ms));
        hinted |= strstr(outcome->error.message, "MTU") != NULL;
    }
    CHECK(hinted, "no hint at the MTU");
    if (kit_failures() > 0)
        kit_tell(&job);
}

static void C70_path_mtu_is_probed(void) {
    black_hole();
    kit_must_on(0, "sysctl -qw net.ipv4.tcp_mtu_probing=1");
    kit_must_on(2, "sysctl -qw net.ipv4.tcp_mtu_probing=1");
    struct kit_job job = {
        .nranks = 2, .hosts = {0, 2}, .body = small_and_large, .timeout_ms = 30000};
    kit_job_run(&job, 60000);
    kit_expect_success(&job, "tcp_mtu_probing=1");
}

int main(int argc, char **argv) {
    static const struct kit_case cases[] = {
        {"C60_name_resolves_to_loopback", C60_name_resolves_to_loopback, 60},
        {"C60_name_does_not_resolve", C60_name_does_not_resolve, 60},
        {"C61_interface_choice", C61_interface_choice, 60},
        {"C61_no_such_interface", C61_no_such_interface, 30},
        {"C62_ipv6_only", C62_ipv6_only, 60},
        {"C62_link_local_comes_last", C62_link_local_comes_last, 60},
        {"C62_link_local_only", C62_link_local_only, 60},
        {"C62_ipv6_disabled", C62_ipv6_disabled, 60},
        {"C63_port_range", C63_port_range, 60},
        {"C63_dropped_without_range", C63_dropped_without_range, 60},
        {"C63_rejected_without_range", C63_rejected_without_range, 60},
        {"C63_range_exhausted", C63_range_exhausted, 60},
        {"C64_ports_run_out", C64_ports_run_out, 300},
        {"C70_path_mtu_black_hole", C70_path_mtu_black_hole, 60},
        {"C70_path_mtu_is_probed", C70_path_mtu_is_probed, 90},
        {NULL, NULL, 0},
    };
    return kit_main(cases, argc, argv);
}
