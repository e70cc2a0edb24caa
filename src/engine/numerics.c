/* Proves which algorithms keep the canonical tree.
 *
 * Each rank builds the schedules of all ranks and runs the verifier over them; what enters (kind,
 * number of ranks, root, hosts) is known to all, so all come to the same answer. The three forms of
 * in-place use count together, because a rank does not know what the others do. */
#include "engine/numerics.h"

#include "base/error.h"
#include "schedule/verify.h"
#include <stdlib.h>

/* Most steps and chunks of messages, over all ranks, that a proof may walk through: about a second.
 * What is beyond counts as not proven. */
#define PROOF_MOST_WORK ((uint64_t)4 << 20)

struct numerics_proof {
    struct numerics_proof *next;
    const struct algorithm *algorithm;
    rota_kind kind;
    int root;
    bool canonical;
};

bool numerics_rounds_partials(rota_numerics mode, const struct reduce_spec *spec) {
    bool accumulates = spec->op == ROTA_SUM || spec->op == ROTA_PROD || spec->op == ROTA_AVG;
    return mode == ROTA_NUMERICS_FAST && accumulates && spec->form == REDUCE_BUILTIN &&
           reduce_is_narrow(spec->dtype);
}

rota_status numerics_prepare(rota_request *request) {
    const struct reduce_spec *spec = &request->spec;
    request->rounds_partials = numerics_rounds_partials(request->args.numerics, spec);
    if (!request->rounds_partials)
        return ROTA_OK;
    /* What is rounded on the way is a sum; only the end divides. */
    return reduce_spec_init(&request->hop_spec, spec->dtype,
                            spec->op == ROTA_AVG ? ROTA_SUM : spec->op, spec->nranks, spec->isa);
}

/* -- proofs ------------------------------------------------------------------------------------ */

enum { FORMS = 3 }; /* out of place, in place, every second rank in place */

static rota_status build_all(const rota_comm *comm, const struct numerics_proof *proof, int form,
                             struct sched **schedules) {
    rota_status status = ROTA_OK;
    for (int rank = 0; rank < comm->nranks && status == ROTA_OK; rank++) {
        struct algorithm_request request = {.kind = proof->kind,
                                            .nranks = comm->nranks,
                                            .rank = rank,
                                            .root = proof->root,
                                            .in_place = form == 1 || (form == 2 && rank % 2 == 1),
                                            .lanes = 1,
                                            .topology = &comm->topology};
        status = algorithm_build(proof->algorithm, &request, &schedules[rank]);
    }
    return status;
}

static rota_status prove_form(const rota_comm *comm, struct numerics_proof *proof, int form) {
    size_t n = (size_t)comm->nranks;
    struct sched **schedules = calloc(n, sizeof(*schedules));
    if (schedules == NULL)
        return error_raise(ROTA_ERR_MEMORY, "out of memory for a proof");
    struct sched_verdict verdict = {.canonical_tree = false};
    rota_status status = build_all(comm, proof, form, schedules);
    if (status == ROTA_OK)
        status = sched_verify(schedules, comm->nranks, NULL, &verdict);
    proof->canonical &= verdict.fault == SCHED_FAULT_NONE && verdict.canonical_tree;
    for (size_t rank = 0; rank < n; rank++)
        if (schedules[rank] != NULL)
            sched_free(schedules[rank]);
    free(schedules);
    return status;
}

/* Steps and chunks of messages of all ranks, by those of the first. */
static rota_status measure(const rota_comm *comm, const struct numerics_proof *proof,
                           uint64_t *work) {
    struct algorithm_request request = {.kind = proof->kind,
                                        .nranks = comm->nranks,
                                        .rank = 0,
                                        .root = proof->root,
                                        .lanes = 1,
                                        .topology = &comm->topology};
    struct sched *schedule = NULL;
    rota_status status = algorithm_build(proof->algorithm, &request, &schedule);
    if (status != ROTA_OK)
        return status;
    *work = schedule->npeers;
    for (uint32_t i = 0; i < schedule->nsteps; i++)
        *work += sched_list_chunks(schedule, schedule->steps[i].src) +
                 sched_list_chunks(schedule, schedule->steps[i].dst);
    *work *= (uint64_t)comm->nranks;
    sched_free(schedule);
    return ROTA_OK;
}

static rota_status prove(const rota_comm *comm, struct numerics_proof *proof) {
    uint64_t work = 0;
    rota_status status = measure(comm, proof, &work);
    if (status != ROTA_OK || work > PROOF_MOST_WORK) {
        /* One step over all operands in the order of the ranks needs no proof. */
        proof->canonical = proof->algorithm->always_canonical;
        return status;
    }
    proof->canonical = true;
    for (int form = 0; form < FORMS && proof->canonical && status == ROTA_OK; form++)
        status = prove_form(comm, proof, form);
    return status;
}

static const struct numerics_proof *proof_of(rota_comm *comm, const struct algorithm *algorithm,
                                             rota_kind kind, int root) {
    for (struct numerics_proof *proof = comm->proofs; proof != NULL; proof = proof->next)
        if (proof->algorithm == algorithm && proof->kind == kind && proof->root == root)
            return proof;
    struct numerics_proof *proof = calloc(1, sizeof(*proof));
    if (proof == NULL)
        return NULL;
    proof->algorithm = algorithm;
    proof->kind = kind;
    proof->root = root;
    if (prove(comm, proof) != ROTA_OK) {
        free(proof);
        return NULL;
    }
    proof->next = comm->proofs;
    comm->proofs = proof;
    return proof;
}

bool numerics_allows(rota_comm *comm, const struct algorithm *algorithm, rota_kind kind, int root,
                     rota_numerics mode) {
    if (mode != ROTA_NUMERICS_REPRODUCIBLE || !sched_kind_reduces(kind))
        return true;
    const struct numerics_proof *proof = proof_of(comm, algorithm, kind, root);
    return proof != NULL && proof->canonical;
}

void numerics_free(rota_comm *comm) {
    while (comm->proofs != NULL) {
        struct numerics_proof *next = comm->proofs->next;
        free(comm->proofs);
        comm->proofs = next;
    }
}
