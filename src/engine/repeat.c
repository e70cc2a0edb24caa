/* Calls like one before: only their buffers are looked at. */
#include "engine/repeat.h"

#include "engine/collective.h"
#include "engine/native_run.h"
#include "engine/numerics.h"

static struct comm_repeat *place_of(rota_comm *comm, const struct call_shape *shape) {
    uint64_t mixed = (shape->words[0] ^ shape->words[1] ^ shape->words[2]) * 0x9e3779b97f4a7c15u;
    return &comm->repeats[mixed >> 32 & (COMM_REPEATS - 1)];
}

static bool is_shape(const struct comm_repeat *repeat, const struct call_shape *shape) {
    return (repeat->form != NULL || repeat->algorithm != NULL) &&
           repeat->shape.words[0] == shape->words[0] && repeat->shape.words[1] == shape->words[1] &&
           repeat->shape.words[2] == shape->words[2];
}

/* What the long way would refuse, or run otherwise. */
static bool takes_buffers(const rota_comm *comm, const struct comm_repeat *repeat,
                          const struct call_args *args, size_t send_bytes, size_t recv_bytes) {
    uintptr_t send = (uintptr_t)args->send, recv = (uintptr_t)args->recv;
    if (((send | recv) & (repeat->alignment - 1)) != 0 || (send == 0 && send_bytes > 0) ||
        (recv == 0 && recv_bytes > 0))
        return false;
    bool apart = send + send_bytes <= recv || recv + recv_bytes <= send;
    return (apart || (send == recv && args->kind == ROTA_KIND_ALL_REDUCE) ||
            call_in_place(comm, args, rota_dtype_size(args->dtype))) &&
           memory_identify(args->send, send_bytes)->host_readable &&
           memory_identify(args->recv, recv_bytes)->host_readable;
}

bool repeat_run(rota_comm *comm, struct call_args *args, size_t send_blocks, size_t recv_blocks,
                rota_status *status) {
    /* Partner: the release of `busy` by the call before, perhaps in another thread. */
    if (atomic_exchange_explicit(&comm->busy, true, memory_order_acquire))
        return false;
    args->numerics = numerics_of_call(comm, args->kind, NULL);
    struct call_shape shape = call_shape_of(args);
    const struct comm_repeat *repeat = place_of(comm, &shape);
    bool same =
        is_shape(repeat, &shape) && (repeat->algorithm != NULL || native_may_run(comm)) &&
        takes_buffers(comm, repeat, args, repeat->bytes * send_blocks, repeat->bytes * recv_blocks);
    if (same && repeat->algorithm != NULL) {
        *status = collective_again(comm, args, repeat);
        return true;
    }
    if (same)
        *status = native_run(comm, args, repeat->form, repeat->reduces ? &repeat->spec : NULL,
                             repeat->bytes, repeat->fingerprint, NULL);
    if (same && *status != ROTA_OK)
        comm_keep_error(comm, *status);
    atomic_store_explicit(&comm->busy, false, memory_order_release);
    return same;
}

void repeat_keep(rota_comm *comm, const struct call_args *args, const struct native_form *form,
                 const struct algorithm *algorithm, const struct reduce_spec *spec) {
    /* Operators and types that the program made may be gone by the next call. */
    if (args->vector || args->dtype >= ROTA_DTYPE_COUNT ||
        (spec != NULL && args->op >= ROTA_OP_COUNT))
        return;
    struct call_shape shape = call_shape_of(args);
    struct comm_repeat *repeat = place_of(comm, &shape);
    *repeat = (struct comm_repeat){
        .shape = shape,
        .fingerprint = call_fingerprint(comm, args, NULL),
        .by_algorithm = algorithm != NULL ? call_fingerprint(comm, args, algorithm) : 0,
        .bytes = args->count * rota_dtype_size(args->dtype),
        .alignment = rota_dtype_alignment(args->dtype),
        .form = form,
        .algorithm = algorithm,
        .reduces = spec != NULL};
    if (spec != NULL)
        repeat->spec = *spec;
}
