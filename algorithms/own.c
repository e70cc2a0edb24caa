/* Registry of the program's own algorithms, and their proofs.
 *
 * Nothing that is registered goes away, so pointers to it may be kept without a lock. The list, the
 * proofs, and the caller's function, are used under one mutex; whoever holds it enters no other
 * part of the library but the builder and the verifier. */
#include "algorithms/own.h"

#include "base/error.h"
#include "schedule/derive.h"
#include "schedule/verify.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_SIZE = 32, FORMS = 3 }; /* out of place, in place, every second rank in place */

struct own_proof {
    struct own_proof *next;
    rota_kind kind;
    int nranks, root;
    bool aside; /* in place it runs on a copy of the input */
    uint32_t widest;
    char refused[sizeof(((struct sched_verdict *)0)->text)]; /* "" when proven */
};

struct own_algorithm {
    struct own_algorithm *next;
    struct algorithm entry;
    char name[NAME_SIZE];
    rota_algorithm_fn function;
    void *arg;
    struct sched_set set; /* instead of the function */
    struct own_proof *proofs;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct own_algorithm *registered; /* guarded by the lock */

static struct own_algorithm *find(const char *name) {
    struct own_algorithm *own = registered;
    while (own != NULL && strcmp(own->name, name) != 0)
        own = own->next;
    return own;
}

const struct algorithm *own_find(const char *name) {
    pthread_mutex_lock(&lock);
    struct own_algorithm *own = find(name);
    pthread_mutex_unlock(&lock);
    return own != NULL ? &own->entry : NULL;
}

const struct algorithm *own_at(int index) {
    pthread_mutex_lock(&lock);
    struct own_algorithm *own = index >= 0 ? registered : NULL;
    for (int i = 0; i < index && own != NULL; i++)
        own = own->next;
    pthread_mutex_unlock(&lock);
    return own != NULL ? &own->entry : NULL;
}

bool own_fits(const struct algorithm *algorithm, int nranks) {
    const struct sched_set *set = &algorithm->own->set;
    return set->count == 0 || set->schedules[0]->nranks == nranks;
}

/* -- schedules --------------------------------------------------------------------------------- */

static rota_status call_function(const struct own_algorithm *own,
                                 const struct algorithm_request *request,
                                 struct sched_builder *builder) {
    const rota_algorithm_request asked = {.size = sizeof(asked),
                                          .kind = request->kind,
                                          .nranks = request->nranks,
                                          .rank = request->rank,
                                          .root = request->root,
                                          .in_place = request->in_place};
    rota_status status = own->function(&asked, (rota_builder *)builder, own->arg);
    if (status == ROTA_OK)
        return ROTA_OK;
    return error_raise(ROTA_ERR_UNSUPPORTED, "its function returned %s for rank %d",
                       rota_status_name(status), request->rank);
}

static rota_status emit(const struct own_algorithm *own, const struct algorithm_request *request,
                        struct sched **schedule) {
    struct sched_shape shape = {request->kind, request->nranks, request->rank, request->root,
                                request->in_place};
    struct sched_builder *builder;
    rota_status status = sched_builder_create(&shape, &builder);
    if (status != ROTA_OK)
        return status;
    status = call_function(own, request, builder);
    if (status == ROTA_OK)
        status = sched_builder_finish(builder, schedule);
    sched_builder_destroy(builder);
    return status;
}

static rota_status build_form(const struct own_algorithm *own,
                              const struct algorithm_request *request, bool aside,
                              struct sched **schedule) {
    aside = aside && request->in_place;
    if (own->set.count > 0) {
        const struct sched *from = own->set.schedules[request->rank];
        if (from->root != request->root)
            return error_raise(ROTA_ERR_UNSUPPORTED, "it has root %d alone", from->root);
        if (from->in_place || !request->in_place)
            return sched_derive(from, SCHED_FORM_SAME, schedule);
        return sched_derive(from, aside ? SCHED_FORM_ASIDE : SCHED_FORM_IN_PLACE, schedule);
    }
    if (!aside)
        return emit(own, request, schedule);
    struct algorithm_request plain = *request;
    plain.in_place = false;
    struct sched *from = NULL;
    rota_status status = emit(own, &plain, &from);
    if (status != ROTA_OK)
        return status;
    status = sched_derive(from, SCHED_FORM_ASIDE, schedule);
    sched_free(from);
    return status;
}

/* -- proofs ------------------------------------------------------------------------------------ */

static void note_widest(struct own_proof *proof, const struct sched *schedule) {
    for (uint32_t i = 0; i < schedule->nsteps; i++) {
        const struct sched_step *step = &schedule->steps[i];
        struct sched_list data = step->type == SCHED_SEND ? step->src : step->dst;
        uint32_t chunks = step->peers.count > 0 ? sched_list_chunks(schedule, data) : 0;
        proof->widest = chunks > proof->widest ? chunks : proof->widest;
    }
}

static rota_status build_all(const struct own_algorithm *own, struct own_proof *proof, int form,
                             struct sched **schedules) {
    rota_status status = ROTA_OK;
    for (int rank = 0; rank < proof->nranks && status == ROTA_OK; rank++) {
        struct algorithm_request request = {.kind = proof->kind,
                                            .nranks = proof->nranks,
                                            .rank = rank,
                                            .root = proof->root,
                                            .in_place = form == 1 || (form == 2 && rank % 2 == 1),
                                            .lanes = 1};
        status = build_form(own, &request, proof->aside, &schedules[rank]);
        if (status == ROTA_OK)
            note_widest(proof, schedules[rank]);
    }
    return status;
}

/* In mode fast partials of narrow types are rounded: ranks must hold the same bits there too. */
static rota_status verify_fast(struct sched **schedules, int nranks,
                               struct sched_verdict *verdict) {
    const struct sched_verify_options options = {.rounded_partials = true};
    rota_status status = sched_verify(schedules, nranks, &options, verdict);
    if (status == ROTA_OK && verdict->fault == SCHED_FAULT_NONE && !verdict->same_on_all_ranks) {
        verdict->fault = SCHED_FAULT_DIFFERENT;
        snprintf(verdict->text, sizeof(verdict->text),
                 "in mode fast the ranks of an all_reduce would round at different places");
    }
    return status;
}

/* Sets `refused` when the form is not right. Errors: ROTA_ERR_MEMORY alone. */
static rota_status prove_form(const struct own_algorithm *own, struct own_proof *proof, int form) {
    struct sched **schedules = calloc((size_t)proof->nranks, sizeof(*schedules));
    struct sched_verdict verdict = {.fault = SCHED_FAULT_NONE};
    if (schedules == NULL)
        return error_raise(ROTA_ERR_MEMORY, "no memory for a proof");
    proof->refused[0] = '\0';
    rota_status status = build_all(own, proof, form, schedules);
    if (status == ROTA_OK)
        status = sched_verify(schedules, proof->nranks, NULL, &verdict);
    if (status == ROTA_OK && verdict.fault == SCHED_FAULT_NONE && form == 0 &&
        proof->kind == ROTA_KIND_ALL_REDUCE)
        status = verify_fast(schedules, proof->nranks, &verdict);
    if (status != ROTA_OK && status != ROTA_ERR_MEMORY) {
        snprintf(proof->refused, sizeof(proof->refused), "%.250s", error_record()->message);
        status = ROTA_OK;
    } else if (verdict.fault != SCHED_FAULT_NONE) {
        memcpy(proof->refused, verdict.text, sizeof(proof->refused));
    }
    for (int rank = 0; rank < proof->nranks; rank++)
        sched_free(schedules[rank]);
    free(schedules);
    return status;
}

static rota_status prove(const struct own_algorithm *own, struct own_proof *proof) {
    rota_status status = prove_form(own, proof, 0);
    if (status != ROTA_OK || proof->refused[0] != '\0')
        return status;
    for (int form = 1; form < FORMS && status == ROTA_OK; form++) {
        status = prove_form(own, proof, form);
        if (status == ROTA_OK && proof->refused[0] != '\0' && !proof->aside) {
            proof->aside = true;
            form = 0; /* both once more, on a copy of the input */
        } else if (proof->refused[0] != '\0') {
            break;
        }
    }
    return status;
}

static rota_status proof_of(struct own_algorithm *own, rota_kind kind, int nranks, int root,
                            struct own_proof **out) {
    for (struct own_proof *proof = own->proofs; proof != NULL; proof = proof->next)
        if (proof->kind == kind && proof->nranks == nranks && proof->root == root) {
            *out = proof;
            return ROTA_OK;
        }
    struct own_proof *proof = calloc(1, sizeof(*proof));
    if (proof == NULL)
        return error_raise(ROTA_ERR_MEMORY, "no memory for a proof");
    proof->kind = kind;
    proof->nranks = nranks;
    proof->root = root;
    proof->widest = 1;
    rota_status status = prove(own, proof);
    if (status != ROTA_OK) {
        free(proof);
        return status;
    }
    proof->next = own->proofs;
    own->proofs = proof;
    *out = proof;
    return ROTA_OK;
}

static rota_status judge(struct own_algorithm *own, rota_kind kind, int nranks, int root) {
    struct own_proof *proof = NULL;
    rota_status status = proof_of(own, kind, nranks, root, &proof);
    if (status == ROTA_OK && proof->refused[0] != '\0')
        status = error_raise(ROTA_ERR_UNSUPPORTED, "algorithm %s is refused for %s on %d ranks: %s",
                             own->name, sched_kind_name(kind), nranks, proof->refused);
    return status;
}

rota_status own_prove(const struct algorithm *algorithm, rota_kind kind, int nranks, int root) {
    if (nranks == 1)
        return ROTA_OK;
    pthread_mutex_lock(&lock);
    rota_status status = judge(algorithm->own, kind, nranks, root);
    pthread_mutex_unlock(&lock);
    return status;
}

uint32_t own_widest(const struct algorithm *algorithm, rota_kind kind, int nranks, int root) {
    uint32_t widest = 1;
    struct own_proof *proof = NULL;
    if (nranks == 1)
        return widest;
    pthread_mutex_lock(&lock);
    if (proof_of(algorithm->own, kind, nranks, root, &proof) == ROTA_OK)
        widest = proof->widest;
    pthread_mutex_unlock(&lock);
    return widest;
}

rota_status own_build(const struct algorithm *algorithm, const struct algorithm_request *request,
                      struct sched **schedule) {
    struct own_algorithm *own = algorithm->own;
    struct own_proof *proof = NULL;
    rota_status status = ROTA_OK;
    pthread_mutex_lock(&lock);
    if (request->in_place)
        status = proof_of(own, request->kind, request->nranks, request->root, &proof);
    if (status == ROTA_OK)
        status = build_form(own, request, proof != NULL && proof->aside, schedule);
    pthread_mutex_unlock(&lock);
    return status;
}

/* -- registration ------------------------------------------------------------------------------ */

static rota_status check_name(const char *name) {
    size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                 "0123456789_-.");
    if (length == 0 || length >= NAME_SIZE || name[length] != '\0')
        return error_raise(ROTA_ERR_ARGUMENT,
                           "name of an algorithm: expected 1 to 31 letters, digits, '_', '-' or "
                           "'.', not \"%.40s\"",
                           name);
    return ROTA_OK;
}

static struct own_algorithm *create(const char *name, uint32_t kinds) {
    struct own_algorithm *own = calloc(1, sizeof(*own));
    if (own == NULL) {
        error_raise(ROTA_ERR_MEMORY, "no memory for an algorithm");
        return NULL;
    }
    snprintf(own->name, sizeof(own->name), "%s", name);
    own->entry = (struct algorithm){.name = own->name,
                                    .help = "registered by the program",
                                    .kinds = kinds,
                                    .sends_partials = true,
                                    .own = own};
    return own;
}

/* Under the lock. */
static rota_status enter(struct own_algorithm *own) {
    bool taken = find(own->name) != NULL;
    for (int i = 0; algorithm_at(i) != NULL; i++)
        taken = taken || strcmp(algorithm_at(i)->name, own->name) == 0;
    if (taken)
        return error_raise(ROTA_ERR_ARGUMENT, "there is an algorithm '%s' already", own->name);
    struct own_algorithm **end = &registered;
    while (*end != NULL)
        end = &(*end)->next;
    *end = own;
    return ROTA_OK;
}

static void discard(struct own_algorithm *own) {
    while (own->proofs != NULL) {
        struct own_proof *next = own->proofs->next;
        free(own->proofs);
        own->proofs = next;
    }
    sched_set_free(&own->set);
    free(own);
}

rota_status own_register(const char *name, uint32_t kinds, rota_algorithm_fn function, void *arg) {
    rota_status status = check_name(name);
    if (status != ROTA_OK)
        return status;
    for (int kind = 0; kind < 32; kind++)
        if ((kinds >> kind & 1) != 0 && !sched_kind_collective((rota_kind)kind))
            return error_raise(ROTA_ERR_ARGUMENT, "kinds of an algorithm: %d has no schedules",
                               kind);
    if (kinds == 0)
        return error_raise(ROTA_ERR_ARGUMENT, "kinds of an algorithm: expected at least one");
    struct own_algorithm *own = create(name, kinds);
    if (own == NULL)
        return ROTA_ERR_MEMORY;
    own->function = function;
    own->arg = arg;
    pthread_mutex_lock(&lock);
    status = enter(own);
    pthread_mutex_unlock(&lock);
    if (status != ROTA_OK)
        discard(own);
    return status;
}

rota_status own_register_set(const char *name, struct sched_set *set) {
    const struct sched *first = set->count > 0 ? set->schedules[0] : NULL;
    rota_status status = check_name(name);
    if (status != ROTA_OK)
        return status;
    if (first == NULL || set->count != first->nranks)
        return error_raise(ROTA_ERR_ARGUMENT, "only %d of %d ranks are in the file", set->count,
                           first != NULL ? first->nranks : 0);
    for (int i = 0; i < set->count; i++)
        if (set->schedules[i]->in_place)
            return error_raise(ROTA_ERR_ARGUMENT,
                               "rank %d is in place: an algorithm is read from "
                               "schedules out of place",
                               i);
    struct own_algorithm *own = create(name, 1u << first->kind);
    if (own == NULL)
        return ROTA_ERR_MEMORY;
    own->set = *set;
    *set = (struct sched_set){0, NULL};
    pthread_mutex_lock(&lock);
    status = first->nranks > 1 ? judge(own, first->kind, first->nranks, first->root) : ROTA_OK;
    if (status == ROTA_OK)
        status = enter(own);
    pthread_mutex_unlock(&lock);
    if (status != ROTA_OK)
        discard(own);
    return status;
}
