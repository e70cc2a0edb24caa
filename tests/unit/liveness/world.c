/* Ranks that are driven from outside. */
#include "world.h"
#include "base/error.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

struct world *world;
char world_spaces[WORLD_RANKS][64];
static pthread_t threads[WORLD_RANKS];

static void pause_ms(int ms) {
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    nanosleep(&time, NULL);
}

bool wait_for(_Atomic int *counter, int value, int ms) {
    int64_t deadline = clock_deadline(ms);
    while (atomic_load(counter) < value) {
        if (clock_passed(deadline))
            return false;
        struct timespec time = {.tv_nsec = 2000000};
        nanosleep(&time, NULL);
    }
    return true;
}

void world_dump(void) {
    for (int r = 0; world != NULL && r < world->nranks; r++) {
        struct rank_log *log = &world->ranks[r];
        fprintf(
            stderr,
            "rank %d: verdicts %d (epoch %u, failed %x, status %d, \"%s\") isolated %d (\"%s\", "
            "unreached %x) agreements %d messages %d\n",
            r, log->verdicts, log->epoch, log->failed, (int)log->status, log->text, log->isolated,
            log->isolated_text, log->unreached, log->agreements, log->messages);
    }
}

/* -- what ranks are told ------------------------------------------------------------------------
 */

static void on_message(void *context, int from, const void *message, size_t bytes) {
    struct rank_log *log = context;
    snprintf(log->message, sizeof log->message, "%d:%.*s", from, (int)bytes, (const char *)message);
    atomic_fetch_add(&log->messages, 1);
}

static void on_verdict(void *context, const struct liveness_verdict *verdict) {
    struct rank_log *log = context;
    log->verdict_ns = clock_now_ns();
    log->epoch = verdict->epoch;
    log->status = verdict->status;
    snprintf(log->text, sizeof log->text, "%s", verdict->text);
    for (int i = 0; i < verdict->nfailed; i++)
        log->failed |= 1u << verdict->failed[i];
    atomic_fetch_add(&log->verdicts, 1);
}

static void on_cleared(void *context, int peer) {
    struct rank_log *log = context;
    atomic_fetch_add(&log->cleared[peer], 1);
}

static void on_isolated(void *context, const char *text, const int *unreached, int nunreached) {
    struct rank_log *log = context;
    log->isolated_ns = clock_now_ns();
    snprintf(log->isolated_text, sizeof log->isolated_text, "%s", text);
    for (int i = 0; i < nunreached; i++)
        log->unreached |= 1u << unreached[i];
    atomic_fetch_add(&log->isolated, 1);
}

static void on_agreed(void *context, const struct liveness_agreement *agreement) {
    struct rank_log *log = context;
    int index = atomic_load(&log->agreements) % WORLD_AGREEMENTS;
    log->agreed[index].number = agreement->topic.number;
    log->agreed[index].highest = agreement->result.highest;
    log->agreed[index].flags = agreement->result.flags;
    log->agreed[index].ns = clock_now_ns();
    log->agreed[index].failed = 0;
    for (int i = 0; i < agreement->nfailed; i++)
        log->agreed[index].failed |= 1u << agreement->failed[i];
    atomic_fetch_add(&log->agreements, 1);
}

static const struct liveness_events events = {.message = on_message,
                                              .verdict = on_verdict,
                                              .cleared = on_cleared,
                                              .isolated = on_isolated,
                                              .agreed = on_agreed};

/* -- ranks --------------------------------------------------------------------------------------
 */

static int count_descriptors(void) {
    DIR *folder = opendir("/proc/self/fd");
    int n = 0;
    while (folder != NULL && readdir(folder) != NULL)
        n++;
    if (folder != NULL)
        closedir(folder);
    return n;
}

/* A child that does what users' children do: it lives on for a while with copies of everything. */
static void fork_child(struct liveness *liveness, int self, int peer) {
    pid_t child = fork();
    if (child == 0) {
        liveness_watch(liveness, peer);
        liveness_send(liveness, peer, "from the child", 14);
        liveness_close(liveness);
        pause_ms(3000);
        _exit(0);
    }
    (void)self;
}

static bool carry_out(struct liveness *liveness, int self, const struct order *order) {
    struct liveness_topic topic = {.comm = 1, .number = order->number};
    struct liveness_ballot ballot = {.flags = order->flags, .highest = (uint32_t)self};
    int ranks[WORLD_RANKS];
    for (int r = 0; r < world->nranks; r++)
        ranks[r] = r;
    switch (order->type) {
    case ORDER_WATCH:
        liveness_watch(liveness, order->peer);
        break;
    case ORDER_SEND:
        liveness_send(liveness, order->peer, order->text, strlen(order->text));
        break;
    case ORDER_SUSPECT:
        liveness_suspect(liveness, order->peer, (enum liveness_evidence)order->evidence,
                         order->evidence == LIVENESS_BROKEN ? ECONNRESET : 0, order->text);
        break;
    case ORDER_AGREE:
        liveness_agree(liveness, &topic, ranks, world->nranks, &ballot);
        break;
    case ORDER_FORK:
        fork_child(liveness, self, order->peer);
        break;
    case ORDER_CLOSE:
        return false;
    }
    return true;
}

static void forbid_pidfd(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {.len = sizeof filter / sizeof *filter, .filter = filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void enter_space(const char *name) {
    char path[128];
    if (name[0] == 0)
        return;
    snprintf(path, sizeof path, "/var/run/netns/%s", name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && setns(fd, CLONE_NEWNET) == 0);
    close(fd);
}

static void rank_main(int self) {
    struct rank_log *log = &world->ranks[self];
    struct settings *settings;
    struct liveness *liveness;
    struct net_identity identity = {.rank = self, .protocol_first = 1, .protocol_last = 1};
    static struct bootstrap_record all[WORLD_RANKS];
    struct bootstrap_record *records = all;
    enter_space(world_spaces[self]);
    int before = count_descriptors();
    memcpy(identity.key, world->key, sizeof identity.key);
    memcpy(identity.job, world->job, sizeof identity.job);
    identity.incarnation = (uint64_t)self + 77;
    if (world->no_pidfd)
        forbid_pidfd(); /* before there is a control thread: it inherits this */
    CHECK(settings_load(&settings) == ROTA_OK);
    CHECK(control_acquire(settings, &log->record.addresses) == ROTA_OK);
    CHECK(bootstrap_describe(settings, &log->record) == ROTA_OK);
    log->record.incarnation = identity.incarnation;
    log->record.rank = (uint32_t)self;
    if (world->pretend_hosts)
        log->record.machine[0] = (uint8_t)self;
    atomic_fetch_add(&world->described, 1);
    CHECK(wait_for(&world->described, world->nranks, 20000));
    if (world->threads)
        records = calloc(WORLD_RANKS, sizeof *records);
    for (int r = 0; r < world->nranks; r++)
        records[r] = world->ranks[r].record;
    CHECK(liveness_open(&identity, world->nranks, records, settings, &events, log, &liveness) ==
          ROTA_OK);
    atomic_store(&log->open, 1);
    for (bool on = true; on;) {
        if (!wait_for(&log->ordered, atomic_load(&log->done) + 1, 60000))
            exit(3);
        on = carry_out(liveness, self, &log->order);
        if (on)
            atomic_fetch_add(&log->done, 1);
    }
    liveness_close(liveness);
    control_release();
    settings_free(settings);
    if (world->threads)
        free(records);
    atomic_store(&log->descriptors, count_descriptors() - before);
    atomic_store(&log->closed, 1);
    atomic_fetch_add(&log->done, 1);
}

static void *thread_main(void *argument) {
    rank_main((int)(intptr_t)argument);
    return NULL;
}

/* -- driving ------------------------------------------------------------------------------------
 */

void world_start(int nranks, enum world_kind kind, bool hosts, bool no_pidfd) {
    world = mmap(NULL, sizeof *world, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(world != MAP_FAILED);
    world->nranks = nranks;
    world->threads = kind == WORLD_THREADS;
    world->pretend_hosts = hosts;
    world->no_pidfd = no_pidfd;
    net_random(world->key, sizeof world->key);
    net_random(world->job, sizeof world->job);
    for (int r = 0; r < nranks; r++) {
        if (world->threads) {
            CHECK(pthread_create(&threads[r], NULL, thread_main, (void *)(intptr_t)r) == 0);
            continue;
        }
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid > 0)
            world->pids[r] = pid; /* the memory is shared */
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            rank_main(r);
            exit(0); /* with the leak check */
        }
    }
    for (int r = 0; r < nranks; r++)
        CHECK(wait_for(&world->ranks[r].open, 1, 20000));
}

void order_post(int rank, struct order one) {
    world->ranks[rank].order = one;
    atomic_fetch_add(&world->ranks[rank].ordered, 1);
}

void order_wait(int rank) {
    struct rank_log *log = &world->ranks[rank];
    CHECK(wait_for(&log->done, atomic_load(&log->ordered), 20000));
}

void order(int rank, struct order one) {
    order_post(rank, one);
    order_wait(rank);
}

static bool is_gone(int rank) {
    return world->ranks[rank].closed != 0 || (!world->threads && world->pids[rank] == 0);
}

void order_all(struct order one) {
    for (int r = 0; r < world->nranks; r++)
        if (!is_gone(r))
            order_post(r, one);
    for (int r = 0; r < world->nranks; r++)
        if (!is_gone(r))
            order_wait(r);
}

void world_kill(int rank, int signal) {
    int state;
    CHECK(kill(world->pids[rank], signal) == 0);
    if (signal == SIGSTOP) /* it may run on for a while */
        CHECK(waitpid(world->pids[rank], &state, WUNTRACED) == world->pids[rank] &&
              WIFSTOPPED(state));
}

void world_reap(int rank) {
    int state;
    CHECK(waitpid(world->pids[rank], &state, 0) == world->pids[rank]);
    if (!WIFSIGNALED(state) || WTERMSIG(state) != SIGKILL)
        CHECK(WIFEXITED(state) && WEXITSTATUS(state) == 0);
    world->pids[rank] = 0;
}

void world_end(void) {
    for (int r = 0; r < world->nranks; r++) {
        if (is_gone(r))
            continue;
        int64_t begun = clock_now_ns();
        order(r, (struct order){.type = ORDER_CLOSE});
        CHECK(clock_now_ns() - begun < 2000000000);
    }
    for (int r = 0; r < world->nranks; r++) {
        if (world->threads)
            CHECK(pthread_join(threads[r], NULL) == 0);
        else if (world->pids[r] != 0)
            world_reap(r);
        if (!world->threads && world->ranks[r].closed)
            CHECK(world->ranks[r].descriptors == 0);
    }
    munmap(world, sizeof *world);
    world = NULL;
}
