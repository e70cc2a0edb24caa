/* One rank of a fault campaign (script/faults): calls random operations, checks what comes back,
 * and tells on stdout, one JSON object per line, when it is ready, when and how its first call
 * failed, and when destroy returned. All ranks draw the same operations from the same seed.
 *
 *   campaign_rank SEED TIMEOUT_MS MAX_BYTES
 *
 * It ends well when its stdin is closed on rank 0: rank 0 says so in the next round. When rank 0
 * reads a digit, all say that they pause, and do nothing for so many seconds. */
#include <poll.h>
#include <rota/rota.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ROUND = 8, STOP = -1 };

struct campaign {
    rota_comm *comm;
    int rank, nranks;
    uint64_t random; /* the same on all ranks */
    size_t most;     /* elements of int64 per block */
    int64_t *send, *recv;
    uint64_t calls;
    const char *called;
    size_t count;
};

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t draw(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* What rank r has at element i of block b in this call. */
static int64_t value(const struct campaign *c, int r, int b, size_t i) {
    return (int64_t)(c->calls * 1000003 + (uint64_t)r * 7919 + (uint64_t)b * 104729 + i);
}

static void fill(struct campaign *c, int blocks) {
    for (int b = 0; b < blocks; b++)
        for (size_t i = 0; i < c->count; i++)
            c->send[(size_t)b * c->count + i] = value(c, c->rank, b, i);
}

static int64_t sum_of(const struct campaign *c, int block, size_t i) {
    int64_t sum = 0;
    for (int r = 0; r < c->nranks; r++)
        sum += value(c, r, block, i);
    return sum;
}

static void wrong(const struct campaign *c, size_t at) {
    printf("{\"event\":\"wrong\",\"rank\":%d,\"operation\":\"%s\",\"count\":%zu,\"at\":%zu}\n",
           c->rank, c->called, c->count, at);
    fflush(stdout);
    _exit(3);
}

enum shape { SUMMED, GATHERED, EXCHANGED, ROOTS_OWN, SUMMED_BLOCK, SCATTERED };

static void check(const struct campaign *c, enum shape shape, int root) {
    bool blocks = shape == GATHERED || shape == EXCHANGED;
    size_t total = c->count * (size_t)(blocks ? c->nranks : 1);
    for (size_t at = 0; at < total; at++) {
        int block = (int)(at / c->count);
        size_t i = at % c->count;
        int64_t expected = 0;
        switch (shape) {
        case SUMMED:
            expected = sum_of(c, 0, i);
            break;
        case GATHERED:
            expected = value(c, block, 0, i);
            break;
        case EXCHANGED:
            expected = value(c, block, c->rank, i);
            break;
        case ROOTS_OWN:
            expected = value(c, root, 0, i);
            break;
        case SUMMED_BLOCK:
            expected = sum_of(c, c->rank, i);
            break;
        case SCATTERED:
            expected = value(c, root, c->rank, i);
            break;
        }
        if (c->recv[at] != expected)
            wrong(c, at);
    }
}

/* Everybody sends to the next rank and receives from the one before. */
static rota_status shift(struct campaign *c) {
    int next = (c->rank + 1) % c->nranks, before = (c->rank + c->nranks - 1) % c->nranks;
    rota_request *request = NULL;
    rota_call call = ROTA_CALL_INIT;
    call.request = &request;
    rota_status status = rota_recv(c->recv, c->count, ROTA_INT64, before, 5, c->comm, NULL, &call);
    if (status != ROTA_OK)
        return status;
    status = rota_send(c->send, c->count, ROTA_INT64, next, 5, c->comm, NULL);
    rota_status received = rota_request_wait(request, 0);
    if (received == ROTA_OK)
        check(c, ROOTS_OWN, before);
    rota_request_free(request);
    return status != ROTA_OK ? status : received;
}

static rota_status call_one(struct campaign *c) {
    static const char *const names[] = {"all_reduce", "broadcast", "all_gather", "reduce_scatter",
                                        "all_to_all", "reduce",    "gather",     "scatter",
                                        "barrier",    "send_recv"};
    unsigned which = (unsigned)(draw(&c->random) % 10);
    int root = (int)(draw(&c->random) % (unsigned)c->nranks);
    unsigned bits = (unsigned)(draw(&c->random) % 21);
    size_t count = (size_t)(draw(&c->random) % (1ull << bits)) + 1;
    c->count = count < c->most ? count : c->most;
    c->called = names[which];
    c->calls++;
    fill(c, c->nranks);
    bool at_root = c->rank == root;
    rota_status status = ROTA_OK;
    enum shape shape = SUMMED;
    bool checks = true;
    switch (which) {
    case 0:
        status = rota_all_reduce(c->send, c->recv, c->count, ROTA_INT64, ROTA_SUM, c->comm, NULL);
        break;
    case 1:
        status = rota_broadcast(c->send, c->recv, c->count, ROTA_INT64, root, c->comm, NULL);
        shape = ROOTS_OWN;
        break;
    case 2:
        status = rota_all_gather(c->send, c->recv, c->count, ROTA_INT64, c->comm, NULL);
        shape = GATHERED;
        break;
    case 3:
        status =
            rota_reduce_scatter(c->send, c->recv, c->count, ROTA_INT64, ROTA_SUM, c->comm, NULL);
        shape = SUMMED_BLOCK;
        break;
    case 4:
        status = rota_all_to_all(c->send, c->recv, c->count, ROTA_INT64, c->comm, NULL);
        shape = EXCHANGED;
        break;
    case 5:
        status = rota_reduce(c->send, c->recv, c->count, ROTA_INT64, ROTA_SUM, root, c->comm, NULL);
        checks = at_root;
        break;
    case 6:
        status = rota_gather(c->send, c->recv, c->count, ROTA_INT64, root, c->comm, NULL);
        shape = GATHERED;
        checks = at_root;
        break;
    case 7:
        status = rota_scatter(c->send, c->recv, c->count, ROTA_INT64, root, c->comm, NULL);
        shape = SCATTERED;
        break;
    case 8:
        status = rota_barrier(c->comm, NULL);
        checks = false;
        break;
    default:
        return shift(c);
    }
    if (status == ROTA_OK && checks)
        check(c, shape, root);
    return status;
}

/* Rank 0 asks its stdin whether to go on, and tells the others. */
static rota_status go_on(struct campaign *c, int64_t *stop) {
    if (c->rank == 0) {
        struct pollfd in = {.fd = 0, .events = POLLIN};
        char character;
        *stop = 0;
        if (poll(&in, 1, 0) > 0)
            *stop = read(0, &character, 1) > 0 ? character - '0' : STOP;
    }
    c->called = "broadcast";
    c->count = 1;
    return rota_broadcast(stop, c->rank == 0 ? stop : &stop[1], 1, ROTA_INT64, 0, c->comm, NULL);
}

static void print_text(const char *name, const char *text) {
    printf(",\"%s\":\"", name);
    for (; *text != '\0'; text++)
        if (*text == '"' || *text == '\\')
            printf("\\%c", *text);
        else if ((unsigned char)*text < 32)
            printf(" ");
        else
            putchar(*text);
    putchar('"');
}

static void tell_failure(const struct campaign *c, rota_status status, int64_t at_ns) {
    rota_error error = ROTA_ERROR_INIT;
    rota_comm_error(c->comm, &error);
    printf("{\"event\":\"failed\",\"rank\":%d,\"at_ns\":%lld,\"status\":\"%s\",\"calls\":%llu",
           c->rank, (long long)at_ns, rota_status_name(status), (unsigned long long)c->calls);
    printf(",\"culprits\":[");
    for (int i = 0; i < error.culprit_count; i++)
        printf("%s%d", i > 0 ? "," : "", error.culprits[i]);
    printf("],\"peer\":%d,\"epoch\":%u", error.peer, error.epoch);
    print_text("operation", c->called);
    print_text("message", error.message);
    printf("}\n");
    fflush(stdout);
}

static void tell(const char *event, int rank, uint64_t calls) {
    printf("{\"event\":\"%s\",\"rank\":%d,\"at_ns\":%lld,\"calls\":%llu}\n", event, rank,
           (long long)now_ns(), (unsigned long long)calls);
    fflush(stdout);
}

static rota_status run(struct campaign *c) {
    int64_t stop[2] = {0, 0};
    for (;;) {
        rota_status status = go_on(c, stop);
        if (status != ROTA_OK)
            return status;
        int64_t what = c->rank == 0 ? stop[0] : stop[1];
        if (what == STOP)
            return ROTA_OK;
        if (what > 0) {
            tell("pausing", c->rank, c->calls);
            sleep((unsigned)what);
        }
        for (int i = 0; i < ROUND; i++) {
            status = call_one(c);
            if (status != ROTA_OK)
                return status;
        }
    }
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "use: campaign_rank SEED TIMEOUT_MS MAX_BYTES\n");
        return 2;
    }
    struct campaign c = {.random = strtoull(argv[1], NULL, 10),
                         .most = strtoull(argv[3], NULL, 10) / sizeof(int64_t)};
    if (rota_init(NULL, &c.comm, NULL) != ROTA_OK) {
        rota_error error = ROTA_ERROR_INIT;
        rota_last_error(&error);
        fprintf(stderr, "rota_init: %s\n", error.message);
        return 4;
    }
    rota_comm_rank(c.comm, &c.rank);
    rota_comm_size(c.comm, &c.nranks);
    size_t bytes = (c.most * (size_t)c.nranks + 1) * sizeof(int64_t);
    c.send = malloc(bytes);
    c.recv = malloc(bytes);
    if (c.send == NULL || c.recv == NULL)
        return 2;
    c.called = "barrier";
    rota_status status = rota_barrier(c.comm, NULL);
    rota_comm_set_timeout(c.comm, strtoll(argv[2], NULL, 10));
    if (status == ROTA_OK)
        tell("ready", c.rank, 0);
    if (status == ROTA_OK)
        status = run(&c);
    int64_t ended = now_ns();
    if (status != ROTA_OK)
        tell_failure(&c, status, ended);
    /* The buffers go at once: whoever still wrote into them would be caught here. */
    free(c.send);
    free(c.recv);
    if (status != ROTA_OK && rota_barrier(c.comm, NULL) == ROTA_OK)
        tell("works_after_failure", c.rank, c.calls);
    rota_comm_destroy(c.comm);
    tell("destroyed", c.rank, c.calls);
    return 0;
}
