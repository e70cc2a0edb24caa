/* Unique ids: making one and serving its rendezvous on the control thread.
 *
 * Design notes. An id costs one entry in the control thread's table, no thread and no descriptor;
 * the rendezvous itself is made when the first rank comes. Once the job has met, the entry stays
 * as a tombstone that answers later comers with a usage error, until the control thread ends or
 * MAX_TOMBSTONES newer ones push it out. Until then it holds a reference to the control thread. */
#include "bootstrap/unique_id.h"
#include "base/clock.h"
#include "base/error.h"
#include "bootstrap/rendezvous.h"
#include "bootstrap/service.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_TOMBSTONES 256
#define MAX_USED 256

struct id_server {
    struct control_service service;
    struct control_watch watch;
    struct rendezvous *rendezvous; /* NULL: nobody has come, or the job has met */
    bool met;
    bool once;               /* ends with its first rendezvous, without a tombstone */
    struct id_server *newer; /* tombstone made after this one */
};

/* Guards the end of servers that serve once: what a withdrawal has found is not freed meanwhile. */
static pthread_mutex_t once_lock = PTHREAD_MUTEX_INITIALIZER;

/* Tombstones, oldest first; touched by control threads only, and a stale one frees its own. */
static pthread_mutex_t tombstone_lock = PTHREAD_MUTEX_INITIALIZER;
static struct id_server *oldest, *newest;
static int ntombstones;

/* -- tombstones --------------------------------------------------------------------------------
 */

static void tombstone_unlink(struct id_server *server) {
    struct id_server **place = &oldest, *before = NULL;
    while (*place != NULL && *place != server) {
        before = *place;
        place = &before->newer;
    }
    if (*place == NULL)
        return;
    *place = server->newer;
    if (newest == server)
        newest = before;
    ntombstones--;
}

/* Makes a server one; returns the one that has to go for it. */
static struct id_server *tombstone_add(struct id_server *server) {
    struct id_server *victim = NULL;
    pthread_mutex_lock(&tombstone_lock);
    server->newer = NULL;
    if (newest != NULL)
        newest->newer = server;
    else
        oldest = server;
    newest = server;
    if (++ntombstones > MAX_TOMBSTONES) {
        victim = oldest;
        tombstone_unlink(victim);
    }
    pthread_mutex_unlock(&tombstone_lock);
    return victim;
}

/* -- serving, on the control thread ------------------------------------------------------------
 */

static void server_orphaned(struct control_service *service) {
    struct id_server *server = service->context;
    pthread_mutex_lock(&tombstone_lock);
    tombstone_unlink(server);
    pthread_mutex_unlock(&tombstone_lock);
    rendezvous_destroy(server->rendezvous);
    free(server);
}

static void server_close_rendezvous(struct id_server *server) {
    control_watch_remove(&server->watch);
    rendezvous_destroy(server->rendezvous);
    server->rendezvous = NULL;
}

static void server_end_once(struct id_server *server) {
    pthread_mutex_lock(&once_lock);
    server_close_rendezvous(server);
    (void)control_service_remove(&server->service); /* unless it was withdrawn meanwhile */
    free(server);
    pthread_mutex_unlock(&once_lock);
    control_release();
}

static void server_ready(void *context) {
    struct id_server *server = context;
    bool met;
    rendezvous_step(server->rendezvous);
    server->watch.deadline_ns = rendezvous_deadline(server->rendezvous);
    if (!rendezvous_ended(server->rendezvous, &met))
        return;
    if (server->once) {
        server_end_once(server);
        return;
    }
    server_close_rendezvous(server);
    if (!met)
        return; /* the ranks may try again */
    server->met = true;
    struct id_server *victim = tombstone_add(server);
    if (victim != NULL && control_service_remove(&victim->service))
        free(victim);  /* else it is freed as an orphan */
    control_release(); /* may end this thread, and with it the server */
}

static void answer_used(int socket) {
    struct {
        struct bootstrap_header header;
        struct bootstrap_failure failure;
    } message = {.header = {.magic = NET_MAGIC,
                            .type = BOOTSTRAP_ERROR,
                            .bytes = sizeof(struct bootstrap_failure)}};
    (void)bootstrap_id_used_raise();
    bootstrap_failure_fill(&message.failure);
    (void)!send(socket, &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT);
    shutdown(socket, SHUT_WR);
    close(socket);
}

static bool server_begin(struct id_server *server) {
    if (rendezvous_create(&server->rendezvous) != ROTA_OK)
        return false;
    server->watch = (struct control_watch){.descriptor = rendezvous_descriptor(server->rendezvous),
                                           .deadline_ns = CLOCK_NEVER,
                                           .context = server,
                                           .ready = server_ready};
    if (control_watch_add(&server->watch) == ROTA_OK)
        return true;
    rendezvous_destroy(server->rendezvous);
    server->rendezvous = NULL;
    return false;
}

static void server_admitted(void *context, const struct net_hello *hello, int socket,
                            const int *descriptors, int ndescriptors) {
    struct id_server *server = context;
    (void)hello;
    for (int i = 0; i < ndescriptors; i++)
        close(descriptors[i]);
    if (server->met)
        answer_used(socket);
    else if (server->rendezvous != NULL || server_begin(server))
        rendezvous_add(server->rendezvous, socket);
    else
        close(socket); /* the rank tries again */
}

/* -- making ------------------------------------------------------------------------------------
 */

static void fill_id(struct unique_id *id, const struct net_addresses *addresses) {
    memset(id, 0, sizeof *id);
    id->magic = NET_MAGIC;
    id->version = UNIQUE_ID_VERSION;
    net_random(id->key, sizeof id->key);
    net_random(id->job, sizeof id->job);
    memcpy(id->inet, addresses->inet, sizeof id->inet);
    if (strlen(addresses->local_name) < sizeof id->local_name)
        memcpy(id->local_name, addresses->local_name, strlen(addresses->local_name));
}

static rota_status server_create(const struct unique_id *id, bool once) {
    struct id_server *server = calloc(1, sizeof *server);
    if (server == NULL)
        return error_raise(ROTA_ERR_MEMORY, "no memory for a unique id");
    server->once = once;
    struct control_service *service = &server->service;
    memcpy(service->key.job, id->job, sizeof id->job);
    service->key.rank = CONTROL_ANY_RANK;
    service->key.kind = CONTROL_RENDEZVOUS;
    memcpy(service->identity.key, id->key, sizeof id->key);
    memcpy(service->identity.job, id->job, sizeof id->job);
    service->identity.rank = -1;
    service->identity.protocol_first = 1;
    service->identity.protocol_last = UINT16_MAX; /* the rendezvous names the difference */
    service->context = server;
    service->admitted = server_admitted;
    service->orphaned = server_orphaned;
    rota_status status = control_service_add(service);
    if (status != ROTA_OK)
        free(server);
    return status;
}

static rota_status make_id(rota_unique_id *id, bool once) {
    struct settings *settings;
    struct net_addresses addresses;
    struct unique_id made;
    if (id == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "the pointer to the unique id is NULL");
    rota_status status = settings_load(&settings);
    if (status != ROTA_OK)
        return status;
    status = control_acquire(settings, &addresses);
    settings_free(settings);
    if (status != ROTA_OK)
        return status;
    fill_id(&made, &addresses);
    status = server_create(&made, once);
    if (status != ROTA_OK) {
        control_release();
        return status;
    }
    memcpy(id->bytes, &made, sizeof made);
    return ROTA_OK;
}

rota_status bootstrap_unique_id(rota_unique_id *id) {
    return make_id(id, false);
}

rota_status bootstrap_unique_id_once(rota_unique_id *id) {
    return make_id(id, true);
}

void bootstrap_unique_id_withdraw(const uint8_t job[16]) {
    struct control_service_key key = {.rank = CONTROL_ANY_RANK, .kind = CONTROL_RENDEZVOUS};
    memcpy(key.job, job, sizeof key.job);
    pthread_mutex_lock(&once_lock);
    struct control_service *service = control_service_take(&key);
    struct id_server *server = service != NULL ? service->context : NULL;
    /* A rendezvous that has begun ends by the deadlines of those who came. */
    bool idle = server != NULL && server->rendezvous == NULL;
    if (idle)
        free(server);
    pthread_mutex_unlock(&once_lock);
    if (idle)
        control_release();
}

rota_status bootstrap_unique_id_read(const rota_unique_id *id, struct bootstrap_place *place) {
    struct unique_id read;
    memcpy(&read, id->bytes, sizeof read);
    if (read.magic != NET_MAGIC)
        return error_raise(ROTA_ERR_ARGUMENT,
                           "the unique id was not made by rota_unique_id_create");
    if (read.version != UNIQUE_ID_VERSION)
        return error_raise(ROTA_ERR_ARGUMENT, "the unique id has version %u, expected %u",
                           read.version, UNIQUE_ID_VERSION);
    struct net_addresses root = {0};
    memcpy(root.inet, read.inet, sizeof read.inet);
    memcpy(root.local_name, read.local_name, sizeof read.local_name - 1);
    if (!net_addresses_valid(&root))
        return error_raise(ROTA_ERR_ARGUMENT, "the unique id is damaged");
    place->root = root;
    memcpy(place->identity.key, read.key, sizeof read.key);
    memcpy(place->identity.job, read.job, sizeof read.job);
    return ROTA_OK;
}

/* -- ids used here -----------------------------------------------------------------------------
 */

static pthread_mutex_t used_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    uint8_t job[16];
    int rank;
} used[MAX_USED];
static unsigned nused;

rota_status bootstrap_id_used_raise(void) {
    return error_raise(ROTA_ERR_ARGUMENT,
                       "this unique id was used for a job already: make a new one for each job");
}

bool bootstrap_id_is_used(const struct net_identity *identity) {
    bool found = false;
    pthread_mutex_lock(&used_lock);
    for (unsigned i = 0; i < nused && i < MAX_USED && !found; i++)
        found = used[i].rank == identity->rank &&
                memcmp(used[i].job, identity->job, sizeof identity->job) == 0;
    pthread_mutex_unlock(&used_lock);
    return found;
}

void bootstrap_id_use(const struct net_identity *identity) {
    pthread_mutex_lock(&used_lock);
    memcpy(used[nused % MAX_USED].job, identity->job, sizeof identity->job);
    used[nused % MAX_USED].rank = identity->rank;
    nused++;
    pthread_mutex_unlock(&used_lock);
}
