/* Ranks as processes: killed, stopped, closed, broken connections that break nothing. A plain
 * program: it measures, and it must see its ranks die. */
#include "world.h"
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define MS 1000000

static void nap_ms(int ms) {
    usleep((useconds_t)ms * 1000);
}

/* All ranks of `survivors` have the same verdict on the ranks of `failed`, within `ms` of `begun`.
 */
static void check_verdict(uint32_t survivors, uint32_t failed, int64_t begun, int ms) {
    const struct rank_log *first = NULL;
    for (int r = 0; r < world->nranks; r++) {
        struct rank_log *log = &world->ranks[r];
        if (!(survivors >> r & 1))
            continue;
        int64_t deadline = clock_deadline(5000);
        while ((log->failed & failed) != failed && !clock_passed(deadline))
            (void)wait_for(&log->verdicts, log->verdicts + 1, 5);
        CHECK(log->failed == failed);
        CHECK(log->isolated == 0);
        CHECK((log->verdict_ns - begun) / MS < ms);
        if (first == NULL)
            first = log;
        CHECK(strcmp(first->text, log->text) == 0);
        CHECK(first->epoch == log->epoch && first->status == log->status);
    }
}

static void order_watch_all(int peer) {
    for (int r = 0; r < world->nranks; r++)
        if (r != peer)
            order(r, (struct order){.type = ORDER_WATCH, .peer = peer});
}

static void test_messages(void) {
    world_start(4, WORLD_PROCESSES, false, false);
    for (int round = 1; round <= 3; round++)
        for (int r = 0; r < 4; r++)
            for (int to = 0; to < 4; to++)
                if (to != r)
                    order_post(r, (struct order){.type = ORDER_SEND, .peer = to, .text = "hello"}),
                        order_wait(r);
    for (int r = 0; r < 4; r++) {
        CHECK(wait_for(&world->ranks[r].messages, 9, 5000));
        CHECK(strcmp(world->ranks[r].message + 1, ":hello") == 0);
    }
    world_end();
}

static void test_kill(int n, int victim, bool hosts, bool no_pidfd, bool all_watch) {
    world_start(n, WORLD_PROCESSES, hosts, no_pidfd);
    if (all_watch)
        order_watch_all(victim);
    else
        order(victim == 0 ? n - 1 : 0, (struct order){.type = ORDER_WATCH, .peer = victim});
    nap_ms(30);
    int64_t begun = clock_now_ns();
    world_kill(victim, SIGKILL);
    uint32_t all = (1u << n) - 1, failed = 1u << victim;
    check_verdict(all & ~failed, failed, begun, 100);
    for (int r = 0; r < n; r++)
        if (r != victim)
            printf("kill n=%d victim=%d hosts=%d no_pidfd=%d: rank %d after %.1f ms\n", n, victim,
                   hosts, no_pidfd, r, (double)(world->ranks[r].verdict_ns - begun) / MS);
    CHECK(world->ranks[victim == 0 ? 1 : 0].status == ROTA_ERR_PEER);
    CHECK(strstr(world->ranks[victim == 0 ? 1 : 0].text,
                 hosts || no_pidfd ? "refuses new ones" : "exited") != NULL);
    world_reap(victim);
    world_end();
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    test_messages();
    test_kill(2, 1, false, false, true);
    test_kill(2, 0, false, false, true);
    test_kill(4, 3, false, false, true);
    test_kill(4, 0, false, false, false);
    test_kill(4, 2, true, false, true);
    test_kill(4, 2, false, true, true);
    return 0;
}
