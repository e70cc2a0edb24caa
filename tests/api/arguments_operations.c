/* What collectives, sends and receives refuse. Every function is called through one shape, so that
 * each of them meets every wrong argument that it can be given. */
#include "pair.h"
#include <stdlib.h>

struct arguments {
    const void *send;
    void *recv;
    size_t count;
    rota_dtype dtype;
    rota_op op;
    int root; /* or peer */
    int tag;
    rota_recv_info *info;
    rota_comm *comm;
    const rota_call *call;
};

struct operation {
    rota_status (*run)(const struct arguments *args);
    bool buffers, sends, receives, reduces, rooted, tagged;
    const char *root_name;
    size_t in_place_offset; /* of recv from send that would be in place, on rank 0; or SIZE_MAX */
};

static int32_t numbers[64], results[64];

static rota_call refused_call(void) {
    return (rota_call)ROTA_CALL_INIT;
}

static void check_options(const struct operation *operation, const struct arguments *good) {
    rota_comm *comm = good->comm;
    struct arguments args = *good;
    rota_call call = refused_call();
    int dummy = 0;
    args.call = &call;
    call.size = offsetof(rota_call, group) - 1;
    REFUSED(operation->run(&args), ROTA_ERR_ARGUMENT, comm, "call->size");
    call = refused_call();
    call.stream = &dummy;
    REFUSED(operation->run(&args), ROTA_ERR_ARGUMENT, comm, "stream");
    call = refused_call();
    call.send_mem = &dummy;
    REFUSED(operation->run(&args), ROTA_ERR_ARGUMENT, comm, "send_mem");
    call = refused_call();
    call.recv_mem = &dummy;
    REFUSED(operation->run(&args), ROTA_ERR_ARGUMENT, comm, "recv_mem");
    call = refused_call();
    call.priority = 1;
    REFUSED(operation->run(&args), ROTA_ERR_ARGUMENT, comm, "priority");
    call = refused_call();
    call.flags = 1;
    REFUSED(operation->run(&args), ROTA_ERR_ARGUMENT, comm, "flags");
    call = refused_call();
    call.timeout_ms = -1;
    REFUSED(operation->run(&args), ROTA_ERR_ARGUMENT, comm, "timeout_ms");
    call = refused_call();
    call.numerics = (rota_numerics)9;
    REFUSED(operation->run(&args), ROTA_ERR_ARGUMENT, comm, "numerics");
    call = refused_call();
    call.done_arg = &dummy;
    REFUSED(operation->run(&args), ROTA_ERR_ARGUMENT, comm, "done");
    /* Outputs are set on success only. */
    rota_request *const untouched = (rota_request *)&dummy;
    rota_request *request = untouched;
    call = refused_call();
    call.request = &request;
    call.flags = 1;
    REFUSED(operation->run(&args), ROTA_ERR_ARGUMENT, comm, "flags");
    cr_assert_eq(request, untouched);
}

static void check_buffers(const struct operation *operation, const struct arguments *good) {
    rota_comm *comm = good->comm;
    struct arguments args = *good;
    args.dtype = ROTA_DTYPE_COUNT;
    REFUSED(operation->run(&args), ROTA_ERR_ARGUMENT, comm, "dtype");
    args.dtype = UINT32_MAX;
    REFUSED(operation->run(&args), ROTA_ERR_ARGUMENT, comm, "dtype");
    args = *good;
    args.count = SIZE_MAX;
    REFUSED(operation->run(&args), ROTA_ERR_ARGUMENT, comm, "overflow");
    args.count = SIZE_MAX / sizeof(int32_t);
    REFUSED(operation->run(&args), ROTA_ERR_ARGUMENT, comm, "overflow");
    args.count = (size_t)-1 / 8 + 1; /* 2^61 elements of 4 bytes wrap round to 2^63 */
    REFUSED(operation->run(&args), ROTA_ERR_ARGUMENT, comm, "overflow");
    args = *good;
    if (operation->sends) {
        args.send = NULL;
        REFUSED(operation->run(&args), ROTA_ERR_ARGUMENT, comm, "send");
        args.send = (const char *)good->send + 1;
        REFUSED(operation->run(&args), ROTA_ERR_ARGUMENT, comm, "send");
    }
    args = *good;
    if (operation->receives) {
        args.recv = NULL;
        REFUSED(operation->run(&args), ROTA_ERR_ARGUMENT, comm, "recv");
        args.recv = (char *)good->recv + 2;
        REFUSED(operation->run(&args), ROTA_ERR_ARGUMENT, comm, "recv");
    }
}

/* C27: overlaps that are not the in-place form. */
static void check_overlaps(const struct operation *operation, const struct arguments *good) {
    if (!operation->sends || !operation->receives)
        return;
    struct arguments args = *good;
    args.send = numbers;
    for (size_t offset = 0; offset < args.count; offset++) {
        if (offset == operation->in_place_offset)
            continue;
        args.recv = numbers + offset;
        REFUSED(operation->run(&args), ROTA_ERR_ARGUMENT, args.comm, "overlap");
    }
    args.send = numbers + 1;
    args.recv = numbers;
    REFUSED(operation->run(&args), ROTA_ERR_ARGUMENT, args.comm, "overlap");
}

static void check_numbers(const struct operation *operation, const struct arguments *good) {
    struct arguments args = *good;
    if (operation->reduces) {
        args.op = ROTA_OP_COUNT;
        REFUSED(operation->run(&args), ROTA_ERR_ARGUMENT, args.comm, "op");
        args.op = UINT32_MAX;
        REFUSED(operation->run(&args), ROTA_ERR_ARGUMENT, args.comm, "op");
    }
    args = *good;
    static const int wrong[] = {2, INT32_MAX, -2, INT32_MIN, -1};
    for (size_t i = 0; operation->rooted && i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        if (wrong[i] == ROTA_ANY_SOURCE && operation->tagged && operation->receives)
            continue;
        args.root = wrong[i];
        REFUSED(operation->run(&args), ROTA_ERR_ARGUMENT, args.comm, operation->root_name);
    }
    args = *good;
    if (operation->tagged) {
        args.tag = -1;
        REFUSED(operation->run(&args), ROTA_ERR_ARGUMENT, args.comm, "tag");
    }
}

/* States in which nothing is taken any more. */
static void check_states(const struct operation *operation, const struct pair *pair,
                         const struct arguments *good) {
    cr_assert_eq(rota_comm_abort(pair->comms[0]), ROTA_OK);
    struct arguments args = *good;
    REFUSED(operation->run(&args), ROTA_ERR_ABORTED, NULL, "aborted");
    cr_assert_eq(rota_comm_query(pair->comms[0]), ROTA_ERR_ABORTED);
}

static void check(const struct operation *operation) {
    struct pair pair;
    pair_open(&pair);
    struct arguments good = {.send = numbers,
                             .recv = results,
                             .count = 4,
                             .dtype = ROTA_INT32,
                             .op = ROTA_SUM,
                             .comm = pair.comms[0]};
    struct arguments args = good;
    args.comm = NULL;
    REFUSED(operation->run(&args), ROTA_ERR_ARGUMENT, NULL, "comm");
    check_options(operation, &good);
    if (operation->buffers) {
        check_buffers(operation, &good);
        check_overlaps(operation, &good);
        check_numbers(operation, &good);
    }
    if (!operation->tagged) {
        rota_call call = ROTA_CALL_INIT;
        call.algorithm = "no such";
        args = good;
        args.call = &call;
        REFUSED(operation->run(&args), ROTA_ERR_UNSUPPORTED, args.comm, "no such");
    }
    pair_works(&pair);
    check_states(operation, &pair, &good);
    pair_close(&pair);
}

static rota_status all_reduce(const struct arguments *a) {
    return rota_all_reduce(a->send, a->recv, a->count, a->dtype, a->op, a->comm, a->call);
}
Test(arguments, rota_all_reduce) {
    check(&(struct operation){
        .run = all_reduce, .buffers = true, .sends = true, .receives = true, .reduces = true});
}

static rota_status reduce(const struct arguments *a) {
    return rota_reduce(a->send, a->recv, a->count, a->dtype, a->op, a->root, a->comm, a->call);
}
Test(arguments, rota_reduce) {
    check(&(struct operation){.run = reduce,
                              .buffers = true,
                              .sends = true,
                              .receives = true,
                              .reduces = true,
                              .rooted = true,
                              .root_name = "root"});
}

static rota_status broadcast(const struct arguments *a) {
    return rota_broadcast(a->send, a->recv, a->count, a->dtype, a->root, a->comm, a->call);
}
Test(arguments, rota_broadcast) {
    check(&(struct operation){.run = broadcast,
                              .buffers = true,
                              .sends = true,
                              .receives = true,
                              .rooted = true,
                              .root_name = "root"});
}

static rota_status all_gather(const struct arguments *a) {
    return rota_all_gather(a->send, a->recv, a->count, a->dtype, a->comm, a->call);
}
Test(arguments, rota_all_gather) {
    check(&(struct operation){.run = all_gather, .buffers = true, .sends = true, .receives = true});
}

static rota_status reduce_scatter(const struct arguments *a) {
    return rota_reduce_scatter(a->send, a->recv, a->count, a->dtype, a->op, a->comm, a->call);
}
Test(arguments, rota_reduce_scatter) {
    check(&(struct operation){
        .run = reduce_scatter, .buffers = true, .sends = true, .receives = true, .reduces = true});
}

static rota_status all_to_all(const struct arguments *a) {
    return rota_all_to_all(a->send, a->recv, a->count, a->dtype, a->comm, a->call);
}
Test(arguments, rota_all_to_all) {
    check(&(struct operation){.run = all_to_all, .buffers = true, .sends = true, .receives = true});
}

static rota_status gather(const struct arguments *a) {
    return rota_gather(a->send, a->recv, a->count, a->dtype, a->root, a->comm, a->call);
}
Test(arguments, rota_gather) {
    check(&(struct operation){.run = gather,
                              .buffers = true,
                              .sends = true,
                              .receives = true,
                              .rooted = true,
                              .root_name = "root"});
}

static rota_status scatter(const struct arguments *a) {
    return rota_scatter(a->send, a->recv, a->count, a->dtype, a->root, a->comm, a->call);
}
Test(arguments, rota_scatter) {
    check(&(struct operation){.run = scatter,
                              .buffers = true,
                              .sends = true,
                              .receives = true,
                              .rooted = true,
                              .root_name = "root"});
}

/* There is no average of a part of the ranks. */
static void check_no_average(rota_status (*run)(const struct arguments *args)) {
    struct pair pair;
    pair_open(&pair);
    struct arguments args = {.send = numbers,
                             .recv = results,
                             .count = 4,
                             .dtype = ROTA_INT32,
                             .op = ROTA_AVG,
                             .comm = pair.comms[0]};
    REFUSED(run(&args), ROTA_ERR_ARGUMENT, args.comm, "avg");
    pair_works(&pair);
    pair_close(&pair);
}

static rota_status scan(const struct arguments *a) {
    return rota_scan(a->send, a->recv, a->count, a->dtype, a->op, a->comm, a->call);
}
Test(arguments, rota_scan) {
    check(&(struct operation){
        .run = scan, .buffers = true, .sends = true, .receives = true, .reduces = true});
    check_no_average(scan);
}

/* Rank 0, which checks here, receives nothing. */
static rota_status exclusive_scan(const struct arguments *a) {
    return rota_exclusive_scan(a->send, a->recv, a->count, a->dtype, a->op, a->comm, a->call);
}
Test(arguments, rota_exclusive_scan) {
    check(&(struct operation){
        .run = exclusive_scan, .buffers = true, .sends = true, .reduces = true});
    check_no_average(exclusive_scan);
}

static rota_status barrier(const struct arguments *a) {
    return rota_barrier(a->comm, a->call);
}
Test(arguments, rota_barrier) {
    check(&(struct operation){.run = barrier});
}

static rota_status send_to(const struct arguments *a) {
    return rota_send(a->send, a->count, a->dtype, a->root, a->tag, a->comm, a->call);
}
Test(arguments, rota_send) {
    check(&(struct operation){.run = send_to,
                              .buffers = true,
                              .sends = true,
                              .rooted = true,
                              .tagged = true,
                              .root_name = "dest"});
}

static rota_status recv_from(const struct arguments *a) {
    return rota_recv(a->recv, a->count, a->dtype, a->root, a->tag, a->comm, a->info, a->call);
}
Test(arguments, rota_recv) {
    check(&(struct operation){.run = recv_from,
                              .buffers = true,
                              .receives = true,
                              .rooted = true,
                              .tagged = true,
                              .root_name = "source"});
    struct pair pair;
    pair_open(&pair);
    rota_recv_info info = {.size = sizeof(info) - 1, .source = 77};
    REFUSED(rota_recv(results, 1, ROTA_INT32, 1, 0, pair.comms[0], &info, NULL), ROTA_ERR_ARGUMENT,
            pair.comms[0], "info");
    cr_assert_eq(info.source, 77);
    pair_works(&pair);
    pair_close(&pair);
}

/* On a root that is the other rank the buffer that is not used may be anything. */
Test(operations, unused_buffers_are_ignored) {
    struct pair pair;
    pair_open(&pair);
    rota_call call = ROTA_CALL_INIT;
    rota_request *requests[10];
    void *const odd = (void *)1;
    numbers[0] = 17;
    call.request = &requests[0];
    cr_assert_eq(rota_reduce(numbers, odd, 1, ROTA_INT32, ROTA_SUM, 0, pair.comms[1], &call), 0);
    call.request = &requests[1];
    cr_assert_eq(rota_broadcast(odd, results, 1, ROTA_INT32, 0, pair.comms[1], &call), 0);
    call.request = &requests[2];
    cr_assert_eq(
        rota_reduce(numbers, results + 1, 1, ROTA_INT32, ROTA_SUM, 0, pair.comms[0], &call), 0);
    call.request = &requests[3];
    cr_assert_eq(rota_broadcast(numbers, results + 2, 1, ROTA_INT32, 0, pair.comms[0], &call), 0);
    call.request = &requests[4];
    cr_assert_eq(rota_gather(numbers, odd, 1, ROTA_INT32, 0, pair.comms[1], &call), 0);
    call.request = &requests[5];
    cr_assert_eq(rota_scatter(odd, results + 8, 1, ROTA_INT32, 0, pair.comms[1], &call), 0);
    call.request = &requests[6];
    cr_assert_eq(rota_gather(numbers, results + 10, 1, ROTA_INT32, 0, pair.comms[0], &call), 0);
    call.request = &requests[7];
    cr_assert_eq(rota_scatter(numbers, results + 12, 1, ROTA_INT32, 0, pair.comms[0], &call), 0);
    call.request = &requests[8];
    cr_assert_eq(rota_exclusive_scan(numbers, odd, 1, ROTA_INT32, ROTA_SUM, pair.comms[0], &call),
                 0);
    call.request = &requests[9];
    cr_assert_eq(
        rota_exclusive_scan(numbers, results + 20, 1, ROTA_INT32, ROTA_SUM, pair.comms[1], &call),
        0);
    for (int i = 0; i < 10; i++) {
        cr_assert_eq(rota_request_wait(requests[i], 0), ROTA_OK);
        cr_assert_eq(rota_request_free(requests[i]), ROTA_OK);
    }
    cr_assert_eq(results[20], numbers[0]);
    pair_works(&pair);
    pair_close(&pair);
}

/* -- v-forms: what their tables add; the rest is checked as in the plain forms --------------------
 */

/* Rank 0 of a pair calls; rank 1 never hears of it. */
struct tables {
    struct pair pair;
    rota_comm *comm;
    size_t counts[2], other[2], huge[2], overlapping[2];
    int32_t send[8], recv[8];
};

static void tables_open(struct tables *t) {
    *t = (struct tables){
        .counts = {4, 4}, .other = {3, 4}, .huge = {SIZE_MAX / 2, 4}, .overlapping = {0, 3}};
    pair_open(&t->pair);
    t->comm = t->pair.comms[0];
}

static void tables_close(struct tables *t) {
    pair_works(&t->pair);
    pair_close(&t->pair);
}

Test(arguments, rota_all_gatherv) {
    struct tables t;
    tables_open(&t);
    REFUSED(rota_all_gatherv(t.send, 4, t.recv, NULL, NULL, ROTA_INT32, t.comm, NULL),
            ROTA_ERR_ARGUMENT, NULL, "recv_counts");
    REFUSED(rota_all_gatherv(t.send, 4, t.recv, t.counts, NULL, ROTA_INT32, NULL, NULL),
            ROTA_ERR_ARGUMENT, NULL, "comm");
    REFUSED(rota_all_gatherv(t.send, 4, t.recv, t.other, NULL, ROTA_INT32, t.comm, NULL),
            ROTA_ERR_ARGUMENT, NULL, "send_count");
    REFUSED(rota_all_gatherv(t.send, 4, t.recv, t.counts, t.overlapping, ROTA_INT32, t.comm, NULL),
            ROTA_ERR_ARGUMENT, NULL, "overlap");
    REFUSED(rota_all_gatherv(t.send, 4, t.recv, t.counts, NULL, 99, t.comm, NULL),
            ROTA_ERR_ARGUMENT, NULL, "dtype");
    tables_close(&t);
}

Test(arguments, rota_reduce_scatterv) {
    struct tables t;
    tables_open(&t);
    REFUSED(rota_reduce_scatterv(t.send, NULL, NULL, t.recv, 4, ROTA_INT32, ROTA_SUM, t.comm, NULL),
            ROTA_ERR_ARGUMENT, NULL, "send_counts");
    REFUSED(
        rota_reduce_scatterv(t.send, t.other, NULL, t.recv, 4, ROTA_INT32, ROTA_SUM, t.comm, NULL),
        ROTA_ERR_ARGUMENT, NULL, "recv_count");
    REFUSED(rota_reduce_scatterv(t.send, t.counts, NULL, t.recv, 4, ROTA_INT32, 77, t.comm, NULL),
            ROTA_ERR_ARGUMENT, NULL, "op");
    REFUSED(
        rota_reduce_scatterv(NULL, t.counts, NULL, t.recv, 4, ROTA_INT32, ROTA_SUM, t.comm, NULL),
        ROTA_ERR_ARGUMENT, NULL, "send");
    tables_close(&t);
}

Test(arguments, rota_all_to_allv) {
    struct tables t;
    tables_open(&t);
    REFUSED(rota_all_to_allv(t.send, NULL, NULL, t.recv, t.counts, NULL, ROTA_INT32, t.comm, NULL),
            ROTA_ERR_ARGUMENT, NULL, "send_counts");
    REFUSED(
        rota_all_to_allv(t.send, t.huge, NULL, t.recv, t.counts, NULL, ROTA_INT32, t.comm, NULL),
        ROTA_ERR_ARGUMENT, NULL, "overflows");
    REFUSED(
        rota_all_to_allv(t.send, t.counts, NULL, t.send, t.counts, NULL, ROTA_INT32, t.comm, NULL),
        ROTA_ERR_ARGUMENT, NULL, "overlap");
    tables_close(&t);
}

Test(arguments, rota_gatherv) {
    struct tables t;
    tables_open(&t);
    REFUSED(rota_gatherv(t.send, 4, t.recv, NULL, NULL, ROTA_INT32, 0, t.comm, NULL),
            ROTA_ERR_ARGUMENT, NULL, "recv_counts");
    REFUSED(rota_gatherv(t.send, 4, t.recv, t.counts, NULL, ROTA_INT32, 2, t.comm, NULL),
            ROTA_ERR_ARGUMENT, NULL, "root");
    REFUSED(rota_gatherv(t.send, 3, t.recv, t.counts, NULL, ROTA_INT32, 0, t.comm, NULL),
            ROTA_ERR_ARGUMENT, NULL, "send_count");
    tables_close(&t);
}

Test(arguments, rota_scatterv) {
    struct tables t;
    tables_open(&t);
    REFUSED(rota_scatterv(t.send, NULL, NULL, t.recv, 4, ROTA_INT32, 0, t.comm, NULL),
            ROTA_ERR_ARGUMENT, NULL, "send_counts");
    REFUSED(rota_scatterv(t.send, t.counts, NULL, t.recv, 4, ROTA_INT32, -1, t.comm, NULL),
            ROTA_ERR_ARGUMENT, NULL, "root");
    REFUSED(rota_scatterv(t.send, t.counts, NULL, t.recv, 3, ROTA_INT32, 0, t.comm, NULL),
            ROTA_ERR_ARGUMENT, NULL, "recv_count");
    tables_close(&t);
}
