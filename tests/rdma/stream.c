/* What perftest measures, by messages of rota, between two ranks:
 *
 *     stream bandwidth BYTES COUNT    rank 0 sends COUNT messages, DEPTH of them under way at a
 *                                     time; prints GB/s (10^9)
 *     stream latency BYTES COUNT      a message goes to and fro; prints the least and the median
 *                                     half round trip in us
 *
 * Buffers are of rota_mem_alloc, so that messages may go from memory to memory. */
#include <rota/rota.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DEPTH = 64, DATA = 1, ANSWER = 2 };

static double now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static void check(rota_status status, const char *what) {
    rota_error error = ROTA_ERROR_INIT;
    if (status == ROTA_OK)
        return;
    rota_last_error(&error);
    fprintf(stderr, "%s: %s: %s\n", what, rota_status_name(status), error.message);
    exit(1);
}

struct stream {
    rota_comm *comm;
    int rank;
    size_t bytes;
    unsigned long count;
    uint8_t *memory; /* DEPTH messages */
};

/* -- bandwidth ----------------------------------------------------------------------------- */

static void begin(const struct stream *stream, unsigned long number, rota_request **request) {
    uint8_t *data = stream->memory + number % DEPTH * stream->bytes;
    rota_call call = ROTA_CALL_INIT;
    call.request = request;
    if (stream->rank == 0)
        check(rota_send(data, stream->bytes, ROTA_UINT8, 1, DATA, stream->comm, &call), "send");
    else
        check(rota_recv(data, stream->bytes, ROTA_UINT8, 0, DATA, stream->comm, NULL, &call),
              "recv");
}

static void end(rota_request **request) {
    check(rota_request_wait(*request, 0), "wait");
    rota_request_free(*request);
    *request = NULL;
}

/* Rank 0's last word comes back when all of it has arrived. */
static double run(const struct stream *stream, unsigned long count) {
    rota_request *requests[DEPTH] = {NULL};
    uint8_t word = 0;
    double began = now_us();
    for (unsigned long i = 0; i < count; i++) {
        rota_request **slot = &requests[i % DEPTH];
        if (*slot != NULL)
            end(slot);
        begin(stream, i, slot);
    }
    for (unsigned long i = 0; i < DEPTH; i++)
        if (requests[i] != NULL)
            end(&requests[i]);
    if (stream->rank == 0)
        check(rota_recv(&word, 1, ROTA_UINT8, 1, ANSWER, stream->comm, NULL, NULL), "recv");
    else
        check(rota_send(&word, 1, ROTA_UINT8, 0, ANSWER, stream->comm, NULL), "send");
    return now_us() - began;
}

static void bandwidth(const struct stream *stream) {
    run(stream, DEPTH);
    double us = run(stream, stream->count);
    if (stream->rank == 0)
        printf("%.4f\n", (double)stream->bytes * (double)stream->count / us * 1e-3);
}

/* -- latency ------------------------------------------------------------------------------- */

static int compare(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

static void to_and_fro(const struct stream *stream) {
    int other = 1 - stream->rank;
    if (stream->rank == 0)
        check(rota_send(stream->memory, stream->bytes, ROTA_UINT8, other, DATA, stream->comm, NULL),
              "send");
    check(
        rota_recv(stream->memory, stream->bytes, ROTA_UINT8, other, DATA, stream->comm, NULL, NULL),
        "recv");
    if (stream->rank == 1)
        check(rota_send(stream->memory, stream->bytes, ROTA_UINT8, other, DATA, stream->comm, NULL),
              "send");
}

static void latency(const struct stream *stream) {
    double *times = malloc(stream->count * sizeof(*times));
    if (times == NULL)
        exit(1);
    for (int i = 0; i < 100; i++)
        to_and_fro(stream);
    for (unsigned long i = 0; i < stream->count; i++) {
        double began = now_us();
        to_and_fro(stream);
        times[i] = (now_us() - began) / 2;
    }
    qsort(times, stream->count, sizeof(*times), compare);
    if (stream->rank == 0)
        printf("%.2f %.2f\n", times[0], times[stream->count / 2]);
    free(times);
}

int main(int argc, char **argv) {
    struct stream stream = {0};
    void *memory = NULL;
    int nranks = 0;
    bool throughput = argc == 4 && strcmp(argv[1], "bandwidth") == 0;
    stream.bytes = argc == 4 ? strtoull(argv[2], NULL, 10) : 0;
    stream.count = argc == 4 ? strtoul(argv[3], NULL, 10) : 0;
    if (stream.bytes == 0 || stream.count == 0 ||
        (!throughput && strcmp(argv[1], "latency") != 0)) {
        fprintf(stderr, "usage: stream bandwidth|latency BYTES COUNT\n");
        return 2;
    }
    check(rota_init(NULL, &stream.comm, NULL), "init");
    check(rota_comm_rank(stream.comm, &stream.rank), "rank");
    check(rota_comm_size(stream.comm, &nranks), "size");
    if (nranks != 2) {
        fprintf(stderr, "stream: two ranks are needed, not %d\n", nranks);
        return 2;
    }
    check(rota_mem_alloc(stream.comm, DEPTH * stream.bytes, &memory), "memory");
    stream.memory = memory;
    memset(memory, 1, DEPTH * stream.bytes);
    if (throughput)
        bandwidth(&stream);
    else
        latency(&stream);
    check(rota_comm_finalize(stream.comm, NULL), "finalize");
    check(rota_mem_free(stream.comm, memory), "free");
    check(rota_comm_destroy(stream.comm), "destroy");
    return 0;
}
