/* Meeting by PMIx, which Open MPI's mpirun (PRRTE) and srun serve, as a key-value store.
 *
 * Design notes. libpmix is found at run time, so that neither build nor binary depends on it: the
 * few types and functions below are those of the PMIx standard's C interface, the same since its
 * version 2 in every libpmix.so.2. PMIx's calls know no deadline: each runs in a thread that can be
 * left behind, after which PMIx is not used again in this process. PMIx_Init counts, so an MPI
 * library in the same process is not disturbed. We finalize once, when the process exits normally:
 * a process that ends without it counts as crashed, and libpmix does not survive being initialised
 * again after its last user has left. */
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "bootstrap/bounded.h"
#include "bootstrap/launcher.h"
#include "bootstrap/message.h"
#include "bootstrap/store.h"
#include <dlfcn.h>
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* -- the standard's interface ------------------------------------------------------------------
 */

#define GOODBYE_MS 5000 /* at exit, for PMIx_Finalize */

#define PMIX_SUCCESS 0
#define PMIX_RANK_WILDCARD (UINT32_MAX - 1)
#define PMIX_GLOBAL 3 /* scope */
enum pmix_type { PMIX_BOOL = 1, PMIX_STRING = 3, PMIX_UINT32 = 14 };

struct pmix_proc {
    char nspace[256];
    uint32_t rank;
};
struct pmix_value {
    uint16_t type;
    union {
        bool flag;
        char *string;
        uint32_t uint32;
        struct {
            void *pointers[2];
            char separator;
        } largest;
    } data;
};
struct pmix_info {
    char key[512];
    uint32_t flags;
    struct pmix_value value;
};
_Static_assert(sizeof(struct pmix_proc) == 260, "layout of pmix_proc_t");
_Static_assert(sizeof(void *) != 8 || sizeof(struct pmix_value) == 32, "layout of pmix_value_t");
_Static_assert(sizeof(void *) != 8 || sizeof(struct pmix_info) == 552, "layout of pmix_info_t");

struct pmix_functions {
    int (*init)(struct pmix_proc *proc, struct pmix_info *info, size_t ninfo);
    int (*put)(uint8_t scope, const char *key, struct pmix_value *value);
    int (*commit)(void);
    int (*fence)(const struct pmix_proc *procs, size_t nprocs, const struct pmix_info *info,
                 size_t ninfo);
    int (*get)(const struct pmix_proc *proc, const char *key, const struct pmix_info *info,
               size_t ninfo, struct pmix_value **value);
    int (*finalize)(const struct pmix_info *info, size_t ninfo);
    const char *(*error_string)(int status);
};

/* -- the library -------------------------------------------------------------------------------
 */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the rest; only ever tried */
static bool left_behind;                                 /* a call has not returned */
static int jobs;                                         /* that were met by PMIx */
static bool initialised;
static pid_t owner; /* the process that did: a forked child must not speak in its name */
static struct pmix_proc self;
static uint32_t job_size;

static pthread_once_t load_once = PTHREAD_ONCE_INIT;
static struct pmix_functions functions;
static bool loaded;

/* The loader's own search first; then beside the launcher that set the variables. */
static void *open_library(void) {
    static const char *const variables[] = {"PMIX_PREFIX", "OPAL_PREFIX", "PMIX_INSTALL_PREFIX"};
    static const char *const folders[] = {"lib", "lib64", "lib/openmpi", "lib/pmix"};
    void *library = dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL);
    char path[1024];
    for (size_t v = 0; library == NULL && v < sizeof variables / sizeof *variables; v++) {
        const char *prefix = secure_getenv(variables[v]);
        if (prefix == NULL || prefix[0] != '/')
            continue;
        for (size_t f = 0; library == NULL && f < sizeof folders / sizeof *folders; f++)
            if (snprintf(path, sizeof path, "%s/%s/libpmix.so.2", prefix, folders[f]) <
                (int)sizeof path)
                library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return library;
}

static void load(void) {
    static const char *const names[] = {"PMIx_Init",        "PMIx_Put", "PMIx_Commit",
                                        "PMIx_Fence",       "PMIx_Get", "PMIx_Finalize",
                                        "PMIx_Error_string"};
    void *found[sizeof names / sizeof *names], *library = open_library();
    _Static_assert(sizeof found == sizeof functions, "one name per function");
    for (size_t i = 0; library != NULL && i < sizeof names / sizeof *names; i++) {
        found[i] = dlsym(library, names[i]);
        if (found[i] == NULL) {
            log_write(LOG_WARN, "libpmix.so.2 lacks %s and is not used", names[i]);
            return;
        }
    }
    if (library == NULL)
        return;
    memcpy(&functions, found, sizeof functions);
    loaded = true;
}

bool pmix_available(void) {
    pthread_once(&load_once, load);
    return loaded;
}

/* -- calls -------------------------------------------------------------------------------------
 */

/* What one thread does; it may outlive the call. */
struct pmix_work {
    enum { WORK_INIT, WORK_SET, WORK_GET, WORK_FINALIZE } kind;
    struct pmix_proc self;
    uint32_t nranks; /* INIT: out */
    char key[64];
    char text[600];     /* SET: in; GET: out */
    const char *failed; /* the function that did */
    int status;
};

static void work_call(struct pmix_work *work, const char *name, int status) {
    if (work->status == PMIX_SUCCESS && status != PMIX_SUCCESS) {
        work->status = status;
        work->failed = name;
    }
}

static void value_free(struct pmix_value *value) {
    if (value != NULL && value->type == PMIX_STRING)
        free(value->data.string);
    free(value);
}

static void work_init(struct pmix_work *work) {
    struct pmix_value *value = NULL;
    work_call(work, "PMIx_Init", functions.init(&work->self, NULL, 0));
    if (work->status != PMIX_SUCCESS)
        return;
    struct pmix_proc all = work->self;
    all.rank = PMIX_RANK_WILDCARD;
    work_call(work, "PMIx_Get", functions.get(&all, "pmix.job.size", NULL, 0, &value));
    if (work->status == PMIX_SUCCESS && value != NULL && value->type == PMIX_UINT32)
        work->nranks = value->data.uint32;
    value_free(value);
    if (work->status != PMIX_SUCCESS)
        (void)functions.finalize(NULL, 0);
}

static void work_set(struct pmix_work *work) {
    struct pmix_value value = {.type = PMIX_STRING, .data.string = work->text};
    work_call(work, "PMIx_Put", functions.put(PMIX_GLOBAL, work->key, &value));
    if (work->status == PMIX_SUCCESS)
        work_call(work, "PMIx_Commit", functions.commit());
}

/* The fence brings rank 0's values to every server. */
static void work_get(struct pmix_work *work) {
    struct pmix_info collect = {.key = "pmix.collect", .value = {.type = PMIX_BOOL}};
    struct pmix_proc root = work->self;
    struct pmix_value *value = NULL;
    collect.value.data.flag = true;
    root.rank = 0;
    work_call(work, "PMIx_Fence", functions.fence(NULL, 0, &collect, 1));
    if (work->status == PMIX_SUCCESS)
        work_call(work, "PMIx_Get", functions.get(&root, work->key, NULL, 0, &value));
    if (work->status == PMIX_SUCCESS && value != NULL && value->type == PMIX_STRING &&
        value->data.string != NULL)
        snprintf(work->text, sizeof work->text, "%s", value->data.string);
    value_free(value);
}

static void work_main(void *argument) {
    struct pmix_work *work = argument;
    switch (work->kind) {
    case WORK_INIT:
        work_init(work);
        break;
    case WORK_SET:
        work_set(work);
        break;
    case WORK_GET:
        work_get(work);
        break;
    case WORK_FINALIZE:
        work_call(work, "PMIx_Finalize", functions.finalize(NULL, 0));
        break;
    }
}

/* Runs a copy of the work in a thread, and takes over what it brought. */
static rota_status work_run(struct pmix_work *work, int64_t deadline_ns) {
    struct pmix_work *copy = malloc(sizeof *copy);
    bool late = false;
    if (copy == NULL)
        return error_raise(ROTA_ERR_MEMORY, "no memory for a call of PMIx");
    *copy = *work;
    rota_status status = bounded_call(work_main, free, copy, deadline_ns, &late);
    if (status == ROTA_OK && late) {
        left_behind = true;
        return error_raise(ROTA_ERR_TIMEOUT,
                           "the launcher's PMIx server did not answer in time: has every rank "
                           "called rota_init?");
    }
    if (status == ROTA_OK)
        *work = *copy;
    free(copy);
    if (status == ROTA_OK && work->status != PMIX_SUCCESS)
        return error_raise(ROTA_ERR_SYSTEM, "%s failed: %.100s (%d)", work->failed,
                           functions.error_string(work->status), work->status);
    return status;
}

/* -- the store ---------------------------------------------------------------------------------
 */

static int pmix_set(void *arg, const char *key, const void *value, size_t bytes) {
    const int64_t *deadline_ns = arg;
    struct pmix_work work = {.kind = WORK_SET, .self = self};
    (void)key;
    snprintf(work.key, sizeof work.key, "rota-%d", jobs);
    sodium_bin2hex(work.text, sizeof work.text, value, bytes);
    return work_run(&work, *deadline_ns) == ROTA_OK ? 0 : -1;
}

static int pmix_get(void *arg, const char *key, void *value, size_t capacity, size_t *bytes,
                    int64_t timeout_ms) {
    const int64_t *deadline_ns = arg;
    struct pmix_work work = {.kind = WORK_GET, .self = self};
    (void)key, (void)timeout_ms;
    snprintf(work.key, sizeof work.key, "rota-%d", jobs);
    if (work_run(&work, *deadline_ns) != ROTA_OK)
        return -1;
    if (sodium_hex2bin(value, capacity, work.text, strlen(work.text), NULL, bytes, NULL) == 0)
        return 0;
    (void)error_raise(ROTA_ERR_FORMAT, "PMIx returned another value than rank 0 has put");
    return -1;
}

/* Rank and size as the server tells them. */
static rota_status take_place(struct bootstrap_place *place) {
    if (job_size < 1 || job_size > BOOTSTRAP_MAX_RANKS || self.rank >= job_size)
        return error_raise(ROTA_ERR_FORMAT, "PMIx says that this is rank %u of %u: expected less",
                           self.rank, job_size);
    if (place->rank != (int)self.rank || (place->nranks > 0 && place->nranks != (int)job_size))
        return error_raise(ROTA_ERR_SETTING,
                           "the launcher's variables say that this is rank %d of %d, but PMIx says "
                           "rank %u of %u",
                           place->rank, place->nranks, self.rank, job_size);
    place->nranks = (int)job_size;
    return ROTA_OK;
}

/* At a normal end of the process; see the design notes. */
static void say_goodbye(void) {
    struct pmix_work work = {.kind = WORK_FINALIZE};
    if (pthread_mutex_trylock(&lock) != 0)
        return;
    if (initialised && !left_behind && owner == getpid()) {
        (void)work_run(&work, clock_deadline(GOODBYE_MS));
        initialised = false;
        left_behind = true; /* it is not to be used again */
    }
    pthread_mutex_unlock(&lock);
}

static rota_status initialise(int64_t deadline_ns) {
    struct pmix_work work = {.kind = WORK_INIT};
    if (initialised)
        return ROTA_OK;
    rota_status status = work_run(&work, deadline_ns);
    if (status != ROTA_OK)
        return status;
    self = work.self;
    job_size = work.nranks;
    owner = getpid();
    initialised = true;
    (void)atexit(say_goodbye); /* without it the launcher reports a crash at the end */
    return ROTA_OK;
}

static rota_status agree_locked(struct bootstrap_place *place, int64_t deadline_ns) {
    int64_t deadline = deadline_ns;
    rota_store store = {.size = sizeof store, .set = pmix_set, .get = pmix_get, .arg = &deadline};
    if (left_behind)
        return error_raise(ROTA_ERR_STATE,
                           "an earlier rota_init lost the launcher's PMIx server: start again, or "
                           "pass an id, a store or an all-gather");
    if (initialised && owner != getpid())
        return error_raise(ROTA_ERR_STATE,
                           "the connection to the launcher's PMIx server is that of process %d, "
                           "which forked this one",
                           (int)owner);
    rota_status status = initialise(deadline_ns);
    if (status == ROTA_OK)
        status = take_place(place);
    if (status != ROTA_OK)
        return status;
    status = store_agree(place, &store, true, deadline_ns);
    jobs++;
    return status;
}

rota_status pmix_agree(struct bootstrap_place *place, int64_t deadline_ns) {
    int64_t begun_ns = clock_now_ns();
    if (pthread_mutex_trylock(&lock) != 0)
        return error_raise(ROTA_ERR_BUSY, "another thread of this process is joining a job by the "
                                          "launcher's PMIx");
    rota_status status = agree_locked(place, deadline_ns);
    pthread_mutex_unlock(&lock);
    if (status == ROTA_ERR_TIMEOUT)
        error_record()->waited_ms = (uint64_t)((clock_now_ns() - begun_ns) / 1000000);
    return status;
}
