/* Ranks as forked processes. */
#include "ranks.h"
#include "base/clock.h"
#include "base/error.h"
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int count_entries(const char *path) {
    DIR *folder = opendir(path);
    int n = 0;
    if (folder == NULL)
        return 0; /* no descriptor left for it */
    while (readdir(folder) != NULL)
        n++;
    closedir(folder);
    return n;
}

int count_descriptors(void) {
    return count_entries("/proc/self/fd");
}

int count_threads(void) {
    return count_entries("/proc/self/task");
}

static int64_t cpu_ms(void) {
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return used.tv_sec * 1000 + used.tv_nsec / 1000000;
}

static uint64_t hash(uint64_t start, const void *data, size_t count) {
    const uint8_t *bytes = data;
    for (size_t i = 0; i < count; i++)
        start = (start ^ bytes[i]) * 1099511628211u;
    return start;
}

static rota_status exchange(struct bootstrap_place *place, const struct settings *settings,
                            int64_t deadline_ns, struct rank_result *result) {
    struct bootstrap_record mine = {0};
    rota_status status = control_acquire(settings, &mine.addresses);
    if (status != ROTA_OK)
        return status;
    struct bootstrap_record *records = calloc((size_t)place->nranks, sizeof *records);
    status = bootstrap_describe(settings, &mine);
    if (status == ROTA_OK)
        status = bootstrap_exchange(place, settings, &mine, records, deadline_ns);
    if (status == ROTA_OK) {
        const struct net_identity *identity = &place->identity;
        result->table_hash =
            hash(14695981039346656037u, records, (size_t)place->nranks * sizeof *records);
        result->identity_hash = hash(hash(14695981039346656037u, identity->key, NET_KEY_BYTES),
                                     identity->job, sizeof identity->job);
        for (int rank = 0; rank < place->nranks; rank++)
            if (records[rank].rank != (uint32_t)rank)
                result->table_hash = 0;
        if (records[place->rank].pid != getpid())
            result->table_hash = 0;
    }
    free(records);
    control_release();
    return status;
}

/* As the engine does it. */
static rota_status meet(const struct rank_spec *spec, struct settings *settings,
                        struct rank_result *result) {
    rota_config config = ROTA_CONFIG_INIT;
    struct bootstrap_place place;
    int64_t deadline_ns = clock_deadline(spec->timeout_ms);
    config.nranks = spec->nranks;
    config.rank = spec->rank;
    config.id = spec->id;
    config.all_gather = spec->all_gather;
    config.all_gather_arg = spec->all_gather_arg;
    config.store = spec->store;
    rota_status status = bootstrap_locate(&config, settings, &place);
    if (status != ROTA_OK)
        return status;
    place.timeout_ms = spec->timeout_ms;
    status = bootstrap_agree_identity(&place, deadline_ns);
    struct net_identity agreed = place.identity;
    if (status == ROTA_OK)
        status = exchange(&place, settings, deadline_ns, result);
    if (status != ROTA_OK)
        bootstrap_withdraw(&place);
    else if (memcmp(agreed.key, place.identity.key, sizeof agreed.key) != 0 ||
             memcmp(agreed.job, place.identity.job, sizeof agreed.job) != 0)
        result->table_hash = 0; /* others may have connected under the agreed one */
    return status;
}

void rank_meet(const struct rank_spec *spec, struct rank_result *result) {
    struct settings *settings;
    int64_t begun = clock_now_ns(), cpu = cpu_ms();
    int before = count_descriptors();
    result->status = settings_load(&settings);
    if (result->status == ROTA_OK) {
        result->status = meet(spec, settings, result);
        settings_free(settings);
    }
    result->error = *error_record();
    result->took_ms = (clock_now_ns() - begun) / 1000000;
    result->cpu_ms = cpu_ms() - cpu;
    result->descriptors_left = count_descriptors() - before;
    __atomic_store_n(&result->ended, true, __ATOMIC_RELEASE);
}

/* A rank that has met stays a while for the others, as ranks of a job do: its control thread may be
 * the one that answers them. */
static void stay(const struct rank_result *results, int count) {
    int ended = 0;
    for (int turn = 0; ended < count && turn < 200; turn++) {
        ended = 0;
        for (int i = 0; i < count; i++)
            ended += __atomic_load_n(&results[i].ended, __ATOMIC_ACQUIRE);
        usleep(ended < count ? 10000 : 0);
    }
}

static void rank_process(const struct rank_spec *spec, struct rank_result *results, int count,
                         struct rank_result *result) {
    alarm(60); /* a rank that hangs does not outlive its test for long */
    for (int i = 0; i < 8 && spec->environment[i] != NULL; i++)
        putenv((char *)(uintptr_t)spec->environment[i]);
    if (spec->delay_ms > 0)
        usleep((useconds_t)spec->delay_ms * 1000);
    rank_meet(spec, result);
    if (result->status == ROTA_OK)
        stay(results, count);
    _exit(0);
}

struct rank_result *ranks_run(const struct rank_spec *specs, int count) {
    struct rank_result *results = mmap(NULL, sizeof *results * (size_t)count,
                                       PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pids[MAX_TEST_RANKS];
    cr_assert(results != MAP_FAILED && count <= MAX_TEST_RANKS);
#ifdef __SANITIZE_ADDRESS__
    /* The thread that a unique id starts may be in the sanitizer's allocator, whose lock a child
     * that is forked now would find taken for ever. It comes to rest. */
    usleep(50000);
#endif
    for (int i = 0; i < count; i++) {
        if (specs[i].fork_after_ms > 0)
            usleep((useconds_t)specs[i].fork_after_ms * 1000);
        pids[i] = fork();
        cr_assert_geq(pids[i], 0);
        if (pids[i] == 0)
            rank_process(&specs[i], results, count, &results[i]);
    }
    for (int i = 0; i < count; i++) {
        int state;
        cr_assert_eq(waitpid(pids[i], &state, 0), pids[i]);
        cr_assert(WIFEXITED(state) && WEXITSTATUS(state) == 0, "rank process %d: state %d", i,
                  state);
        cr_assert(results[i].ended);
    }
    return results;
}
