/* The flight recorder: pages in memory and in the file, and what is read of them while calls go
 * on. How lines are written is in the header, because the fastest calls do it. */
#include "recording/recorder.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/process.h"
#include "base/settings.h"
#include "recording/recorder_file.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* Pages by which a recording grows, and with which it begins, the head among them. */
#define GROW_PAGES 16
#define FIRST_PAGES 4
/* Ticks after which the second pair of the clock is renewed: some ms. */
#define ANCHOR_TICKS (1u << 24)
#define REGION ((size_t)RECORD_MAX_PAGES * RECORD_PAGE)
/* Calls below 4 KiB that are stamped: those whose number ends in six zero bits. */
#define STAMP_MASK 63u

/* Names whose hash is known, by pointer; entries never change. */
struct known_name {
    const char *_Atomic name; /* stored last (release) */
    uint32_t hash;
};

struct recorder {
    pthread_mutex_t lock;      /* which pages there are, and whose */
    struct record_page *pages; /* REGION bytes; page 0 is the head */
    uint32_t mapped, taken;    /* pages that can be touched, and that were ever used */
    uint16_t *free_pages;      /* RECORD_MAX_PAGES */
    uint32_t nfree;
    bool mapped_file; /* the last pages are the file's */
    bool stamps;      /* of every call */
    _Atomic bool failed;
    pid_t pid;
    struct recorder_file file;
    struct known_name known[64];
    LIST_ENTRY(recorder) entry;
};

static struct record_head *head_of(const struct recorder *recorder) {
    return (struct record_head *)(void *)recorder->pages;
}

/* -- time ---------------------------------------------------------------------------------------
 */

bool recorder_counts;

uint64_t recorder_clock_ns(void) {
    return (uint64_t)clock_now_ns();
}

#if defined(__x86_64__)
/* The counter runs at one rate, also asleep, and the kernel trusts it. */
static bool counter_is_constant(void) {
    unsigned a, b, c, d;
    if ((unsigned)__get_cpuid_max(0x80000000u, NULL) < 0x80000007u)
        return false;
    __cpuid(0x80000007u, a, b, c, d);
    char source[32] = "";
    FILE *file = fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re");
    if (file != NULL) {
        if (fgets(source, sizeof(source), file) == NULL)
            source[0] = '\0';
        fclose(file);
    }
    return (d & (1u << 8)) != 0 && strncmp(source, "tsc", 3) == 0;
}
#else
static bool counter_is_constant(void) {
#if defined(__aarch64__)
    return true;
#else
    return false;
#endif
}
#endif

static uint64_t convert(uint64_t ticks0, uint64_t ns0, uint64_t ticks1, uint64_t ns1,
                        uint64_t ticks) {
    if (!recorder_counts || ticks1 <= ticks0 || ns1 <= ns0)
        return recorder_counts ? ns0 : ticks;
    double rate = (double)(ns1 - ns0) / (double)(ticks1 - ticks0);
    return ns1 + (uint64_t)(int64_t)((double)(int64_t)(ticks - ticks1) * rate);
}

uint64_t recorder_ticks_to_ns(const struct recorder *recorder, uint64_t ticks) {
    if (ticks == 0 || recorder == NULL)
        return 0;
    const struct record_head *head = head_of(recorder);
    uint64_t now = recorder_ticks();
    return convert(head->ticks, head->ns, now, recorder_clock_ns(), ticks);
}

/* Renews the second pair; whoever comes while another does leaves it at that. */
static void anchor(struct record_head *head, bool always) {
    uint64_t ticks = recorder_ticks();
    uint64_t before = atomic_load_explicit(&head->anchor_ticks, memory_order_relaxed);
    if (!always && ticks - before < ANCHOR_TICKS)
        return;
    uint64_t version = atomic_load_explicit(&head->anchor_version, memory_order_relaxed);
    if ((version & 1) != 0 ||
        !atomic_compare_exchange_strong_explicit(&head->anchor_version, &version, version + 1,
                                                 memory_order_acquire, memory_order_relaxed))
        return;
    /* Partner: readers of the file, which look at the version before and after. */
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&head->anchor_ticks, ticks, memory_order_relaxed);
    atomic_store_explicit(&head->anchor_ns, recorder_clock_ns(), memory_order_relaxed);
    atomic_store_explicit(&head->anchor_version, version + 2, memory_order_release);
}

/* -- fork ---------------------------------------------------------------------------------------
 * A child must not write into its parent's file. The mapping is not inherited; where it was the
 * child gets empty memory, so that a stray call there does no harm. */

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, recorder) recorders = LIST_HEAD_INITIALIZER(recorders);

static void before_fork(void) {
    pthread_mutex_lock(&list_lock);
}

static void after_fork_parent(void) {
    pthread_mutex_unlock(&list_lock);
}

static void after_fork_child(void) {
    struct recorder *recorder;
    LIST_FOREACH(recorder, &recorders, entry)
    mmap(recorder->pages, (size_t)recorder->mapped * RECORD_PAGE, PROT_READ | PROT_WRITE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    pthread_mutex_unlock(&list_lock);
}

static void begin_process(void) {
    recorder_counts = counter_is_constant();
    pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

/* -- memory -------------------------------------------------------------------------------------
 */

static bool map_pages(struct recorder *recorder, uint32_t count, int fd) {
    size_t at = (size_t)recorder->mapped * RECORD_PAGE, bytes = (size_t)count * RECORD_PAGE;
    void *place = (char *)recorder->pages + at;
    void *got =
        fd >= 0 ? mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)at)
                : mmap(place, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (got == MAP_FAILED)
        return false;
    if (fd >= 0 && madvise(got, bytes, MADV_DONTFORK) != 0)
        log_write(LOG_DEBUG, "recording: a forked child inherits its mapping");
    recorder->mapped += count;
    return true;
}

/* Makes more pages. In the file while it has room; a page that the disk has no space for would
 * cost a signal when it is written, so from then on pages are memory that nobody else sees. */
static bool extend(struct recorder *recorder) {
    uint32_t count = GROW_PAGES;
    if (recorder->mapped + count > RECORD_MAX_PAGES)
        count = RECORD_MAX_PAGES - recorder->mapped;
    if (count == 0)
        return false;
    if (recorder->mapped_file) {
        int fd = recorder_file_reopen(&recorder->file);
        bool grown =
            fd >= 0 &&
            recorder_file_extend(fd, (off_t)(recorder->mapped + count) * (off_t)RECORD_PAGE) &&
            map_pages(recorder, count, fd);
        if (fd >= 0)
            close(fd);
        if (grown) {
            atomic_store_explicit(&head_of(recorder)->pages, recorder->mapped,
                                  memory_order_release);
            return true;
        }
        log_write(LOG_INFO, "recording: no room to grow %s beyond %u pages", recorder->file.path,
                  recorder->mapped);
        recorder->mapped_file = false;
    }
    return map_pages(recorder, count, -1);
}

/* The file with its first pages, mapped; false: nothing is left of it. */
static bool open_file(struct recorder *recorder, const char *setting,
                      const struct recorder_owner *owner) {
    char why[PATH_MAX + 128] = "no space";
    struct recorder_file *file = &recorder->file;
    int fd = recorder_file_create(file, setting, owner->job, owner->rank, why, sizeof(why));
    bool mapped = fd >= 0 && recorder_file_extend(fd, (off_t)FIRST_PAGES * RECORD_PAGE) &&
                  map_pages(recorder, FIRST_PAGES, fd);
    if (fd >= 0)
        close(fd);
    if (fd >= 0 && !mapped)
        recorder_file_remove(file);
    if (!mapped) {
        log_write(LOG_INFO, "recording: kept in memory, where nobody reads it after a crash: %s",
                  why);
        file->path[0] = '\0';
    }
    return mapped;
}

/* -- opening and closing ------------------------------------------------------------------------
 */

static void fill_head(struct recorder *recorder, const struct recorder_owner *owner) {
    struct record_head *head = head_of(recorder);
    head->version = RECORD_VERSION;
    head->page_bytes = RECORD_PAGE;
    head->ring_calls = RECORD_CALLS;
    memcpy(head->job, owner->job, sizeof(head->job));
    head->rank = owner->rank;
    head->nranks = owner->nranks;
    head->pid = recorder->pid;
    head->pid_started = process_started(recorder->pid);
    head->pid_namespace = recorder_pid_namespace();
    process_boot_id(head->boot);
    if (owner->host != NULL)
        snprintf(head->host, sizeof(head->host), "%s", owner->host);
    else if (gethostname(head->host, sizeof(head->host) - 1) != 0)
        head->host[0] = '\0';
    snprintf(head->library, sizeof(head->library), "%s", rota_version());
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    head->ticks = recorder_ticks();
    head->ns = recorder_clock_ns();
    head->wall_offset_ns =
        (int64_t)wall.tv_sec * INT64_C(1000000000) + wall.tv_nsec - (int64_t)head->ns;
    atomic_store_explicit(&head->pages, recorder->mapped, memory_order_relaxed);
    atomic_store_explicit(&head->phase, RECORD_JOINING, memory_order_relaxed);
    head->magic = RECORD_MAGIC;
    recorder->taken = 1;
}

static void free_recorder(struct recorder *recorder) {
    if (recorder->pages != NULL)
        munmap(recorder->pages, REGION);
    pthread_mutex_destroy(&recorder->lock);
    free(recorder->free_pages);
    free(recorder);
}

/* Memory and the place of the pages. */
static struct recorder *make_recorder(void) {
    struct recorder *recorder = calloc(1, sizeof(*recorder));
    if (recorder == NULL)
        return NULL;
    pthread_mutex_init(&recorder->lock, NULL);
    recorder->pid = getpid();
    recorder->free_pages = malloc(RECORD_MAX_PAGES * sizeof(*recorder->free_pages));
    void *pages = mmap(NULL, REGION, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages != MAP_FAILED)
        recorder->pages = pages;
    if (recorder->free_pages == NULL || recorder->pages == NULL) {
        free_recorder(recorder);
        return NULL;
    }
    return recorder;
}

rota_status recorder_open(const struct settings *settings, const struct recorder_owner *owner,
                          struct recorder **out) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, begin_process);
    const char *way = settings_text(settings, SETTING_RECORD);
    *out = NULL;
    if (strcmp(way, "off") == 0)
        return ROTA_OK;
    struct recorder *recorder = make_recorder();
    if (recorder == NULL)
        return error_raise(ROTA_ERR_MEMORY, "out of memory for the recorder");
    recorder->stamps = strcmp(way, "stamps") == 0;
    recorder->mapped_file = strcmp(way, "memory") != 0 &&
                            open_file(recorder, settings_text(settings, SETTING_RECORD_DIR), owner);
    if (!recorder->mapped_file && !map_pages(recorder, FIRST_PAGES, -1)) {
        free_recorder(recorder);
        return error_raise(ROTA_ERR_MEMORY, "out of memory for the recorder");
    }
    fill_head(recorder, owner);
    /* With this job there are then as many as are kept. */
    if (recorder->mapped_file && recorder->file.first)
        recorder_file_prune(&recorder->file, RECORDER_KEPT_JOBS - 1);
    pthread_mutex_lock(&list_lock);
    LIST_INSERT_HEAD(&recorders, recorder, entry);
    pthread_mutex_unlock(&list_lock);
    *out = recorder;
    return ROTA_OK;
}

void recorder_joined(struct recorder *recorder) {
    if (recorder == NULL)
        return;
    anchor(head_of(recorder), true);
    atomic_store_explicit(&head_of(recorder)->phase, RECORD_JOINED, memory_order_release);
}

void recorder_close(struct recorder *recorder, bool clean) {
    if (recorder == NULL)
        return;
    pthread_mutex_lock(&list_lock);
    LIST_REMOVE(recorder, entry);
    pthread_mutex_unlock(&list_lock);
    if (recorder->file.path[0] != '\0' && recorder->pid == getpid()) {
        anchor(head_of(recorder), true);
        atomic_store_explicit(&head_of(recorder)->phase, RECORD_ENDED, memory_order_release);
        if (clean)
            recorder_file_remove(&recorder->file);
    }
    free_recorder(recorder);
}

const char *recorder_path(const struct recorder *recorder) {
    return recorder != NULL ? recorder->file.path : "";
}

/* -- pages --------------------------------------------------------------------------------------
 */

/* With the lock: a page that nobody has; NULL when there is none. Those of failed communicators
 * come last. */
static struct record_page *take_page(struct recorder *recorder) {
    if (recorder->nfree > 0)
        return &recorder->pages[recorder->free_pages[--recorder->nfree]];
    if (recorder->taken < recorder->mapped || extend(recorder))
        return &recorder->pages[recorder->taken++];
    for (uint32_t i = 1; i < recorder->taken; i++)
        if (atomic_load_explicit(&recorder->pages[i].closed, memory_order_relaxed) != 0)
            return &recorder->pages[i];
    return NULL;
}

/* The members as an arithmetic row of job ranks, where they are one. */
static void set_members(struct record_page *page, const int *members) {
    page->first = members != NULL ? members[0] : 0;
    page->stride = members != NULL && page->nranks > 1 ? members[1] - members[0] : 1;
    for (int i = 1; members != NULL && i < page->nranks; i++)
        if (members[i] - members[i - 1] != page->stride)
            page->stride = 0;
}

struct record_page *recorder_page(struct recorder *recorder, uint32_t kind, uint32_t comm,
                                  uint32_t generation, const char *name, int rank, int nranks,
                                  const int *members) {
    if (recorder == NULL || recorder->pid != getpid())
        return NULL;
    pthread_mutex_lock(&recorder->lock);
    struct record_page *page = take_page(recorder);
    if (page != NULL) {
        /* Partner: readers of the file, which look at `used` first. */
        atomic_store_explicit(&page->used, 0, memory_order_relaxed);
        atomic_thread_fence(memory_order_release);
        memset((char *)page + sizeof(page->used), 0, sizeof(*page) - sizeof(page->used));
        page->comm = comm;
        page->generation = generation;
        page->rank = rank;
        page->nranks = nranks;
        page->number = (uint32_t)(page - recorder->pages);
        page->stamp_mask = recorder->stamps ? 0 : STAMP_MASK;
        snprintf(page->name, sizeof(page->name), "%s", name);
        set_members(page, members);
        atomic_store_explicit(&page->used, kind, memory_order_release);
    }
    pthread_mutex_unlock(&recorder->lock);
    return page;
}

void recorder_page_free(struct recorder *recorder, struct record_page *page) {
    if (recorder == NULL || page == NULL || recorder->pid != getpid())
        return;
    pthread_mutex_lock(&recorder->lock);
    if (atomic_load_explicit(&page->failed, memory_order_relaxed) != ROTA_OK) {
        atomic_store_explicit(&page->closed, 1, memory_order_relaxed);
    } else {
        atomic_store_explicit(&page->used, 0, memory_order_release);
        recorder->free_pages[recorder->nfree++] = (uint16_t)page->number;
    }
    pthread_mutex_unlock(&recorder->lock);
}

/* With the lock: the page of a living communicator. */
static struct record_page *find_page(const struct recorder *recorder, uint32_t kind, uint32_t comm,
                                     uint32_t generation) {
    for (uint32_t i = 1; i < recorder->taken; i++) {
        struct record_page *page = &recorder->pages[i];
        if (atomic_load_explicit(&page->used, memory_order_relaxed) == kind && page->comm == comm &&
            page->generation == generation &&
            atomic_load_explicit(&page->closed, memory_order_relaxed) == 0)
            return page;
    }
    return NULL;
}

static void keep_failure(struct record_head *head, uint32_t comm, uint32_t generation,
                         const rota_error *error) {
    anchor(head, true);
    head->failure_comm = comm;
    head->failure_generation = generation;
    head->failure_kind = error->kind;
    head->failure_sequence = error->sequence;
    head->failure_ns = recorder_clock_ns();
    snprintf(head->failure_name, sizeof(head->failure_name), "%s", error->comm_name);
    snprintf(head->failure_text, sizeof(head->failure_text), "%s", error->message);
    /* Partner: readers of the file, who then see the text. */
    atomic_store_explicit(&head->failure, (int)error->status, memory_order_release);
}

void recorder_failed(struct recorder *recorder, uint32_t comm, uint32_t generation,
                     const rota_error *error) {
    if (recorder == NULL || recorder->pid != getpid())
        return;
    pthread_mutex_lock(&recorder->lock);
    for (uint32_t kind = RECORD_PAGE_COLLECTIVES; kind <= RECORD_PAGE_MESSAGES; kind++) {
        struct record_page *page = find_page(recorder, kind, comm, generation);
        if (page != NULL)
            atomic_store_explicit(&page->failed, (int)error->status, memory_order_relaxed);
    }
    if (!atomic_exchange_explicit(&recorder->failed, true, memory_order_relaxed))
        keep_failure(head_of(recorder), comm, generation, error);
    pthread_mutex_unlock(&recorder->lock);
}

bool recorder_has_failed(const struct recorder *recorder) {
    return recorder != NULL && atomic_load_explicit(&recorder->failed, memory_order_relaxed);
}

/* -- names --------------------------------------------------------------------------------------
 */

/* Tells readers of the file what a hash stands for. */
static void keep_name(struct recorder *recorder, const char *name, uint32_t hash) {
    struct record_name *names = head_of(recorder)->names;
    pthread_mutex_lock(&recorder->lock);
    int i = 0;
    while (i < RECORD_NAMES && atomic_load_explicit(&names[i].hash, memory_order_relaxed) != 0 &&
           atomic_load_explicit(&names[i].hash, memory_order_relaxed) != hash)
        i++;
    if (i < RECORD_NAMES && atomic_load_explicit(&names[i].hash, memory_order_relaxed) == 0) {
        snprintf(names[i].name, sizeof(names[i].name), "%s", name);
        atomic_store_explicit(&names[i].hash, hash, memory_order_release);
    }
    pthread_mutex_unlock(&recorder->lock);
}

uint32_t recorder_hash(const char *name) {
    return XXH32(name, strlen(name), 0) | 1;
}

uint32_t recorder_algorithm(struct recorder *recorder, const char *name) {
    if (recorder == NULL || name == NULL)
        return 0;
    size_t count = sizeof(recorder->known) / sizeof(recorder->known[0]);
    struct known_name *known = &recorder->known[((uintptr_t)name >> 3) % count];
    /* Partner: the store below; the hash is there before the name. */
    const char *there = atomic_load_explicit(&known->name, memory_order_acquire);
    if (there == name)
        return known->hash;
    uint32_t hash = recorder_hash(name);
    keep_name(recorder, name, hash);
    if (there == NULL) {
        pthread_mutex_lock(&recorder->lock);
        if (atomic_load_explicit(&known->name, memory_order_relaxed) == NULL) {
            known->hash = hash;
            atomic_store_explicit(&known->name, name, memory_order_release);
        }
        pthread_mutex_unlock(&recorder->lock);
    }
    return hash;
}

/* -- lines --------------------------------------------------------------------------------------
 */

struct record_call *record_free_line(struct record_page *page, uint64_t calls) {
    for (uint32_t i = 1; i < RECORD_CALLS; i++) {
        struct record_call *line = &page->ring[(calls + i) % RECORD_CALLS];
        if (record_is_free(line))
            return line;
    }
    return NULL;
}

void record_waiting(struct record_page *page, struct record_call *line, int member) {
    if (line == NULL)
        return;
    if (atomic_load_explicit(&line->begun, memory_order_relaxed) == 0)
        atomic_store_explicit(&line->begun, recorder_ticks(), memory_order_relaxed);
    if (atomic_load_explicit(&line->waiting_for, memory_order_relaxed) != member)
        atomic_store_explicit(&line->waiting_for, member, memory_order_relaxed);
    anchor((struct record_head *)(void *)(page - page->number), false);
}

/* False: empty, or written meanwhile. */
static bool copy_line(struct record_call *line, struct record_call *copy) {
    /* Partner: the last store of record_write. */
    uint64_t sequence = atomic_load_explicit(&line->sequence, memory_order_acquire);
    copy->fingerprint = __atomic_load_n(&line->fingerprint, __ATOMIC_RELAXED);
    copy->count = __atomic_load_n(&line->count, __ATOMIC_RELAXED);
    copy->kind = __atomic_load_n(&line->kind, __ATOMIC_RELAXED);
    copy->op = __atomic_load_n(&line->op, __ATOMIC_RELAXED);
    copy->mode = __atomic_load_n(&line->mode, __ATOMIC_RELAXED);
    copy->flags = __atomic_load_n(&line->flags, __ATOMIC_RELAXED);
    copy->dtype = __atomic_load_n(&line->dtype, __ATOMIC_RELAXED);
    copy->root = __atomic_load_n(&line->root, __ATOMIC_RELAXED);
    copy->algorithm = __atomic_load_n(&line->algorithm, __ATOMIC_RELAXED);
    /* Partner: record_end; who sees that it has ended sees when. */
    int state = atomic_load_explicit(&line->state, memory_order_acquire);
    atomic_init(&copy->state, state);
    atomic_init(&copy->waiting_for, atomic_load_explicit(&line->waiting_for, memory_order_relaxed));
    atomic_init(&copy->begun, atomic_load_explicit(&line->begun, memory_order_relaxed));
    atomic_init(&copy->ended, atomic_load_explicit(&line->ended, memory_order_relaxed));
    atomic_init(&copy->sequence, sequence);
    /* Partner: the fence of record_write, between emptying the line and filling it. */
    atomic_thread_fence(memory_order_acquire);
    return sequence != 0 && atomic_load_explicit(&line->sequence, memory_order_relaxed) == sequence;
}

bool recorder_find(struct recorder *recorder, uint32_t kind, uint32_t comm, uint32_t generation,
                   uint64_t sequence, struct record_call *call) {
    if (recorder == NULL)
        return false;
    bool found = false;
    uint64_t last = 0;
    pthread_mutex_lock(&recorder->lock);
    struct record_page *page = find_page(recorder, kind, comm, generation);
    for (uint32_t i = 0; page != NULL && i < RECORD_CALLS; i++) {
        struct record_call copy;
        uint64_t number = atomic_load_explicit(&page->ring[i].sequence, memory_order_relaxed);
        if (number == 0 || (sequence != 0 ? number != sequence : number <= last) ||
            !copy_line(&page->ring[i], &copy))
            continue;
        *call = copy;
        last = number;
        found = true;
    }
    pthread_mutex_unlock(&recorder->lock);
    return found;
}

/* The call of a page that runs: of collectives the first in order, of messages the oldest. */
static bool page_running(struct record_page *page, struct record_call *call) {
    bool found = false;
    for (uint32_t i = 0; i < RECORD_CALLS; i++) {
        struct record_call copy;
        if (atomic_load_explicit(&page->ring[i].sequence, memory_order_relaxed) == 0 ||
            atomic_load_explicit(&page->ring[i].state, memory_order_relaxed) != RECORD_RUNNING ||
            !copy_line(&page->ring[i], &copy) ||
            atomic_load_explicit(&copy.state, memory_order_relaxed) != RECORD_RUNNING)
            continue;
        if (found && atomic_load_explicit(&copy.sequence, memory_order_relaxed) >
                         atomic_load_explicit(&call->sequence, memory_order_relaxed))
            continue;
        *call = copy;
        found = true;
    }
    return found;
}

bool recorder_running(struct recorder *recorder, struct record_call *call,
                      struct record_page *head) {
    if (recorder == NULL)
        return false;
    bool found = false;
    uint64_t oldest = 0;
    pthread_mutex_lock(&recorder->lock);
    for (uint32_t i = 1; i < recorder->taken; i++) {
        struct record_page *page = &recorder->pages[i];
        struct record_call copy;
        if (atomic_load_explicit(&page->used, memory_order_relaxed) == 0 ||
            atomic_load_explicit(&page->closed, memory_order_relaxed) != 0 ||
            !page_running(page, &copy))
            continue;
        uint64_t begun = atomic_load_explicit(&copy.begun, memory_order_relaxed);
        begun = begun != 0 ? begun : recorder_ticks(); /* not stamped: it has just begun */
        if (found && begun >= oldest)
            continue;
        oldest = begun;
        *call = copy;
        head->comm = page->comm;
        head->generation = page->generation;
        head->rank = page->rank;
        head->nranks = page->nranks;
        head->number = page->number;
        memcpy(head->name, page->name, sizeof(head->name));
        atomic_init(&head->used, atomic_load_explicit(&page->used, memory_order_relaxed));
        found = true;
    }
    pthread_mutex_unlock(&recorder->lock);
    return found;
}
