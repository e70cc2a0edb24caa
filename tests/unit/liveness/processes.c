/* Ranks as processes: killed, stopped, closed, broken connections that break nothing. A plain
 * program: it measures, and it must see its ranks die. */
#include "world.h"
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS 1000000
#define SOON_MS 2000 /* where there is proof: usually 25 */
#define LATE_MS 4000 /* where there is silence alone */

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
        int64_t deadline = clock_deadline(20000);
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

static void run_program(char **words) {
    int state;
    pid_t pid = fork();
    if (pid == 0) {
        execvp(words[0], words);
        _exit(127);
    }
    CHECK(waitpid(pid, &state, 0) == pid && state == 0);
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
        CHECK(wait_for(&world->ranks[r].messages, 9, 20000));
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
    check_verdict(all & ~failed, failed, begun, SOON_MS);
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

/* Nobody watches the victim when it dies; whoever does later hears at once. */
static void test_late_watch(void) {
    world_start(3, WORLD_PROCESSES, false, false);
    world_kill(1, SIGKILL);
    world_reap(1);
    nap_ms(100);
    CHECK(world->ranks[0].verdicts == 0 && world->ranks[2].verdicts == 0);
    int64_t begun = clock_now_ns();
    order(2, (struct order){.type = ORDER_WATCH, .peer = 1});
    check_verdict(5, 2, begun, SOON_MS);
    world_end();
}

/* A stopped rank is no dead rank: alone its silence, reported by who waited for it, removes it. It
 * learns that when it wakes up. */
static void test_stop(int stopped) {
    world_start(4, WORLD_PROCESSES, false, false);
    order_watch_all(stopped);
    world_kill(stopped, SIGSTOP);
    nap_ms(300);
    int by = (stopped + 1) % 4;
    CHECK(world->ranks[by].verdicts == 0);
    int64_t begun = clock_now_ns();
    order(by, (struct order){.type = ORDER_SUSPECT,
                             .peer = stopped,
                             .evidence = LIVENESS_SILENT,
                             .text = "did not answer for 300 ms"});
    check_verdict(15u & ~(1u << stopped), 1u << stopped, begun, LATE_MS);
    printf("stop %d: after %.1f ms\n", stopped, (double)(world->ranks[by].verdict_ns - begun) / MS);
    CHECK(world->ranks[by].status == ROTA_ERR_TIMEOUT);
    CHECK(strstr(world->ranks[by].text, "did not answer for 300 ms") != NULL);
    world_kill(stopped, SIGCONT);
    order(stopped, (struct order){.type = ORDER_SEND, .peer = by, .text = "are you there?"});
    CHECK(wait_for(&world->ranks[stopped].isolated, 1, 20000));
    CHECK(strstr(world->ranks[stopped].isolated_text, "went on without") != NULL);
    CHECK(world->ranks[by].messages == 0);
    world_end();
}

/* Half of a job of two: rank 0 goes on without rank 1, rank 1 does not without rank 0. */
static void test_stop_of_two(int stopped) {
    world_start(2, WORLD_PROCESSES, false, false);
    world_kill(stopped, SIGSTOP);
    int64_t begun = clock_now_ns();
    order(1 - stopped, (struct order){.type = ORDER_SUSPECT,
                                      .peer = stopped,
                                      .evidence = LIVENESS_SILENT,
                                      .text = "did not answer"});
    if (stopped == 1) {
        check_verdict(1, 2, begun, LATE_MS);
    } else {
        CHECK(wait_for(&world->ranks[1].isolated, 1, 20000));
        CHECK(world->ranks[1].unreached == 1 && world->ranks[1].verdicts == 0);
        CHECK((world->ranks[1].isolated_ns - begun) / MS < LATE_MS);
    }
    world_kill(stopped, SIGCONT);
    world_end();
}

/* A data connection broke, as its user says. Whether the peer lives is found out at once. */
static void test_broken(void) {
    struct order broken = {.type = ORDER_SUSPECT,
                           .peer = 2,
                           .evidence = LIVENESS_BROKEN,
                           .text = "connection reset by 10.0.0.2:4711"};
    for (int hosts = 0; hosts < 2; hosts++) {
        world_start(3, WORLD_PROCESSES, hosts, false);
        order(0, broken);
        CHECK(wait_for(&world->ranks[0].cleared[2], 1, SOON_MS));
        world_kill(2, SIGSTOP);
        int64_t begun = clock_now_ns();
        order(0, broken);
        check_verdict(3, 4, begun, LATE_MS);
        CHECK(world->ranks[0].status == ROTA_ERR_PEER);
        CHECK(strstr(world->ranks[0].text, "10.0.0.2:4711 (Connection reset by peer)") != NULL);
        world_kill(2, SIGKILL);
        world_reap(2);
        world_end();

        world_start(3, WORLD_PROCESSES, hosts, false);
        begun = clock_now_ns();
        world_kill(2, SIGKILL);
        order(1, broken);
        check_verdict(3, 4, begun, SOON_MS);
        world_reap(2);
        world_end();
    }
}

/* Closing in good order: who waits for the rank hears it, who does not is not disturbed. */
static void test_left(void) {
    world_start(3, WORLD_PROCESSES, true, false);
    order(1, (struct order){.type = ORDER_SEND, .peer = 0, .text = "bye"});
    CHECK(wait_for(&world->ranks[0].messages, 1, 20000));
    order(1, (struct order){.type = ORDER_CLOSE});
    world_reap(1);
    nap_ms(100);
    CHECK(world->ranks[0].verdicts == 0 && world->ranks[2].verdicts == 0);
    int64_t begun = clock_now_ns();
    order(0, (struct order){.type = ORDER_WATCH, .peer = 1});
    check_verdict(5, 2, begun, SOON_MS);
    CHECK(strstr(world->ranks[2].text, "left the job") != NULL);
    world_end();
}

/* A process that forks: its child disturbs nobody, and does not hide the parent's death. */
static void test_fork(bool hosts) {
    world_start(3, WORLD_PROCESSES, hosts, false);
    order_watch_all(1);
    nap_ms(50);
    order(1, (struct order){.type = ORDER_FORK, .peer = 0});
    order(0, (struct order){.type = ORDER_SEND, .peer = 1, .text = "still there?"});
    CHECK(wait_for(&world->ranks[1].messages, 1, 20000));
    nap_ms(100);
    CHECK(world->ranks[0].messages == 0 && world->ranks[0].verdicts == 0);
    int64_t begun = clock_now_ns();
    world_kill(1, SIGKILL);
    check_verdict(5, 2, begun, SOON_MS);
    world_reap(1);
    world_end();
}

static void check_agreed(int rank, int index, uint64_t flags, uint32_t highest, uint32_t failed) {
    struct rank_log *log = &world->ranks[rank];
    CHECK(wait_for(&log->agreements, index + 1, 20000));
    CHECK(log->agreed[index].flags == flags);
    CHECK(log->agreed[index].highest == highest && log->agreed[index].failed == failed);
}

static void test_agreements(void) {
    world_start(4, WORLD_PROCESSES, false, false);
    for (uint32_t number = 0; number < 20; number++)
        order_all(
            (struct order){.type = ORDER_AGREE, .flags = ~(1ull << number), .number = number});
    for (int r = 0; r < 4; r++)
        for (int i = 0; i < 20; i++)
            CHECK(wait_for(&world->ranks[r].agreements, 20, 20000) &&
                  world->ranks[r].agreed[i].highest == 3 && world->ranks[r].agreed[i].failed == 0);
    /* Rank 0 coordinates and dies before the last has joined. */
    for (int r = 0; r < 3; r++)
        order(r, (struct order){.type = ORDER_AGREE, .flags = 7, .number = 20});
    nap_ms(50);
    CHECK(world->ranks[1].agreements == 20);
    world_kill(0, SIGKILL);
    nap_ms(100);
    order(3, (struct order){.type = ORDER_AGREE, .flags = 13, .number = 20});
    for (int r = 1; r < 4; r++)
        check_agreed(r, 20, 5, 3, 1);
    /* Who asks again hears the same, whatever it brings. */
    order(1, (struct order){.type = ORDER_AGREE, .flags = 0, .number = 20});
    check_agreed(1, 21, 5, 3, 1);
    world_reap(0);
    world_end();
}

/* Several die at once or one after the other, also while a view changes; all who live agree on one
 * topic afterwards, and have left out the same. */
static void test_many_kills(unsigned seed, bool hosts) {
    uint32_t dead = 0;
    world_start(8, WORLD_PROCESSES, hosts, false);
    for (int r = 0; r < 8; r++)
        order_watch_all(r);
    for (int i = 0; i < 5; i++) {
        int victim = (int)(rand_r(&seed) % 8);
        if (dead >> victim & 1)
            continue;
        world_kill(victim, SIGKILL);
        dead |= 1u << victim;
        world_reap(victim);
        if (rand_r(&seed) % 2 == 0)
            nap_ms((int)(rand_r(&seed) % 60));
    }
    int64_t begun = clock_now_ns(); /* reaping takes its time */
    order_all((struct order){.type = ORDER_AGREE, .flags = 1, .number = 1});
    check_verdict(255u & ~dead, dead, begun, LATE_MS);
    for (int r = 0, first = -1; r < 8; r++) {
        if (dead >> r & 1)
            continue;
        first = first < 0 ? r : first;
        CHECK(wait_for(&world->ranks[r].agreements, 1, 20000));
        CHECK(world->ranks[r].agreed[0].failed == dead);
        CHECK(world->ranks[r].agreed[0].highest == world->ranks[first].agreed[0].highest);
        CHECK(world->ranks[r].status == ROTA_ERR_PEER);
    }
    printf("%d of 8 killed: verdict %.1f ms after the last was gone\n", __builtin_popcount(dead),
           (double)(world->ranks[__builtin_ctz(~dead)].verdict_ns - begun) / MS);
    world_end();
}

static int count_sockets(int rank) {
    char command[128], line[32] = "";
    snprintf(command, sizeof command, "ls -l /proc/%d/fd | grep -c -e socket: -e pidfd",
             (int)world->pids[rank]);
    FILE *pipe = popen(command, "r");
    CHECK(pipe != NULL && fgets(line, sizeof line, pipe) != NULL);
    pclose(pipe);
    return atoi(line);
}

/* Connections and pidfds of watches that nobody renews go away. Slow: not part of the usual run. */
static void test_idle(void) {
    world_start(4, WORLD_PROCESSES, true, false);
    int before = count_sockets(0);
    for (int r = 1; r < 4; r++)
        order(0, (struct order){.type = ORDER_WATCH, .peer = r});
    nap_ms(300);
    CHECK(count_sockets(0) == before + 3);
    nap_ms(45000);
    CHECK(count_sockets(0) == before);
    world_end();
}

/* Ranks below `nleft` in one network namespace, the others in another, and the wire between them
 * cut. Who has more than half, or half with rank 0, goes on. */
static void test_partition(char **spaces, int n, int nleft) {
    char command[256];
    for (int r = 0; r < n; r++)
        snprintf(world_spaces[r], sizeof world_spaces[r], "%s", spaces[r >= nleft]);
    world_start(n, WORLD_PROCESSES, true, false);
    uint32_t left = (1u << nleft) - 1, right = ((1u << n) - 1) & ~left;
    bool left_goes_on = 2 * nleft >= n;
    for (int r = 0; r < n; r++)
        order(r, (struct order){.type = ORDER_WATCH, .peer = (r + nleft) % n});
    nap_ms(200);
    snprintf(
        command, sizeof command,
        "ip netns exec %s nft -f - <<< 'table inet cut { chain i { type "
        "filter hook input priority 0; iifname wire drop; }; chain o { type filter hook output "
        "priority 0; oifname wire drop; }; }'",
        spaces[0]);
    char *words[] = {"bash", "-c", command, NULL};
    run_program(words);
    int64_t begun = clock_now_ns();
    struct order silent = {
        .type = ORDER_SUSPECT, .evidence = LIVENESS_SILENT, .text = "did not answer"};
    silent.peer = nleft;
    order(0, silent);
    silent.peer = 0;
    order(n - 1, silent);
    uint32_t going = left_goes_on ? left : right, other = left_goes_on ? right : left;
    check_verdict(going, other, begun, LATE_MS);
    for (int r = 0; r < n; r++) {
        struct rank_log *log = &world->ranks[r];
        if (!(other >> r & 1))
            continue;
        CHECK(wait_for(&log->isolated, 1, 20000));
        CHECK(log->verdicts == 0 && (log->unreached & going) == going);
        CHECK((log->isolated_ns - begun) / MS < LATE_MS);
    }
    printf("partition %d+%d: verdict after %.1f ms, isolated after %.1f ms\n", nleft, n - nleft,
           (double)(world->ranks[left_goes_on ? 0 : n - 1].verdict_ns - begun) / MS,
           (double)(world->ranks[left_goes_on ? n - 1 : 0].isolated_ns - begun) / MS);
    snprintf(command, sizeof command, "ip netns exec %s nft delete table inet cut", spaces[0]);
    run_program(words);
    /* The wire is whole again; nobody changes its mind. */
    nap_ms(500);
    for (int r = 0; r < n; r++)
        CHECK(world->ranks[r].isolated == (int)(other >> r & 1) &&
              world->ranks[r].verdicts == (int)(going >> r & 1));
    world_end();
}

#define RUN(call) (fprintf(stderr, "%s\n", #call), call)
int main(int count, char **words) {
    setvbuf(stdout, NULL, _IONBF, 0);
    if (count > 1 && strcmp(words[1], "idle") == 0) {
        test_idle();
        return 0;
    }
    if (count > 3 && strcmp(words[1], "partition") == 0) {
        test_partition(words + 2, 4, 2);
        test_partition(words + 2, 4, 1);
        test_partition(words + 2, 4, 3);
        test_partition(words + 2, 5, 2);
        test_partition(words + 2, 2, 1);
        test_partition(words + 2, 8, 4);
        return 0;
    }
    RUN(test_messages());
    RUN(test_kill(2, 1, false, false, true));
    RUN(test_kill(2, 0, false, false, true));
    RUN(test_kill(4, 3, false, false, true));
    RUN(test_kill(4, 0, false, false, false));
    RUN(test_kill(4, 2, true, false, true));
    RUN(test_kill(4, 2, false, true, true));
    RUN(test_kill(8, 5, false, false, true));
    RUN(test_late_watch());
    RUN(test_stop(3));
    RUN(test_stop(0));
    RUN(test_stop_of_two(0));
    RUN(test_stop_of_two(1));
    RUN(test_broken());
    RUN(test_left());
    RUN(test_fork(false));
    RUN(test_fork(true));
    RUN(test_agreements());
    for (unsigned seed = 1; seed <= 6; seed++)
        RUN(test_many_kills(seed, seed % 2 == 0));
    return 0;
}
