/* Meeting by PMI, which MPICH's hydra, Intel's mpiexec and srun serve, as a key-value store.
 *
 * Design notes. A process has one connection to its PMI server, opened by the first job and kept
 * for later ones: the server hears "finalize" once, when the process exits normally, because one
 * that has said it cannot come back, and one that never says it counts as crashed (which is right
 * for a rank that was killed). We read and write a duplicate of the inherited descriptor, so that
 * an MPI library that closes the original cannot make us write to somebody else's file. Where an
 * MPI library had begun before us, the connection is its: it says goodbye, and dies of a second
 * one. The server's barrier is the store's fence: put by rank 0, barrier by all, get by all. Values
 * are sent in hexadecimal, in parts where the server's values are short. PMI-2 is spoken to servers
 * that refuse PMI-1. */
#include "base/clock.h"
#include "base/error.h"
#include "bootstrap/bounded.h"
#include "bootstrap/cancel.h"
#include "bootstrap/launcher.h"
#include "bootstrap/message.h"
#include "bootstrap/pmi_wire.h"
#include "bootstrap/resolve.h"
#include "bootstrap/store.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define GOODBYE_MS 1000 /* at exit, for the answer to "finalize" */
#define LEAST_VALUE 64  /* characters that a server's value must hold, the NUL included */
#define LEAST_KEY 24    /* the same of keys: "rota-" job "-" part */
#define MOST_VALUE 2048 /* more is not used, so that messages stay below PMI_MESSAGE */
#define KVS_NAME 257

static struct pmi_session {
    pthread_mutex_t lock; /* guards all of it; only ever tried */
    struct pmi_wire wire;
    bool open, broken;
    bool guest;  /* of an MPI library in this process, which will say goodbye itself */
    pid_t owner; /* the process that opened it: a forked child must not speak in its name */
    int rank, nranks;
    int value_size; /* of the server's values, NUL included */
    char kvs[KVS_NAME];
    int jobs; /* that were met by it */
    int64_t deadline_ns;
} session = {.lock = PTHREAD_MUTEX_INITIALIZER, .wire = {.socket = -1, .version = 1}};

/* -- opening -----------------------------------------------------------------------------------
 */

static rota_status adopt_descriptor(void) {
    int fd;
    struct stat about;
    rota_status status = launcher_number("PMI_FD", INT_MAX, &fd);
    if (status != ROTA_OK)
        return status;
    if (fstat(fd, &about) != 0 || !S_ISSOCK(about.st_mode))
        return error_raise(ROTA_ERR_SETTING,
                           "PMI_FD is %d, which is no open socket: the launcher's connection was "
                           "not inherited; start rota's ranks by the launcher itself or set "
                           "ROTA_RANK, ROTA_SIZE and ROTA_ROOT",
                           fd);
    session.wire.socket = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (session.wire.socket < 0)
        return error_raise_system(errno, "cannot duplicate the launcher's PMI_FD");
    return ROTA_OK;
}

static rota_status connect_to(const struct net_address *address) {
    struct sockaddr_storage storage;
    socklen_t length, size = sizeof(int);
    int failure = 0;
    net_address_to_socket(address, &storage, &length);
    int fd = socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return error_raise_system(errno, "cannot make a socket to the launcher (PMI_PORT)");
    session.wire.socket = fd;
    if (connect(fd, (struct sockaddr *)&storage, length) == 0)
        return ROTA_OK;
    if (errno != EINPROGRESS)
        return error_raise_system(errno, "cannot connect to the launcher (PMI_PORT)");
    struct pollfd event = {.fd = fd, .events = POLLOUT};
    while (!cancel_or_passed(session.deadline_ns))
        if (poll(&event, 1, clock_left_ms(cancel_look_ns(session.deadline_ns))) > 0)
            break;
    if (event.revents == 0)
        return error_raise(ROTA_ERR_TIMEOUT, "the launcher at PMI_PORT does not answer");
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &size) != 0 || failure != 0)
        return error_raise_system(failure, "cannot connect to the launcher (PMI_PORT)");
    return ROTA_OK;
}

/* The way of launchers that pass no descriptor: they tell rank and size here. */
static rota_status connect_port(void) {
    struct net_address addresses[NET_MAX_ADDRESSES];
    int count = 0, id;
    struct pmi_wire *wire = &session.wire;
    rota_status status = launcher_number("PMI_ID", INT_MAX, &id);
    if (status == ROTA_OK)
        status = resolve_address(getenv("PMI_PORT"), addresses, &count, session.deadline_ns);
    for (int i = 0; i < count; i++) {
        if (wire->socket >= 0)
            close(wire->socket); /* of the address before */
        wire->socket = -1;
        status = connect_to(&addresses[i]);
        if (status == ROTA_OK)
            break;
    }
    if (status == ROTA_OK)
        status = pmi_call(wire, "initack", session.deadline_ns, "cmd=initack;pmiid=%d;", id);
    if (status == ROTA_OK)
        status = pmi_await(wire, "set", session.deadline_ns);
    if (status == ROTA_OK)
        status = pmi_integer(wire, "size", 1, BOOTSTRAP_MAX_RANKS, &session.nranks);
    if (status == ROTA_OK)
        status = pmi_await(wire, "set", session.deadline_ns);
    if (status == ROTA_OK)
        status = pmi_integer(wire, "rank", 0, session.nranks - 1, &session.rank);
    if (status == ROTA_OK)
        status = pmi_await(wire, "set", session.deadline_ns); /* debug */
    return status;
}

/* -- the two versions --------------------------------------------------------------------------
 */

/* The first line is PMI-1's in both. */
static rota_status negotiate(void) {
    struct pmi_wire *wire = &session.wire;
    int answered = 0;
    rota_status status = ROTA_OK;
    wire->version = 1;
    for (int asked = 1; asked <= 2; asked++) {
        status = pmi_call(wire, "response_to_init", session.deadline_ns,
                          "cmd=init;pmi_version=%d;pmi_subversion=%d;", asked, asked == 1 ? 1 : 0);
        if (status == ROTA_OK)
            status = pmi_integer(wire, "pmi_version", 0, INT_MAX, &answered);
        if (status == ROTA_OK && answered == asked) {
            wire->version = asked;
            return ROTA_OK;
        }
        if (status != ROTA_OK && status != ROTA_ERR_SYSTEM)
            return status; /* no refusal, but a broken connection */
    }
    if (status != ROTA_OK)
        return status;
    return error_raise(ROTA_ERR_FORMAT, "the launcher speaks version %d of PMI, expected 1 or 2",
                       answered);
}

static rota_status begin_version_1(void) {
    struct pmi_wire *wire = &session.wire;
    int key_size = 0;
    rota_status status = pmi_call(wire, "maxes", session.deadline_ns, "cmd=get_maxes;");
    if (status == ROTA_OK)
        status = pmi_integer(wire, "keylen_max", LEAST_KEY, INT_MAX, &key_size);
    if (status == ROTA_OK)
        status = pmi_integer(wire, "vallen_max", LEAST_VALUE, INT_MAX, &session.value_size);
    if (status == ROTA_OK)
        status = pmi_call(wire, "my_kvsname", session.deadline_ns, "cmd=get_my_kvsname;");
    if (status == ROTA_OK)
        status = pmi_text(wire, "kvsname", session.kvs, KVS_NAME);
    return status;
}

static rota_status begin_version_2(void) {
    struct pmi_wire *wire = &session.wire;
    const char *job = getenv("PMI_JOBID");
    int rank = 0, size = 0;
    bool known = job != NULL && job[0] != 0 && strlen(job) < KVS_NAME && strchr(job, ';') == NULL;
    session.value_size = 1024; /* PMI2_MAX_VALLEN */
    rota_status status =
        pmi_call(wire, "fullinit-response", session.deadline_ns,
                 "cmd=fullinit;%s%s%spmirank=%d;threaded=FALSE;", known ? "pmijobid=" : "",
                 known ? job : "", known ? ";" : "", session.rank);
    if (status == ROTA_OK)
        status = pmi_integer(wire, "size", 1, BOOTSTRAP_MAX_RANKS, &size);
    if (status == ROTA_OK)
        status = pmi_integer(wire, "rank", 0, size - 1, &rank);
    if (status == ROTA_OK && (rank != session.rank || size != session.nranks))
        return error_raise(ROTA_ERR_SETTING,
                           "PMI_RANK and PMI_SIZE are %d and %d, but the launcher says %d and %d",
                           session.rank, session.nranks, rank, size);
    if (status == ROTA_OK)
        status = pmi_call(wire, "job-getid-response", session.deadline_ns, "cmd=job-getid;");
    if (status == ROTA_OK)
        status = pmi_text(wire, "jobid", session.kvs, KVS_NAME);
    return status;
}

/* Whether an MPI library in this process speaks with the server already. */
static bool mpi_has_begun(void) {
    int (*initialized)(int *flag);
    int flag = 0;
    *(void **)&initialized = dlsym(RTLD_DEFAULT, "MPI_Initialized");
    return initialized != NULL && initialized(&flag) == 0 && flag != 0;
}

/* Tells the server that this process ends in order; see the design notes. */
static void say_goodbye(void) {
    if (pthread_mutex_trylock(&session.lock) != 0)
        return;
    int64_t deadline_ns = clock_deadline(GOODBYE_MS);
    if (session.open && !session.broken && !session.guest && session.owner == getpid()) {
        bool first = session.wire.version == 1;
        (void)pmi_call(&session.wire, first ? "finalize_ack" : "finalize-response", deadline_ns,
                       "cmd=finalize;");
        session.broken = true;
    }
    pthread_mutex_unlock(&session.lock);
}

static rota_status session_open(const struct bootstrap_place *place) {
    session.rank = place->rank;
    session.nranks = place->nranks;
    session.owner = getpid();
    session.guest = mpi_has_begun();
    rota_status status = launcher_is_set("PMI_FD") ? adopt_descriptor() : connect_port();
    if (status == ROTA_OK && place->nranks > 0 &&
        (session.rank != place->rank || session.nranks != place->nranks))
        status = error_raise(ROTA_ERR_SETTING,
                             "PMI_RANK and PMI_SIZE are %d and %d, but the launcher says %d and %d",
                             place->rank, place->nranks, session.rank, session.nranks);
    if (status == ROTA_OK)
        status = negotiate();
    if (status == ROTA_OK)
        status = session.wire.version == 1 ? begin_version_1() : begin_version_2();
    if (status != ROTA_OK) {
        if (session.wire.socket >= 0)
            close(session.wire.socket);
        session.wire = (struct pmi_wire){.socket = -1, .version = 1};
        return status;
    }
    session.open = true;
    (void)atexit(say_goodbye); /* without it the launcher reports a crash at the end */
    return ROTA_OK;
}

/* -- the store ---------------------------------------------------------------------------------
 */

/* Bytes of a value that go into one of the server's. */
static size_t part_bytes(void) {
    int size = session.value_size < MOST_VALUE ? session.value_size : MOST_VALUE;
    return (size_t)(size - 1) / 2;
}

static int pmi_set(void *arg, const char *key, const void *value, size_t bytes) {
    struct pmi_wire *wire = &session.wire;
    char hex[MOST_VALUE + 1];
    (void)arg, (void)key;
    rota_status status = ROTA_OK;
    for (size_t done = 0, part = 0; done < bytes && status == ROTA_OK; part++) {
        size_t n = bytes - done < part_bytes() ? bytes - done : part_bytes();
        sodium_bin2hex(hex, sizeof hex, (const unsigned char *)value + done, n);
        if (wire->version == 1)
            status = pmi_call(wire, "put_result", session.deadline_ns,
                              "cmd=put;kvsname=%s;key=rota-%d-%zu;value=%s;", session.kvs,
                              session.jobs, part, hex);
        else
            status = pmi_call(wire, "kvs-put-response", session.deadline_ns,
                              "cmd=kvs-put;key=rota-%d-%zu;value=%s;", session.jobs, part, hex);
        done += n;
    }
    return status == ROTA_OK ? 0 : -1;
}

static rota_status get_part(size_t part, unsigned char *value, size_t bytes) {
    struct pmi_wire *wire = &session.wire;
    char hex[MOST_VALUE + 1];
    size_t length = 0;
    rota_status status;
    if (wire->version == 1)
        status = pmi_call(wire, "get_result", session.deadline_ns,
                          "cmd=get;kvsname=%s;key=rota-%d-%zu;", session.kvs, session.jobs, part);
    else
        status = pmi_call(wire, "kvs-get-response", session.deadline_ns,
                          "cmd=kvs-get;jobid=%s;srcid=-1;key=rota-%d-%zu;", session.kvs,
                          session.jobs, part);
    if (status == ROTA_OK)
        status = pmi_text(wire, "value", hex, sizeof hex);
    if (status == ROTA_OK && (sodium_hex2bin(value, bytes, hex, strlen(hex), NULL, &length, NULL) ||
                              length != bytes || strlen(hex) != 2 * bytes))
        return error_raise(ROTA_ERR_FORMAT,
                           "the launcher's PMI server returned another value than rank 0 has put");
    return status;
}

/* The fence comes first; of the value this store knows that it fills the capacity. */
static int pmi_get(void *arg, const char *key, void *value, size_t capacity, size_t *bytes,
                   int64_t timeout_ms) {
    struct pmi_wire *wire = &session.wire;
    unsigned char *out = value;
    (void)arg, (void)key, (void)timeout_ms; /* the session holds the deadline */
    rota_status status;
    if (wire->version == 1)
        status = pmi_call(wire, "barrier_out", session.deadline_ns, "cmd=barrier_in;");
    else
        status = pmi_call(wire, "kvs-fence-response", session.deadline_ns, "cmd=kvs-fence;");
    for (size_t done = 0, part = 0; done < capacity && status == ROTA_OK; part++) {
        size_t n = capacity - done < part_bytes() ? capacity - done : part_bytes();
        status = get_part(part, out + done, n);
        done += n;
    }
    *bytes = capacity;
    return status == ROTA_OK ? 0 : -1;
}

static rota_status agree_locked(struct bootstrap_place *place, int64_t deadline_ns) {
    static const rota_store store = {.size = sizeof store, .set = pmi_set, .get = pmi_get};
    if (session.broken)
        return error_raise(ROTA_ERR_STATE,
                           "an earlier rota_init lost the launcher's PMI server: start again, or "
                           "pass an id, a store or an all-gather");
    if (session.open && session.owner != getpid())
        return error_raise(ROTA_ERR_STATE,
                           "the connection to the launcher's PMI server is that of process %d, "
                           "which forked this one",
                           (int)session.owner);
    session.deadline_ns = deadline_ns;
    if (!session.open) {
        rota_status status = session_open(place);
        if (status != ROTA_OK)
            return status;
    }
    place->rank = session.rank;
    place->nranks = session.nranks;
    place->identity.rank = session.rank;
    rota_status status = store_agree(place, &store, true, deadline_ns);
    session.jobs++;
    /* Half a conversation cannot be taken up again. */
    session.broken = status != ROTA_OK;
    return status;
}

rota_status pmi_agree(struct bootstrap_place *place, int64_t deadline_ns) {
    int64_t begun_ns = clock_now_ns();
    if (pthread_mutex_trylock(&session.lock) != 0)
        return error_raise(ROTA_ERR_BUSY, "another thread of this process is joining a job by the "
                                          "launcher's PMI");
    rota_status status = agree_locked(place, deadline_ns);
    pthread_mutex_unlock(&session.lock);
    if (status == ROTA_ERR_TIMEOUT)
        error_record()->waited_ms = (uint64_t)((clock_now_ns() - begun_ns) / 1000000);
    return status;
}
