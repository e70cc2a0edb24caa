/* Public functions that tell what selection would do, and with which prices. */
#include <rota/selection.h>

#include "api/check.h"
#include "base/error.h"
#include "engine/profile.h"
#include "engine/select.h"
#include <stdio.h>

rota_status rota_profile_describe(char *text, size_t size) {
    CHECK_KEEP_ERRNO;
    if (text == NULL || size == 0)
        return error_raise(ROTA_ERR_ARGUMENT, "text is NULL or its size 0");
    struct settings *settings = NULL;
    struct profile *profile = NULL;
    rota_status status = settings_load(&settings);
    if (status == ROTA_OK)
        status = profile_load(settings, &profile);
    if (status == ROTA_OK && profile == NULL)
        snprintf(text, size, "none");
    else if (status == ROTA_OK)
        snprintf(text, size, "%016llx (%s, placements: %d)",
                 (unsigned long long)profile_fingerprint(profile),
                 settings_text(settings, SETTING_PROFILE), profile_placements(profile));
    profile_free(profile);
    settings_free(settings);
    return status;
}

/* What a call with these arguments would be refused for as well. */
static rota_status check_question(rota_comm *comm, const struct call_args *args,
                                  const rota_call *call) {
    if (!sched_kind_collective(args->kind))
        return error_raise(ROTA_ERR_ARGUMENT, "kind is %d: expected that of a collective",
                           (int)args->kind);
    rota_status status = check_call(call, false);
    if (status == ROTA_OK && args->kind != ROTA_KIND_BARRIER)
        status = check_dtype(args->dtype);
    if (status == ROTA_OK && sched_kind_reduces(args->kind))
        status = check_op(comm, args->op, args->dtype);
    if (status == ROTA_OK && sched_kind_rooted(args->kind))
        status = check_rank("root", args->root, comm->nranks);
    size_t bytes;
    if (status == ROTA_OK &&
        __builtin_mul_overflow(args->count, rota_dtype_size(args->dtype) * (size_t)comm->nranks,
                               &bytes))
        status =
            error_raise(ROTA_ERR_ARGUMENT, "count is %zu: buffers would be too large", args->count);
    return status;
}

static rota_status find_candidate(rota_comm *comm, struct call_args *args, const rota_call *call,
                                  int index, rota_candidate *candidate) {
    struct reduce_spec spec, *reduces = sched_kind_reduces(args->kind) ? &spec : NULL;
    rota_candidate found = ROTA_CANDIDATE_INIT;
    rota_status status = check_question(comm, args, call);
    if (status == ROTA_OK && reduces != NULL)
        status = comm_make_spec(comm, args, reduces);
    if (status != ROTA_OK)
        return status;
    domain_enter(&comm->job->domain);
    status = comm_usable(comm);
    if (status == ROTA_OK && !select_candidate(comm, args, reduces, call, index, &found))
        status = error_raise(ROTA_ERR_ARGUMENT, "index is %d, expected 0 ... %d", index,
                             found.count - 1);
    domain_leave(&comm->job->domain);
    if (status == ROTA_OK)
        *candidate = found;
    return status;
}

rota_status rota_comm_candidate(rota_comm *comm, rota_kind kind, size_t count, rota_dtype dtype,
                                rota_op op, int root, const rota_call *call, int index,
                                rota_candidate *candidate) {
    CHECK_KEEP_ERRNO;
    if (comm == NULL || candidate == NULL || candidate->size < sizeof(*candidate))
        return error_raise(ROTA_ERR_ARGUMENT, "comm or candidate is NULL, or candidate->size is "
                                              "not sizeof(rota_candidate)");
    struct call_args args = {.kind = kind, .count = count, .dtype = dtype, .op = op, .root = root};
    if ((unsigned)kind >= ROTA_KIND_COUNT || kind == ROTA_KIND_BARRIER) {
        args.count = 0;
        args.dtype = ROTA_UINT8;
    }
    if ((unsigned)kind < ROTA_KIND_COUNT && !sched_kind_rooted(kind))
        args.root = -1;
    comm_enter(comm);
    rota_status status = find_candidate(comm, &args, call, index, candidate);
    comm_leave(comm);
    return status;
}
