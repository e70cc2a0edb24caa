/* The control thread.
 *
 * Design notes. One instance lives while it has references; the last reference to go stops it (a
 * new one may be made at once, they share nothing). `lock` guards the pointer to the instance and
 * all tables in it. Call-backs run without the lock; what they belong to is `busy` meanwhile, and
 * whoever removes it waits until it is not: so after a removal no call-back runs. The child of a
 * fork starts without an instance: only the descriptors of the parent's are closed there, its
 * memory is left alone because the parent's thread may have been in the middle of changing it. */
#include "base/clock.h"
#include "base/error.h"
#include "base/place.h"
#include "bootstrap/service.h"
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define STACK_BYTES (256 * 1024)

struct control {
    int references;
    pthread_t thread;
    int epoll, wake;
    bool stop;     /* the thread is to end */
    bool detached; /* and to free the instance itself */
    struct net_listener *listener;
    struct net_addresses addresses;
    struct control_service *services; /* hash */
    struct control_watch *watches;    /* list */
    const void *busy;                 /* service or watch whose call-back may be running */
    struct control *inherited;        /* from the parent of a fork; only to keep it reachable */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t idle = PTHREAD_COND_INITIALIZER; /* `busy` changed */
static struct control *current;
static struct control *inherited;

/* A registered job as a service. */
struct job_entry {
    struct control_service service;
    struct control_job *job;
};

static void become_busy(struct control *control, const void *what) {
    if (control->busy != what) {
        control->busy = what;
        pthread_cond_broadcast(&idle);
    }
}

static void wait_until_idle(struct control *control, const void *what) {
    while (current == control && control->busy == what &&
           !pthread_equal(control->thread, pthread_self()))
        pthread_cond_wait(&idle, &lock);
}

/* -- the gate ----------------------------------------------------------------------------------
 */

static uint32_t kind_of(uint16_t purpose) {
    return purpose >= NET_PURPOSE_DATA ? CONTROL_DATA : purpose;
}

/* With the lock held; the service found is busy until the next look-up or the end of the step. */
static struct control_service *look_up(struct control *control, const struct net_hello *hello) {
    struct control_service_key key = {.kind = kind_of(hello->purpose)};
    struct control_service *service = NULL;
    memcpy(key.job, hello->job, sizeof key.job);
    key.rank = key.kind == CONTROL_RENDEZVOUS ? CONTROL_ANY_RANK : hello->target_rank;
    HASH_FIND(hh, control->services, &key, sizeof key, service);
    become_busy(control, service);
    return service;
}

static const struct net_identity *gate_find(void *context, const struct net_hello *hello) {
    pthread_mutex_lock(&lock);
    struct control_service *service = look_up(context, hello);
    pthread_mutex_unlock(&lock);
    return service != NULL ? &service->identity : NULL;
}

static enum net_verdict gate_judge(void *context, const struct net_hello *hello, int *descriptors,
                                   int *ndescriptors) {
    pthread_mutex_lock(&lock);
    struct control_service *service = look_up(context, hello);
    pthread_mutex_unlock(&lock);
    *ndescriptors = 0;
    if (service == NULL)
        return NET_REFUSED_TARGET; /* removed since the look-up */
    return service->judge != NULL
               ? service->judge(service->context, hello, descriptors, ndescriptors)
               : NET_GO;
}

static void gate_admit(void *context, const struct net_hello *hello, int socket,
                       const int *descriptors, int ndescriptors) {
    pthread_mutex_lock(&lock);
    struct control_service *service = look_up(context, hello);
    pthread_mutex_unlock(&lock);
    if (service != NULL) {
        service->admitted(service->context, hello, socket, descriptors, ndescriptors);
        return;
    }
    close(socket);
    for (int i = 0; i < ndescriptors; i++)
        close(descriptors[i]);
}

/* -- the thread --------------------------------------------------------------------------------
 */

static void step_listener(struct control *control, int64_t *deadline_ns) {
    int ms = net_listener_step(control->listener);
    *deadline_ns = ms < 0 ? CLOCK_NEVER : clock_deadline(ms);
    pthread_mutex_lock(&lock);
    become_busy(control, NULL);
    pthread_mutex_unlock(&lock);
}

/* Calls `what` if it is (still) in the list. With the lock held. */
static void call_watch(struct control *control, const void *what) {
    struct control_watch *watch = control->watches;
    while (watch != NULL && (const void *)watch != what)
        watch = watch->next;
    if (watch == NULL)
        return;
    become_busy(control, watch);
    pthread_mutex_unlock(&lock);
    watch->ready(watch->context);
    pthread_mutex_lock(&lock);
    become_busy(control, NULL);
}

static void call_late_watches(struct control *control) {
    pthread_mutex_lock(&lock);
    struct control_watch *watch = control->watches;
    while (watch != NULL) {
        if (clock_passed(watch->deadline_ns)) {
            call_watch(control, watch);
            watch = control->watches; /* the list may have changed */
            if (control->stop)
                break;
        } else {
            watch = watch->next;
        }
    }
    pthread_mutex_unlock(&lock);
}

static int64_t first_deadline(const struct control *control, int64_t deadline_ns) {
    for (const struct control_watch *watch = control->watches; watch != NULL; watch = watch->next)
        if (watch->deadline_ns < deadline_ns)
            deadline_ns = watch->deadline_ns;
    return deadline_ns;
}

static void control_free(struct control *control) {
    struct control_service *service, *next;
    HASH_ITER(hh, control->services, service, next) {
        HASH_DEL(control->services, service);
        if (service->orphaned != NULL)
            service->orphaned(service);
    }
    net_listener_close(control->listener);
    if (control->wake >= 0)
        close(control->wake);
    if (control->epoll >= 0)
        close(control->epoll);
    free(control);
}

static void *control_main(void *argument) {
    struct control *control = argument;
    int64_t listener_deadline = CLOCK_NEVER;
    for (;;) {
        struct epoll_event events[16];
        pthread_mutex_lock(&lock);
        bool stop = control->stop;
        int64_t deadline = first_deadline(control, listener_deadline);
        pthread_mutex_unlock(&lock);
        if (stop)
            break;
        int n = epoll_wait(control->epoll, events, 16,
                           deadline == CLOCK_NEVER ? -1 : clock_left_ms(deadline));
        for (int i = 0; i < n; i++) {
            void *what = events[i].data.ptr;
            if (what == control) {
                uint64_t count;
                (void)!read(control->wake, &count, sizeof count);
            } else if (what == control->listener) {
                step_listener(control, &listener_deadline);
            } else {
                pthread_mutex_lock(&lock);
                call_watch(control, what);
                pthread_mutex_unlock(&lock);
            }
        }
        if (clock_passed(listener_deadline))
            step_listener(control, &listener_deadline);
        call_late_watches(control);
    }
    if (control->detached)
        control_free(control);
    return NULL;
}

static void wake(struct control *control) {
    uint64_t one = 1;
    (void)!write(control->wake, &one, sizeof one); /* full means that it is awake already */
}

/* -- life --------------------------------------------------------------------------------------
 */

static void after_fork_in_child(void) {
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&idle, NULL);
    if (current == NULL)
        return;
    net_listener_close_inherited(current->listener);
    close(current->wake);
    close(current->epoll);
    current->inherited = inherited;
    inherited = current;
    current = NULL;
}

static void install_fork_handler(void) {
    (void)pthread_atfork(NULL, NULL, after_fork_in_child);
}

/* With all signals blocked in the new thread: they belong to the user's threads. */
static int start_thread(struct control *control) {
    pthread_attr_t attributes;
    sigset_t all, before;
    int failure = pthread_attr_init(&attributes);
    if (failure != 0)
        return failure;
    (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failure = pthread_create(&control->thread, &attributes, control_main, control);
    if (failure == EINVAL) /* the program's thread-local data do not fit into so small a stack */
        failure = pthread_create(&control->thread, NULL, control_main, control);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (failure == 0) {
        cpu_set_t beside;
        (void)pthread_setname_np(control->thread, "rota-control");
        /* Not on the core of a rank that somebody has placed, if it has another: it wakes while the
         * rank spins. Where that is refused it runs where its rank may. */
        if (place_beside_me(&beside))
            (void)pthread_setaffinity_np(control->thread, sizeof(beside), &beside);
    }
    return failure;
}

static rota_status control_create(const struct settings *settings, struct control **control) {
    struct control *made = calloc(1, sizeof *made);
    if (made == NULL)
        return error_raise(ROTA_ERR_MEMORY, "no memory for the control thread");
    struct net_gate gate = {
        .context = made, .find = gate_find, .judge = gate_judge, .admit = gate_admit};
    rota_status status = ROTA_OK;
    made->epoll = epoll_create1(EPOLL_CLOEXEC);
    made->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (made->epoll < 0 || made->wake < 0)
        status = error_raise_system(errno, "cannot make the control thread's descriptors");
    if (status == ROTA_OK)
        status = net_listener_open(settings, &gate, &made->addresses, &made->listener);
    if (status == ROTA_OK) {
        struct epoll_event waking = {.events = EPOLLIN, .data.ptr = made};
        struct epoll_event listening = {.events = EPOLLIN, .data.ptr = made->listener};
        if (epoll_ctl(made->epoll, EPOLL_CTL_ADD, made->wake, &waking) != 0 ||
            epoll_ctl(made->epoll, EPOLL_CTL_ADD, net_listener_descriptor(made->listener),
                      &listening) != 0)
            status = error_raise_system(errno, "cannot watch the control thread's descriptors");
    }
    if (status == ROTA_OK) {
        int failure = start_thread(made);
        if (failure != 0)
            status = error_raise_system(failure, "cannot start the control thread");
    }
    if (status != ROTA_OK) {
        control_free(made);
        return status;
    }
    *control = made;
    return ROTA_OK;
}

rota_status control_acquire(const struct settings *settings, struct net_addresses *addresses) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    rota_status status = ROTA_OK;
    pthread_once(&once, install_fork_handler);
    pthread_mutex_lock(&lock);
    if (current == NULL)
        status = control_create(settings, &current);
    if (status == ROTA_OK) {
        current->references++;
        *addresses = current->addresses;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

void control_release(void) {
    pthread_mutex_lock(&lock);
    struct control *control = current;
    if (control == NULL || --control->references > 0) {
        pthread_mutex_unlock(&lock);
        return;
    }
    current = NULL;
    control->stop = true;
    control->detached = pthread_equal(control->thread, pthread_self()) != 0;
    pthread_cond_broadcast(&idle);
    bool detached = control->detached;
    pthread_mutex_unlock(&lock);
    if (detached) {
        pthread_detach(pthread_self());
        return;
    }
    wake(control);
    pthread_join(control->thread, NULL);
    control_free(control);
}

/* -- tables ------------------------------------------------------------------------------------
 */

static rota_status add_locked(struct control_service *service) {
    struct control_service *there = NULL;
    if (current == NULL)
        return error_raise(ROTA_ERR_STATE, "the control thread does not run");
    HASH_FIND(hh, current->services, &service->key, sizeof service->key, there);
    if (there != NULL)
        return error_raise(ROTA_ERR_MISMATCH, "rank %d of this job is in this process already",
                           service->identity.rank);
    HASH_ADD(hh, current->services, key, sizeof service->key, service);
    return ROTA_OK;
}

rota_status control_service_add(struct control_service *service) {
    pthread_mutex_lock(&lock);
    rota_status status = add_locked(service);
    pthread_mutex_unlock(&lock);
    return status;
}

static bool remove_locked(struct control_service *service) {
    struct control_service *there = NULL;
    struct control *control = current;
    if (control != NULL)
        HASH_FIND(hh, control->services, &service->key, sizeof service->key, there);
    if (there != service)
        return false;
    HASH_DEL(control->services, service);
    wait_until_idle(control, service);
    return true;
}

bool control_service_remove(struct control_service *service) {
    pthread_mutex_lock(&lock);
    bool removed = remove_locked(service);
    pthread_mutex_unlock(&lock);
    return removed;
}

struct control_service *control_service_take(const struct control_service_key *key) {
    struct control_service *service = NULL;
    pthread_mutex_lock(&lock);
    if (current != NULL)
        HASH_FIND(hh, current->services, key, sizeof *key, service);
    if (service != NULL)
        (void)remove_locked(service);
    pthread_mutex_unlock(&lock);
    return service;
}

static void job_orphaned(struct control_service *service) {
    free((struct job_entry *)service);
}

rota_status control_register(struct control_job *job) {
    struct job_entry *entry = calloc(1, sizeof *entry);
    if (entry == NULL)
        return error_raise(ROTA_ERR_MEMORY, "no memory to register a job");
    entry->job = job;
    entry->service.key.rank = (uint32_t)job->identity.rank;
    entry->service.key.kind = CONTROL_DATA;
    memcpy(entry->service.key.job, job->identity.job, sizeof entry->service.key.job);
    entry->service.identity = job->identity;
    entry->service.context = job->context;
    entry->service.judge = job->judge;
    entry->service.admitted = job->admitted;
    entry->service.orphaned = job_orphaned;
    rota_status status = control_service_add(&entry->service);
    if (status != ROTA_OK)
        free(entry);
    return status;
}

void control_unregister(struct control_job *job) {
    struct control_service_key key = {.rank = (uint32_t)job->identity.rank, .kind = CONTROL_DATA};
    struct control_service *service = NULL;
    memcpy(key.job, job->identity.job, sizeof key.job);
    pthread_mutex_lock(&lock);
    if (current != NULL)
        HASH_FIND(hh, current->services, &key, sizeof key, service);
    struct job_entry *entry = (struct job_entry *)service;
    if (entry != NULL && entry->job == job && remove_locked(service))
        free(entry);
    pthread_mutex_unlock(&lock);
}

rota_status control_watch_add(struct control_watch *watch) {
    rota_status status = ROTA_OK;
    pthread_mutex_lock(&lock);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = watch};
    if (current == NULL) {
        status = error_raise(ROTA_ERR_STATE, "the control thread does not run");
    } else if (epoll_ctl(current->epoll, EPOLL_CTL_ADD, watch->descriptor, &event) != 0) {
        status = error_raise_system(errno, "cannot watch a descriptor");
    } else {
        watch->next = current->watches;
        current->watches = watch;
        wake(current); /* its deadline counts from now on */
    }
    pthread_mutex_unlock(&lock);
    return status;
}

void control_watch_remove(struct control_watch *watch) {
    pthread_mutex_lock(&lock);
    struct control *control = current;
    struct control_watch **place = control != NULL ? &control->watches : NULL;
    while (place != NULL && *place != NULL && *place != watch)
        place = &(*place)->next;
    if (place != NULL && *place == watch) {
        *place = watch->next;
        epoll_ctl(control->epoll, EPOLL_CTL_DEL, watch->descriptor, NULL);
        wait_until_idle(control, watch);
    }
    pthread_mutex_unlock(&lock);
}
