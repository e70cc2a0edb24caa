/* Networks that lose packets, for good or for a while: two hosts of two ranks each, joined by a
 * cable. What is lost for good is told in time; what is only slow is no failure. */
#include "kit.h"
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define TWO_AND_TWO                                                                                \
    { 0, 0, 1, 1 }
enum { MIB = 1 << 20 };

/* -- C52 --------------------------------------------------------------------------------------- */

struct cut {
    const char *name;
    int64_t idle_ms; /* > 0: nobody calls for so long, then a barrier */
    bool one_way;
    int64_t timeout_ms;
};

/* The sign to go on after the pause is the first value of rank 0. */
static rota_status work_until_error(struct kit_seat *seat) {
    const struct cut *cut = seat->job->arg;
    rota_status status = kit_sums(seat);
    _Atomic uint64_t *sign = &seat->job->outcomes[0].values[0];
    atomic_store(&seat->outcome->values[1], 1); /* at work */
    while (status == ROTA_OK && cut->idle_ms > 0 && atomic_load(sign) == 0)
        kit_sleep_ms(1);
    kit_call_began(seat);
    if (status == ROTA_OK && cut->idle_ms > 0)
        return rota_barrier(seat->comm, NULL);
    while (status == ROTA_OK) {
        kit_call_began(seat);
        status = kit_sum(seat, 16 * MIB);
    }
    return status;
}

/* Says who is on the other side, or at least that this side is cut off. */
static void check_blame(const struct kit_job *job, int rank) {
    const struct kit_outcome *outcome = &job->outcomes[rank];
    int side = rank / 2, named = 0;
    for (int i = 0; i < outcome->error.culprit_count; i++) {
        named += outcome->error.culprits[i] / 2 != side;
        CHECK(outcome->error.culprits[i] / 2 != side || outcome->body == ROTA_ERR_ISOLATED,
              "rank %d blames rank %d beside it", rank, outcome->error.culprits[i]);
    }
    CHECK(named > 0, "rank %d names nobody", rank);
    CHECK(strstr(outcome->error.message, "10.7.0.") != NULL ||
              strstr(outcome->error.address, "10.7.0.") != NULL,
          "rank %d names no address", rank);
}

static void run_cut(struct cut *cut) {
    kit_need("nft");
    kit_two_hosts();
    struct kit_job job = {.nranks = 4,
                          .hosts = TWO_AND_TWO,
                          .body = work_until_error,
                          .arg = cut,
                          .timeout_ms = cut->timeout_ms};
    kit_job_start(&job);
    for (int r = 0; r < 4; r++)
        for (int i = 0; i < 5000 && atomic_load(&job.outcomes[r].values[1]) == 0; i++)
            kit_sleep_ms(1);
    kit_sleep_ms(300);
    kit_drop(0);
    if (!cut->one_way)
        kit_drop(1);
    int64_t since = kit_now_ms();
    if (cut->idle_ms > 0) {
        kit_sleep_ms(cut->idle_ms);
        since = kit_now_ms();
        atomic_store(&job.outcomes[0].values[0], 1);
    }
    kit_job_wait(&job, cut->timeout_ms + 10000);
    for (int r = 0; r < 4; r++) {
        const struct kit_outcome *outcome = &job.outcomes[r];
        CHECK(outcome->init == ROTA_OK && outcome->body != ROTA_OK && outcome->wrong == 0,
              "%s: rank %d: %s, %s", cut->name, r, rota_status_name(outcome->init),
              rota_status_name(outcome->body));
        /* What was received before the cut may end one call after it, and begin another. */
        int64_t began = outcome->began_ms > since ? outcome->began_ms : since;
        CHECK(outcome->ended_ms - began < cut->timeout_ms + 2000,
              "%s: rank %d returned after %lld ms", cut->name, r,
              (long long)(outcome->ended_ms - began));
        check_blame(&job, r);
    }
    if (kit_failures() > 0)
        kit_tell(&job);
}

static void C52_cut_while_busy(void) {
    static struct cut cut = {.name = "while busy", .timeout_ms = 3000};
    run_cut(&cut);
}

static void C52_cut_while_idle(void) {
    static struct cut cut = {.name = "while idle", .idle_ms = 2000, .timeout_ms = 3000};
    run_cut(&cut);
}

static void C52_cut_while_idle_for_long(void) {
    static struct cut cut = {.name = "while idle", .idle_ms = 30000, .timeout_ms = 10000};
    run_cut(&cut);
}

static void C52_cut_in_one_direction(void) {
    static struct cut cut = {.name = "one direction", .one_way = true, .timeout_ms = 3000};
    run_cut(&cut);
}

/* -- C53 --------------------------------------------------------------------------------------- */

/* Sums until the first value of rank 0 says that it is enough; all stop in the same round. */
static rota_status sums_until_told(struct kit_seat *seat) {
    const size_t *count = seat->job->arg;
    rota_status status = ROTA_OK;
    int32_t enough = 0, all = 0;
    while (status == ROTA_OK && all == 0) {
        status = kit_sum(seat, *count);
        enough = atomic_load(&seat->job->outcomes[0].values[0]) != 0;
        if (status == ROTA_OK)
            status = rota_all_reduce(&enough, &all, 1, ROTA_INT32, ROTA_MAX, seat->comm, NULL);
    }
    return status;
}

static void start_over_cable(struct kit_job *job) {
    kit_need("nft");
    kit_two_hosts();
    kit_job_start(job);
    for (int r = 0; r < 4; r++)
        for (int i = 0; i < 5000 && atomic_load(&job->outcomes[r].rounds) == 0; i++)
            kit_sleep_ms(1);
}

static void end_over_cable(struct kit_job *job, const char *what) {
    kit_sleep_ms(500);
    atomic_store(&job->outcomes[0].values[0], 1);
    kit_job_wait(job, 60000);
    kit_expect_success(job, what);
}

static void C53_five_seconds_without_a_network(void) {
    static size_t count = 100000;
    struct kit_job job = {.nranks = 4,
                          .hosts = TWO_AND_TWO,
                          .body = sums_until_told,
                          .arg = &count,
                          .timeout_ms = 60000};
    start_over_cable(&job);
    kit_drop(0);
    kit_drop(1);
    kit_sleep_ms(5000);
    kit_pass(0);
    kit_pass(1);
    end_over_cable(&job, "everything dropped for 5 s");
}

static void C53_a_fifth_is_lost(void) {
    static size_t count = 20000;
    struct kit_job job = {.nranks = 4,
                          .hosts = TWO_AND_TWO,
                          .body = sums_until_told,
                          .arg = &count,
                          .timeout_ms = 60000};
    start_over_cable(&job);
    for (int h = 0; h < 2; h++)
        kit_must_on(h, "nft 'add table inet loss; add chain inet loss in "
                       "{ type filter hook input priority 0; }; "
                       "add rule inet loss in iif != lo numgen random mod 100 < 20 drop'");
    kit_sleep_ms(10000);
    for (int h = 0; h < 2; h++)
        kit_must_on(h, "nft delete table inet loss");
    end_over_cable(&job, "a fifth of all packets lost for 10 s");
}

/* The limit is taken away again, since 8 MiB at 1 Mbit/s would take longer than the deadline. */
static void C53_one_megabit(void) {
    static size_t count = 2 * MIB;
    struct kit_job job = {.nranks = 4,
                          .hosts = TWO_AND_TWO,
                          .body = sums_until_told,
                          .arg = &count,
                          .timeout_ms = 60000};
    kit_need("tc");
    start_over_cable(&job);
    for (int h = 0; h < 2; h++)
        kit_must_on(h, "tc qdisc add dev eth0 root tbf rate 1mbit burst 16k latency 400ms");
    kit_sleep_ms(10000);
    for (int h = 0; h < 2; h++)
        kit_must_on(h, "tc qdisc del dev eth0 root");
    end_over_cable(&job, "1 Mbit/s for 10 s");
}

static void bind_to_one_core(const struct kit_job *job, int rank) {
    cpu_set_t mine, one;
    (void)job;
    (void)rank;
    CPU_ZERO(&one);
    sched_getaffinity(0, sizeof(mine), &mine);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &mine)) {
            CPU_SET(cpu, &one);
            break;
        }
    sched_setaffinity(0, sizeof(one), &one);
}

static void C53_eight_ranks_on_one_core(void) {
    static const char *const transports[] = {"shm", "tcp"};
    static size_t count = 3000;
    for (int t = 0; t < 2; t++) {
        struct kit_job job = {.nranks = 8,
                              .transport = transports[t],
                              .prepare = bind_to_one_core,
                              .body = sums_until_told,
                              .arg = &count,
                              .timeout_ms = 60000};
        kit_job_start(&job);
        kit_sleep_ms(3000);
        end_over_cable(&job, transports[t]);
    }
}

int main(int argc, char **argv) {
    static const struct kit_case cases[] = {
        {"C52_cut_while_busy", C52_cut_while_busy, 60},
        {"C52_cut_while_idle", C52_cut_while_idle, 60},
        {"C52_cut_while_idle_for_long", C52_cut_while_idle_for_long, 90},
        {"C52_cut_in_one_direction", C52_cut_in_one_direction, 60},
        {"C53_five_seconds_without_a_network", C53_five_seconds_without_a_network, 120},
        {"C53_a_fifth_is_lost", C53_a_fifth_is_lost, 120},
        {"C53_one_megabit", C53_one_megabit, 120},
        {"C53_eight_ranks_on_one_core", C53_eight_ranks_on_one_core, 120},
        {NULL, NULL, 0},
    };
    return kit_main(cases, argc, argv);
}
