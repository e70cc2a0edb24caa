/* Six processes on two pretended hosts; every buffer ends where no memory is. */
#include "ranks.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 6, MOST = 40, RED_BYTE = 0xA5 };

/* A buffer whose last byte is the last before a page that nobody may touch. */
struct fenced {
    unsigned char *memory;
    size_t page, bytes;
    float *data;
};

static void fenced_take(struct fenced *fenced, size_t count) {
    fenced->page = (size_t)sysconf(_SC_PAGESIZE);
    fenced->bytes = count * sizeof(float);
    fenced->memory =
        mmap(NULL, 2 * fenced->page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fenced->memory == MAP_FAILED ||
        mprotect(fenced->memory + fenced->page, fenced->page, PROT_NONE) != 0)
        abort();
    memset(fenced->memory, RED_BYTE, fenced->page);
    fenced->data = (float *)(void *)(fenced->memory + fenced->page - fenced->bytes);
}

static void fenced_read_only(const struct fenced *fenced) {
    if (mprotect(fenced->memory, fenced->page, PROT_READ) != 0)
        abort();
}

/* What is before the buffer is as it was; frees it. */
static bool fenced_give_back(struct fenced *fenced) {
    bool intact = true;
    for (size_t i = 0; i < fenced->page - fenced->bytes; i++)
        intact &= fenced->memory[i] == RED_BYTE;
    munmap(fenced->memory, 2 * fenced->page);
    return intact;
}

/* Whole numbers, so that sums are exact in any order. */
static float value_of(int rank, size_t i) {
    return (float)(rank * 1000 + (int)(i * 7 % 501));
}

static float sum_of(size_t i) {
    float sum = 0;
    for (int r = 0; r < RANKS; r++)
        sum += value_of(r, i);
    return sum;
}

static void check_sums(const float *data, size_t first, size_t count, const char *what) {
    for (size_t i = 0; i < count; i++)
        if (data[i] != sum_of(first + i)) {
            CHECK(false, "%s of %zu: element %zu is %g", what, count, i, (double)data[i]);
            return;
        }
}

static void check_all_reduce(rota_comm *comm, int rank, size_t count) {
    struct fenced send, recv;
    fenced_take(&send, count);
    fenced_take(&recv, count);
    for (size_t i = 0; i < count; i++)
        send.data[i] = recv.data[i] = value_of(rank, i);
    fenced_read_only(&send);
    CHECK_OK(rota_all_reduce(send.data, recv.data, count, ROTA_FLOAT32, ROTA_SUM, comm, NULL));
    check_sums(recv.data, 0, count, "all_reduce");
    for (size_t i = 0; i < count; i++)
        recv.data[i] = value_of(rank, i);
    CHECK_OK(rota_all_reduce(recv.data, recv.data, count, ROTA_FLOAT32, ROTA_SUM, comm, NULL));
    check_sums(recv.data, 0, count, "all_reduce in place");
    CHECK(fenced_give_back(&recv) && fenced_give_back(&send), "all_reduce: bytes before a buffer");
}

/* The same sum in two operations. */
static void check_two_halves(rota_comm *comm, int rank, size_t count) {
    struct fenced send, block, recv;
    fenced_take(&send, count * RANKS);
    fenced_take(&block, count);
    fenced_take(&recv, count * RANKS);
    for (size_t i = 0; i < count * RANKS; i++)
        send.data[i] = value_of(rank, i);
    fenced_read_only(&send);
    CHECK_OK(rota_reduce_scatter(send.data, block.data, count, ROTA_FLOAT32, ROTA_SUM, comm, NULL));
    check_sums(block.data, (size_t)rank * count, count, "reduce_scatter");
    fenced_read_only(&block);
    CHECK_OK(rota_all_gather(block.data, recv.data, count, ROTA_FLOAT32, comm, NULL));
    check_sums(recv.data, 0, count * RANKS, "all_gather");
    bool intact = fenced_give_back(&send);
    intact &= fenced_give_back(&block);
    intact &= fenced_give_back(&recv);
    CHECK(intact, "reduce_scatter and all_gather: bytes before a buffer");
}

static int host_of(int rank, bool mixed) {
    return mixed ? rank % 2 : rank / 3;
}

/* Ranks of the other host were spoken with by tcp, if at all; some of them were. */
static void check_hosts(rota_comm *comm, int rank, bool mixed) {
    int far = 0;
    for (int peer = 0; peer < RANKS; peer++) {
        rota_peer_counters counters = ROTA_PEER_COUNTERS_INIT;
        CHECK_OK(rota_comm_peer_counters(comm, peer, &counters));
        if (host_of(peer, mixed) == host_of(rank, mixed))
            continue;
        CHECK(strcmp(counters.transport, "shm") != 0, "rank %d by shm", peer);
        far += strcmp(counters.transport, "tcp") == 0 && counters.messages_sent > 0;
    }
    int32_t mine = far, all = 0;
    CHECK_OK(rota_all_reduce(&mine, &all, 1, ROTA_INT32, ROTA_SUM, comm, NULL));
    CHECK(all > 0, "nothing passed between the hosts");
}

struct place {
    const char *algorithm;
    bool mixed;
};

static void be_rank(const struct rank *how) {
    const struct place *place = how->arg;
    int rank = how->rank;
    rota_comm *comm = NULL;
    setenv("ROTA_ALGORITHM", place->algorithm, 1);
    rota_status status = rota_init(NULL, &comm, NULL);
    CHECK(status == ROTA_OK, "init: %s", last_error()->message);
    if (status != ROTA_OK)
        return;
    for (size_t count = 1; count <= MOST; count++) {
        check_all_reduce(comm, rank, count);
        check_two_halves(comm, rank, count);
    }
    static const rota_kind kinds[] = {ROTA_KIND_ALL_REDUCE, ROTA_KIND_REDUCE_SCATTER,
                                      ROTA_KIND_ALL_GATHER};
    for (int k = 0; k < 3; k++) {
        const char *ran = rota_comm_algorithm(comm, kinds[k]);
        CHECK(ran != NULL && (place->algorithm[0] == '\0' || strcmp(ran, place->algorithm) == 0),
              "%s ran by %s, expected %s", rota_kind_name(kinds[k]), ran, place->algorithm);
    }
    check_hosts(comm, rank, place->mixed);
    CHECK_OK(rota_comm_finalize(comm, NULL));
    CHECK_OK(rota_comm_destroy(comm));
}

/* cases_main counts the failures of a process: a rank is a process with this one case. */
static struct rank self;

static void as_rank(void) {
    be_rank(&self);
}

static const struct test_case rank_cases[] = {{"a rank", as_rank}, {NULL, NULL}};

static void run_job(struct place *place) {
    static int jobs;
    pid_t pids[RANKS];
    char text[64];
    snprintf(text, sizeof(text), "@rota-places-%d-%d", (int)getpid(), jobs++);
    setenv("ROTA_ROOT", text, 1);
    setenv("ROTA_JOB_KEY", "a key for the test", 1);
    setenv("ROTA_SIZE", "6", 1);
    setenv("ROTA_INIT_TIMEOUT_MS", "20000", 1);
    setenv("ROTA_TIMEOUT_MS", "20000", 1);
    fflush(NULL);
    for (int r = 0; r < RANKS; r++) {
        pids[r] = fork();
        if (pids[r] != 0)
            continue;
        char *none[] = {NULL};
        snprintf(text, sizeof(text), "%d", r);
        setenv("ROTA_RANK", text, 1);
        setenv("ROTA_HOST_ID", host_of(r, place->mixed) == 0 ? "pretended-a" : "pretended-b", 1);
        self = (struct rank){.rank = r, .nranks = RANKS, .arg = place};
        exit(cases_main(rank_cases, 0, none));
    }
    for (int r = 0; r < RANKS; r++) {
        int status = -1;
        CHECK(pids[r] > 0 && waitpid(pids[r], &status, 0) == pids[r], "rank %d was not there", r);
        CHECK(status == 0, "%s, %s: rank %d ended with wait status %#x",
              place->algorithm[0] ? place->algorithm : "default",
              place->mixed ? "hosts in turn" : "hosts one after the other", r, (unsigned)status);
    }
}

static void C18_two_hosts_and_fences(void) {
    static struct place places[] = {
        {"hierarchical", false}, {"", false}, {"hierarchical", true}, {"", true}};
    for (int i = 0; i < 4; i++)
        run_job(&places[i]);
}

int main(int argc, char **argv) {
    static const struct test_case cases[] = {{"C18_two_hosts_and_fences", C18_two_hosts_and_fences},
                                             {NULL, NULL}};
    return cases_main(cases, argc, argv);
}
