/* Jobs started by launchers: PMI servers that work and such that do not, Slurm's and Open MPI's
 * variables, and the caller's key-value store. */
#include "base/clock.h"
#include "base/error.h"
#include "bootstrap/bounded.h"
#include "bootstrap/launcher.h"
#include "bootstrap/resolve.h"
#include "pmi_server.h"
#include "ranks.h"
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void expect_met(const struct rank_result *results, int n) {
    for (int i = 0; i < n; i++) {
        cr_assert_eq(results[i].status, ROTA_OK, "rank %d: %s", i, results[i].error.message);
        cr_assert_neq(results[i].table_hash, 0);
        cr_assert_eq(results[i].table_hash, results[0].table_hash);
        cr_assert_eq(results[i].identity_hash, results[0].identity_hash);
    }
}

static void locate_now(struct bootstrap_place *place) {
    struct settings *settings;
    cr_assert_eq(settings_load(&settings), ROTA_OK);
    cr_assert_eq(bootstrap_locate(NULL, settings, place), ROTA_OK, "%s", error_record()->message);
    settings_free(settings);
}

static void expect_refused(const char *text) {
    struct settings *settings;
    struct bootstrap_place place;
    cr_assert_eq(settings_load(&settings), ROTA_OK);
    cr_assert_eq(bootstrap_locate(NULL, settings, &place), ROTA_ERR_SETTING);
    cr_assert(strstr(error_record()->message, text), "%s", error_record()->message);
    settings_free(settings);
}

/* -- PMI ---------------------------------------------------------------------------------------
 */

static struct rank_spec pmi_specs[PMI_MAX_RANKS];
static char pmi_variables[PMI_MAX_RANKS][3][32];

static struct rank_result *run_pmi(struct pmi_server *server, int nranks, int64_t timeout_ms) {
    pmi_server_start(server);
    for (int i = 0; i < nranks; i++) {
        snprintf(pmi_variables[i][0], 32, "PMI_FD=%d", server->sockets[i]);
        snprintf(pmi_variables[i][1], 32, "PMI_RANK=%d", i);
        snprintf(pmi_variables[i][2], 32, "PMI_SIZE=%d", server->nranks);
        pmi_specs[i] = (struct rank_spec){
            .timeout_ms = timeout_ms,
            .environment = {pmi_variables[i][0], pmi_variables[i][1], pmi_variables[i][2]}};
    }
    struct rank_result *results = ranks_run(pmi_specs, nranks);
    pmi_server_stop(server);
    return results;
}

Test(launchers, pmi_of_both_versions) {
    for (int version = 1; version <= 2; version++) {
        struct pmi_server server = {.nranks = 4, .version = version, .value_size = 1024};
        expect_met(run_pmi(&server, 4, 10000), 4);
    }
}

Test(launchers, pmi_with_short_values) {
    struct pmi_server server = {.nranks = 3, .version = 1, .value_size = 64};
    expect_met(run_pmi(&server, 3, 10000), 3);
}

Test(launchers, pmi_rank_missing) {
    struct pmi_server server = {.nranks = 3, .version = 1, .value_size = 1024};
    struct rank_result *results = run_pmi(&server, 2, 500);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(results[i].status, ROTA_ERR_TIMEOUT, "%s", results[i].error.message);
        cr_assert(strstr(results[i].error.message, "every rank"), "%s", results[i].error.message);
        cr_assert_leq(results[i].took_ms, 2000);
        cr_assert_eq(results[i].descriptors_left, 1); /* the session's */
    }
}

Test(launchers, pmi_hostile_server) {
    static char long_line[8192];
    memset(long_line, 'x', sizeof long_line - 1);
    static const char *const good_init = "cmd=response_to_init pmi_version=1 rc=0\n";
    static const char *const good_maxes = "cmd=maxes keylen_max=64 vallen_max=1024\n";
    const struct {
        const char *script[8];
        rota_status status;
        const char *text;
    } cases[] = {
        {{""}, ROTA_ERR_PEER, "closed"},
        {{"cmd=something_else rc=0\n"}, ROTA_ERR_FORMAT, "response_to_init"},
        {{"\n"}, ROTA_ERR_FORMAT, "response_to_init"},
        {{"cmd=response_to_init pmi_version=\x01 rc=0\n"}, ROTA_ERR_FORMAT, "printable"},
        {{"cmd=response_to_init rc=0\n"}, ROTA_ERR_FORMAT, "pmi_version"},
        {{"cmd=response_to_init pmi_version=1 rc=zero\n"}, ROTA_ERR_FORMAT, "rc=zero"},
        {{"cmd=response_to_init pmi_version=1 rc=-1\n",
          "cmd=response_to_init pmi_version=1 rc=-1\n"},
         ROTA_ERR_SYSTEM,
         "refused"},
        {{"cmd=response_to_init pmi_version=7 rc=0\n", "cmd=response_to_init pmi_version=7 rc=0\n"},
         ROTA_ERR_FORMAT,
         "version 7"},
        {{long_line}, ROTA_ERR_FORMAT, "more than"},
        {{"cmd=response_to_init pmi_version=1"}, ROTA_ERR_TIMEOUT, "in time"},
        {{good_init, "cmd=maxes keylen_max=64 vallen_max=10\n"}, ROTA_ERR_FORMAT, "vallen_max=10"},
        {{good_init, "cmd=maxes keylen_max=64 vallen_max=99999999999\n"},
         ROTA_ERR_FORMAT,
         "vallen_max"},
        {{good_init, good_maxes, "cmd=my_kvsname\n"}, ROTA_ERR_FORMAT, "kvsname"},
        {{good_init, good_maxes, "cmd=my_kvsname kvsname=a\n", "cmd=put_result rc=-1 msg=full\n"},
         ROTA_ERR_SYSTEM,
         "msg=full"},
        {{good_init, good_maxes, "cmd=my_kvsname kvsname=a\n", "cmd=put_result rc=0\n",
          "cmd=barrier_out\n", "cmd=get_result rc=0 value=00ff\n"},
         ROTA_ERR_FORMAT,
         "another value"},
        {{good_init, good_maxes, "cmd=my_kvsname kvsname=a\n", "cmd=put_result rc=0\n",
          "cmd=barrier_out\n", "cmd=get_result rc=0 value=zz\n"},
         ROTA_ERR_FORMAT,
         "another value"},
        {{"cmd=response_to_init pmi_version=1 rc=-1\n", "cmd=response_to_init pmi_version=2 rc=0\n",
          "999999cmd=fullinit-response;"},
         ROTA_ERR_FORMAT,
         "length"},
        {{"cmd=response_to_init pmi_version=1 rc=-1\n", "cmd=response_to_init pmi_version=2 rc=0\n",
          "    -1cmd=fullinit-response;"},
         ROTA_ERR_FORMAT,
         "length"},
        {{"cmd=response_to_init pmi_version=1 rc=-1\n", "cmd=response_to_init pmi_version=2 rc=0\n",
          "    41cmd=fullinit-response;rank=1;size=2;rc=0;"},
         ROTA_ERR_SETTING,
         "the launcher says 1 and 2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pmi_server server = {.nranks = 2, .script = cases[i].script};
        struct rank_result *results = run_pmi(&server, 1, 500);
        cr_assert_eq(results[0].status, cases[i].status, "case %zu: %s: %s", i,
                     rota_status_name(results[0].status), results[0].error.message);
        cr_assert(strstr(results[0].error.message, cases[i].text), "case %zu: %s", i,
                  results[0].error.message);
        cr_assert_leq(results[0].took_ms, 2000);
    }
}

Test(launchers, pmi_variables) {
    struct bootstrap_place place;
    setenv("PMI_FD", "3", 1);
    expect_refused("PMI_RANK");
    setenv("PMI_RANK", "2", 1);
    expect_refused("PMI_SIZE");
    setenv("PMI_SIZE", "2", 1);
    expect_refused("PMI_RANK");
    setenv("PMI_SIZE", "0", 1);
    expect_refused("PMI_SIZE");
    setenv("PMI_SIZE", "4", 1);
    locate_now(&place);
    cr_assert_eq(place.way, BOOTSTRAP_LAUNCHER);
    cr_assert_eq(place.launcher, LAUNCHER_PMI);
    cr_assert_eq(place.rank, 2);
    cr_assert_eq(place.nranks, 4);
    /* What the user says wins, and torchrun's variables too. */
    setenv("ROTA_ROOT", "@here", 1);
    locate_now(&place);
    cr_assert_eq(place.way, BOOTSTRAP_ROOT);
    cr_assert_eq(place.rank, 2);
    unsetenv("ROTA_ROOT");
    setenv("RANK", "1", 1);
    setenv("WORLD_SIZE", "3", 1);
    setenv("MASTER_ADDR", "a", 1);
    setenv("MASTER_PORT", "1000", 1);
    locate_now(&place);
    cr_assert_eq(place.nranks, 3);
    cr_assert_str_eq(place.root_name, "a:1000");
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    /* A job of one rank needs no server. */
    setenv("PMI_RANK", "0", 1);
    setenv("PMI_SIZE", "1", 1);
    locate_now(&place);
    cr_assert_eq(place.way, BOOTSTRAP_SINGLE);
}

Test(launchers, pmi_descriptor_that_was_not_inherited) {
    struct rank_result result = {0};
    struct rank_spec spec = {.timeout_ms = 500};
    char number[16];
    setenv("PMI_RANK", "0", 1);
    setenv("PMI_SIZE", "2", 1);
    setenv("PMI_FD", "987", 1);
    rank_meet(&spec, &result);
    cr_assert_eq(result.status, ROTA_ERR_SETTING);
    cr_assert(strstr(result.error.message, "PMI_FD is 987"), "%s", result.error.message);
    snprintf(number, sizeof number, "%d", open("/dev/null", O_RDWR | O_CLOEXEC));
    setenv("PMI_FD", number, 1);
    rank_meet(&spec, &result);
    cr_assert_eq(result.status, ROTA_ERR_SETTING);
}

/* -- Slurm and Open MPI by their variables -----------------------------------------------------
 */

Test(launchers, host_lists) {
    static const struct {
        const char *list, *first;
    } lists[] = {
        {"node1", "node1"},
        {"node[01-03,07],other", "node01"},
        {"a.b-c_d,e", "a.b-c_d"},
        {"rack[2,4]node[007-100]", "rack2node007"},
        {"gpu[5]", "gpu5"},
        {"n[1-2]-ib,x", "n1-ib"},
        {"", NULL},
        {",a", NULL},
        {"a[", NULL},
        {"a[]", NULL},
        {"a[1", NULL},
        {"a[x-y]", NULL},
        {"a[1-2", NULL},
        {"a b", NULL},
        {"a;rm", NULL},
        {"a]", NULL},
        {"@a", NULL},
    };
    char host[16], over[64];
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        rota_status status = hostlist_first(lists[i].list, host, sizeof host);
        cr_assert_eq(status, lists[i].first != NULL ? ROTA_OK : ROTA_ERR_FORMAT, "%s",
                     lists[i].list);
        if (status == ROTA_OK)
            cr_assert_str_eq(host, lists[i].first);
    }
    for (size_t length = 14; length < 18; length++) { /* around the size of the buffer */
        memset(over, '7', sizeof over);
        over[length] = 0;
        cr_assert_eq(hostlist_first(over, host, sizeof host),
                     length < sizeof host ? ROTA_OK : ROTA_ERR_FORMAT);
        over[0] = 'n';
        over[1] = '[';
        over[length] = ']';
        over[length + 1] = 0;
        cr_assert_eq(hostlist_first(over, host, sizeof host),
                     length - 1 < sizeof host ? ROTA_OK : ROTA_ERR_FORMAT);
    }
}

static void set_slurm(void) {
    setenv("SLURM_JOB_ID", "1234", 1);
    setenv("SLURM_PROCID", "1", 1);
    setenv("SLURM_NTASKS", "8", 1);
    setenv("SLURM_STEP_NODELIST", "node[01-03]", 1);
}

Test(launchers, slurm_variables) {
    struct bootstrap_place place, other;
    set_slurm();
    locate_now(&place); /* a batch script, no step */
    cr_assert_eq(place.way, BOOTSTRAP_SINGLE);
    setenv("SLURM_STEP_ID", "0", 1);
    locate_now(&place);
    cr_assert_eq(place.way, BOOTSTRAP_ROOT);
    cr_assert_eq(place.nranks, 8);
    setenv("SLURM_STEP_NUM_TASKS", "2", 1);
    locate_now(&place);
    cr_assert_eq(place.launcher, LAUNCHER_SLURM);
    cr_assert_eq(place.rank, 1);
    cr_assert_eq(place.nranks, 2);
    cr_assert_not(place.serves);
    cr_assert_eq(strncmp(place.root_name, "node01:", 7), 0, "%s", place.root_name);
    int port = atoi(place.root_name + 7);
    cr_assert_geq(port, 20000);
    cr_assert_lt(port + place.root_candidates, 32768);
    setenv("SLURM_STEP_ID", "1", 1);
    locate_now(&other);
    cr_assert_neq(memcmp(place.identity.key, other.identity.key, NET_KEY_BYTES), 0);
    cr_assert_neq(memcmp(place.identity.job, other.identity.job, 16), 0);
    setenv("SLURM_PROCID", "2", 1);
    expect_refused("SLURM_PROCID");
    setenv("SLURM_PROCID", "0", 1);
    setenv("SLURM_STEP_NODELIST", "node[", 1);
    expect_refused("SLURM_STEP_NODELIST");
}

Test(launchers, slurm_ranks_meet) {
    static char rank[4][24];
    struct rank_spec specs[4];
    struct bootstrap_place place;
    struct sockaddr_in address = {.sin_family = AF_INET};
    set_slurm();
    setenv("SLURM_STEP_ID", "3", 1);
    setenv("SLURM_STEP_NUM_TASKS", "4", 1);
    setenv("SLURM_STEP_NODELIST", "localhost,b", 1);
    for (int i = 0; i < 4; i++) {
        snprintf(rank[i], sizeof rank[i], "SLURM_PROCID=%d", i);
        specs[i] = (struct rank_spec){.timeout_ms = 10000, .environment = {rank[i]}};
    }
    expect_met(ranks_run(specs, 4), 4);
    /* Again with the first port taken by somebody who does not answer. */
    locate_now(&place);
    address.sin_port = htons((uint16_t)atoi(strchr(place.root_name, ':') + 1));
    int taken = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(setsockopt(taken, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)), 0);
    cr_assert_eq(bind(taken, (struct sockaddr *)&address, sizeof address), 0);
    cr_assert_eq(listen(taken, 16), 0);
    expect_met(ranks_run(specs, 4), 4);
    close(taken);
}

Test(launchers, open_mpi_without_pmix) {
    static char rank[3][32];
    struct rank_spec specs[3];
    setenv("OMPI_COMM_WORLD_RANK", "0", 1);
    setenv("OMPI_COMM_WORLD_SIZE", "3", 1);
    setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2", 1);
    setenv("OMPI_MCA_ess_base_jobid", "77", 1);
    setenv("OMPI_MCA_orte_hnp_uri", "77;tcp://10.0.0.1:5", 1);
    expect_refused("libpmix"); /* several hosts */
    setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "3", 1);
    for (int i = 0; i < 3; i++) {
        snprintf(rank[i], sizeof rank[i], "OMPI_COMM_WORLD_RANK=%d", i);
        specs[i] = (struct rank_spec){.timeout_ms = 10000, .environment = {rank[i]}};
    }
    expect_met(ranks_run(specs, 3), 3);
}

/* -- the caller's store ------------------------------------------------------------------------
 */

static int file_set(void *arg, const char *key, const void *value, size_t bytes) {
    char path[256], fresh[300];
    snprintf(path, sizeof path, "%s/%s", (const char *)arg, key);
    snprintf(fresh, sizeof fresh, "%s.new", path);
    int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool good = fd >= 0 && write(fd, value, bytes) == (ssize_t)bytes;
    if (fd >= 0)
        close(fd);
    return good && rename(fresh, path) == 0 ? 0 : 1;
}

static int file_get(void *arg, const char *key, void *value, size_t capacity, size_t *bytes,
                    int64_t timeout_ms) {
    char path[256];
    int64_t deadline_ns = clock_deadline(timeout_ms);
    snprintf(path, sizeof path, "%s/%s", (const char *)arg, key);
    for (;;) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0) {
            ssize_t got = read(fd, value, capacity);
            close(fd);
            *bytes = got > 0 ? (size_t)got : 0;
            return got >= 0 ? 0 : 2;
        }
        if (clock_passed(deadline_ns))
            return 3;
        usleep(1000);
    }
}

static char store_folder[64];
static rota_store file_store(const char *prefix) {
    rota_store store = ROTA_STORE_INIT;
    strcpy(store_folder, "/tmp/rota-store-XXXXXX");
    cr_assert(mkdtemp(store_folder));
    store.set = file_set;
    store.get = file_get;
    store.arg = store_folder;
    store.prefix = prefix;
    return store;
}

static void remove_store(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", store_folder);
    cr_assert_eq(system(command), 0);
}

Test(launchers, store_of_files) {
    rota_store store = file_store("job7-");
    struct rank_spec specs[20];
    for (int i = 0; i < 20; i++)
        specs[i] =
            (struct rank_spec){.rank = i, .nranks = 20, .timeout_ms = 20000, .store = &store};
    specs[0].delay_ms = 200; /* the others wait in get */
    struct rank_result *results = ranks_run(specs, 20);
    expect_met(results, 20);
    for (int i = 0; i < 20; i++)
        cr_assert_eq(results[i].descriptors_left, 0);
    char path[128];
    snprintf(path, sizeof path, "%s/job7-rota-id", store_folder);
    cr_assert_eq(access(path, R_OK), 0);
    remove_store();
}

Test(launchers, store_that_rank_0_never_sets) {
    rota_store store = file_store(NULL);
    struct rank_result result = {0};
    struct rank_spec spec = {.rank = 1, .nranks = 2, .timeout_ms = 300, .store = &store};
    rank_meet(&spec, &result);
    cr_assert_eq(result.status, ROTA_ERR_TIMEOUT, "%s", result.error.message);
    cr_assert(strstr(result.error.message, "rank 0"), "%s", result.error.message);
    cr_assert_eq(result.error.culprit_count, 1);
    cr_assert_leq(result.took_ms, 1500);
    remove_store();
}

static int failing_set(void *arg, const char *key, const void *value, size_t bytes) {
    (void)arg, (void)key, (void)value, (void)bytes;
    return 17;
}

static int changing_get(void *arg, const char *key, void *value, size_t capacity, size_t *bytes,
                        int64_t timeout_ms) {
    int failure = file_get(arg, key, value, capacity, bytes, timeout_ms);
    ((char *)value)[50] ^= 1;
    return failure;
}

/* After each failure rank 0 serves nothing any more: no thread, no descriptor. */
Test(launchers, stores_that_fail) {
    rota_store store = file_store(NULL);
    struct rank_result result = {0};
    struct rank_spec spec = {.rank = 0, .nranks = 2, .timeout_ms = 300, .store = &store};
    char garbage[200] = "no id";
    int threads = count_threads();
    store.set = failing_set;
    rank_meet(&spec, &result);
    cr_assert_eq(result.status, ROTA_ERR_SYSTEM);
    cr_assert(strstr(result.error.message, "17"), "%s", result.error.message);
    cr_assert_eq(result.descriptors_left, 0);
    store.set = file_set;
    store.get = changing_get;
    rank_meet(&spec, &result);
    cr_assert_eq(result.status, ROTA_ERR_MISMATCH, "%s", result.error.message);
    cr_assert_eq(result.descriptors_left, 0);
    store.get = file_get;
    rank_meet(&spec, &result); /* rank 1 does not come */
    cr_assert_eq(result.status, ROTA_ERR_TIMEOUT, "%s", result.error.message);
    for (int i = 0; i < 200 && count_threads() != threads; i++)
        usleep(10000);
    cr_assert_eq(count_threads(), threads);
    spec.rank = 1;
    cr_assert_eq(file_set(store_folder, "rota-id", garbage, 128), 0);
    rank_meet(&spec, &result);
    cr_assert_eq(result.status, ROTA_ERR_FORMAT);
    cr_assert(strstr(result.error.message, "no unique id"), "%s", result.error.message);
    cr_assert_eq(file_set(store_folder, "rota-id", garbage, 7), 0);
    rank_meet(&spec, &result);
    cr_assert_eq(result.status, ROTA_ERR_FORMAT);
    cr_assert(strstr(result.error.message, "holds 7 bytes"), "%s", result.error.message);
    store.get = NULL;
    rank_meet(&spec, &result);
    cr_assert_eq(result.status, ROTA_ERR_ARGUMENT);
    remove_store();
}

/* -- calls that do not return ------------------------------------------------------------------
 */

/* A name server that is dead: this program's getaddrinfo comes before the C library's. */
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **result) {
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    if (node != NULL && strcmp(node, "dead.example") == 0) {
        usleep(3000000);
        return EAI_AGAIN;
    }
    *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    return real(node, service, hints, result);
}

Test(launchers, dead_name_server) {
    struct rank_result result = {0};
    struct rank_spec spec = {.rank = 1, .nranks = 2, .timeout_ms = 300};
    setenv("ROTA_ROOT", "dead.example:5000", 1);
    rank_meet(&spec, &result);
    cr_assert_eq(result.status, ROTA_ERR_TIMEOUT);
    cr_assert(strstr(result.error.message, "did not resolve"), "%s", result.error.message);
    cr_assert_leq(result.took_ms, 1500);
}

static _Atomic int discarded;
static void nap(void *argument) {
    usleep(*(useconds_t *)argument);
}
static void discard(void *argument) {
    (void)argument;
    discarded = 1;
}

Test(launchers, calls_are_left_behind_at_the_deadline) {
    useconds_t short_nap = 1000, long_nap = 600000;
    bool late = true;
    cr_assert_eq(bounded_call(nap, discard, &short_nap, clock_deadline(5000), &late), ROTA_OK);
    cr_assert_not(late);
    cr_assert_eq(discarded, 0);
    int64_t begun_ns = clock_now_ns();
    cr_assert_eq(bounded_call(nap, discard, &long_nap, clock_deadline(50), &late), ROTA_OK);
    cr_assert(late);
    cr_assert_lt(clock_now_ns() - begun_ns, 500000000);
    for (int i = 0; i < 300 && discarded == 0; i++)
        usleep(10000);
    cr_assert_eq(discarded, 1);
}

/* -- cores -------------------------------------------------------------------------------------
 */

Test(launchers, ranks_that_are_bound_to_cores_have_them_all) {
    struct bootstrap_record records[6] = {0};
    for (int i = 0; i < 6; i++) {
        records[i].cores = 2;
        records[i].machine[3] = (uint8_t)(i / 4); /* hosts of 4 and 2 ranks */
    }
    cr_assert_eq(bootstrap_host_cores(records, 6, 1), 2); /* unbound: they share the same two */
    for (int i = 0; i < 4; i++)
        records[i].first_core = (uint32_t)(2 * (i / 2)); /* two by two */
    cr_assert_eq(bootstrap_host_cores(records, 6, 0), 4);
    cr_assert_eq(bootstrap_host_cores(records, 6, 5), 2);
    records[5].cores = 0;
    records[4].cores = 0;
    cr_assert_eq(bootstrap_host_cores(records, 6, 4), 1);
}
