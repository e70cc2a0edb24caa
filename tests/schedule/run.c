/* Registers the schedules of a file and runs them: every rank checks every element. Or runs the
 * library's ring, and checks that messages went to the next rank of the order given alone.
 *
 *     rota run -n 8 -- test_schedule_file FILE
 *     rota run -n 4 -- test_schedule_file ring 0231 */
#include <rota/rota.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static rota_comm *comm;
static int rank, nranks;
static const char *algorithm = "from_file";

static void check(rota_status status, const char *what) {
    rota_error error = ROTA_ERROR_INIT;
    if (status == ROTA_OK)
        return;
    rota_last_error(&error);
    fprintf(stderr, "%s: %s: %s\n", what, rota_status_name(status), error.message);
    exit(1);
}

static char *read_file(const char *path, size_t *length) {
    FILE *file = fopen(path, "r");
    char *bytes = malloc(1 << 20);
    if (file == NULL || bytes == NULL)
        exit(2);
    *length = fread(bytes, 1, 1 << 20, file);
    fclose(file);
    return bytes;
}

/* Blocks that a rank gives and gets. */
static size_t blocks(rota_kind kind, int in) {
    if (kind == ROTA_KIND_ALL_REDUCE ||
        kind == (in ? ROTA_KIND_ALL_GATHER : ROTA_KIND_REDUCE_SCATTER))
        return 1;
    return (size_t)nranks;
}

static int32_t given(int from, size_t element) {
    return (int32_t)(element * 31 % 100003) + 1000 * from;
}

static int32_t wanted(rota_kind kind, size_t count, size_t element) {
    size_t block = count > 0 ? element / count : 0, at = count > 0 ? element % count : 0;
    int32_t sum = 0;
    if (kind == ROTA_KIND_ALL_GATHER)
        return given((int)block, at);
    if (kind == ROTA_KIND_ALL_TO_ALL)
        return given((int)block, (size_t)rank * count + at);
    for (int r = 0; r < nranks; r++)
        sum += given(r, kind == ROTA_KIND_REDUCE_SCATTER ? (size_t)rank * count + at : element);
    return sum;
}

static rota_status start(rota_kind kind, const void *in, void *out, size_t count,
                         const rota_call *call) {
    switch (kind) {
    case ROTA_KIND_ALL_REDUCE:
        return rota_all_reduce(in, out, count, ROTA_INT32, ROTA_SUM, comm, call);
    case ROTA_KIND_ALL_GATHER:
        return rota_all_gather(in, out, count, ROTA_INT32, comm, call);
    case ROTA_KIND_REDUCE_SCATTER:
        return rota_reduce_scatter(in, out, count, ROTA_INT32, ROTA_SUM, comm, call);
    default:
        return rota_all_to_all(in, out, count, ROTA_INT32, comm, call);
    }
}

static void run(rota_kind kind, size_t count, bool in_place) {
    size_t nin = blocks(kind, 1) * count, nout = blocks(kind, 0) * count;
    int32_t *buffer = malloc((nin + nout + 1) * sizeof(*buffer));
    int32_t *in = buffer, *out = buffer + (in_place ? 0 : nin);
    if (buffer == NULL)
        exit(2);
    if (in_place && kind == ROTA_KIND_ALL_GATHER)
        in = out + (size_t)rank * count;
    if (in_place && kind == ROTA_KIND_REDUCE_SCATTER)
        out = in + (size_t)rank * count;
    memset(buffer, 0x5a, (nin + nout) * sizeof(*buffer));
    for (size_t i = 0; i < nin; i++)
        in[i] = given(rank, i);
    rota_call call = ROTA_CALL_INIT;
    call.algorithm = algorithm;
    check(start(kind, in, out, count, &call), rota_kind_name(kind));
    for (size_t i = 0; i < nout; i++)
        if (out[i] != wanted(kind, count, i)) {
            fprintf(stderr, "rank %d: %s of %zu%s: element %zu is %d, not %d\n", rank,
                    rota_kind_name(kind), count, in_place ? " in place" : "", i, out[i],
                    wanted(kind, count, i));
            exit(1);
        }
    free(buffer);
}

/* Every kind with an operation here, in all counts and forms; returns how many there were. */
static int run_all(void) {
    static const size_t counts[] = {0, 1, 7, 64, 1000, 100003};
    static const rota_kind kinds[] = {ROTA_KIND_ALL_REDUCE, ROTA_KIND_ALL_GATHER,
                                      ROTA_KIND_REDUCE_SCATTER, ROTA_KIND_ALL_TO_ALL};
    int ran = 0;
    for (int k = 0; k < 4; k++) {
        if (!rota_algorithm_does(algorithm, kinds[k], nranks))
            continue;
        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
            run(kinds[k], counts[i], false);
            run(kinds[k], counts[i], true);
            run(kinds[k], counts[i], rank % 2 == 0);
        }
        const char *name = rota_comm_algorithm(comm, kinds[k]);
        if (name == NULL || strcmp(name, algorithm) != 0) {
            fprintf(stderr, "%s ran instead\n", name != NULL ? name : "nothing");
            exit(1);
        }
        ran++;
    }
    return ran;
}

static void check_order(const char *order) {
    const char *self = strchr(order, '0' + rank);
    int next = self[1] != '\0' ? self[1] - '0' : order[0] - '0';
    for (int peer = 0; peer < nranks; peer++) {
        rota_peer_counters counters = ROTA_PEER_COUNTERS_INIT;
        check(rota_comm_peer_counters(comm, peer, &counters), "counters");
        if ((counters.bytes_sent > 1000000) != (peer == next)) {
            fprintf(stderr, "rank %d sent %llu bytes to %d, where %d is next\n", rank,
                    (unsigned long long)counters.bytes_sent, peer, next);
            exit(1);
        }
    }
}

int main(int argc, char **argv) {
    size_t length = 0;
    if (argc == 3) {
        algorithm = argv[1];
    } else if (argc == 2) {
        char *bytes = read_file(argv[1], &length);
        check(rota_algorithm_read(algorithm, bytes, length), argv[1]);
        free(bytes);
    } else {
        return 2;
    }
    check(rota_init(NULL, &comm, NULL), "init");
    check(rota_comm_rank(comm, &rank), "rank");
    check(rota_comm_size(comm, &nranks), "size");
    int ran = run_all();
    if (argc == 3)
        check_order(argv[2]);
    check(rota_comm_finalize(comm, NULL), "finalize");
    check(rota_comm_destroy(comm), "destroy");
    return ran == (argc == 3 ? 3 : 1) ? 0 : 1;
}
