/* Registry of algorithms, and what is the same for all of them: a single rank copies or converts
 * its input to its output, whatever the algorithm. */
#include "algorithms/algorithm.h"

#include "algorithms/own.h"
#include "base/error.h"

#include <string.h>

#define ALGORITHM(symbol) extern const struct algorithm algorithm_##symbol;
#include "algorithms/algorithms.def"
#undef ALGORITHM

static const struct algorithm *const table[] = {
#define ALGORITHM(symbol) &algorithm_##symbol,
#include "algorithms/algorithms.def"
#undef ALGORITHM
    NULL};

const struct algorithm *algorithm_at(int index) {
    int count = (int)(sizeof table / sizeof *table) - 1;
    return index >= 0 && index < count ? table[index] : NULL;
}

const struct algorithm *algorithm_find(const char *name) {
    for (int i = 0; name && table[i]; i++)
        if (strcmp(table[i]->name, name) == 0)
            return table[i];
    return name ? own_find(name) : NULL;
}

bool algorithm_can(const struct algorithm *algorithm, rota_kind kind, int nranks) {
    if (!sched_kind_collective(kind) || nranks < 1 || !(algorithm->kinds >> kind & 1))
        return false;
    if (algorithm->own && !own_fits(algorithm, nranks))
        return false;
    return nranks == 1 || !algorithm->fits || algorithm->fits(kind, nranks);
}

uint32_t algorithm_widest(const struct algorithm *algorithm, rota_kind kind, int nranks, int root) {
    if (algorithm->own)
        return own_widest(algorithm, kind, nranks, root);
    return algorithm->widest ? algorithm->widest(kind, nranks) : 1;
}

rota_status algorithm_prove(const struct algorithm *algorithm, rota_kind kind, int nranks,
                            int root) {
    return algorithm->own ? own_prove(algorithm, kind, nranks, root) : ROTA_OK;
}

static void build_alone(const struct algorithm_request *request, struct sched_builder *builder) {
    struct sched_range input = sched_input(0, 1), output = sched_output(0, 1);
    if (request->kind == ROTA_KIND_EXCLUSIVE_SCAN)
        return; /* nobody is below */
    if (sched_kind_reduces(request->kind))
        sched_reduce(builder, &input, 1, output, SCHED_LOAD_LOCAL | SCHED_FINISH);
    else if (request->kind != ROTA_KIND_BARRIER && !request->in_place)
        sched_copy(builder, input, output, 0);
}

rota_status algorithm_build(const struct algorithm *algorithm,
                            const struct algorithm_request *request, struct sched **schedule) {
    if (request->lanes < 1)
        return error_raise(ROTA_ERR_ARGUMENT, "%s: expected at least 1 lane", algorithm->name);
    if (!algorithm_can(algorithm, request->kind, request->nranks)) {
        const char *kind = sched_kind_name(request->kind);
        return error_raise(ROTA_ERR_UNSUPPORTED, "%s has no %s for %d ranks", algorithm->name,
                           kind ? kind : "such kind", request->nranks);
    }
    struct sched_shape shape = {request->kind, request->nranks, request->rank, request->root,
                                request->in_place};
    if (algorithm->own && request->nranks > 1)
        return own_build(algorithm, request, schedule);
    struct sched_builder *builder;
    rota_status status = sched_builder_create(&shape, &builder);
    if (status != ROTA_OK)
        return status;
    if (request->nranks == 1)
        build_alone(request, builder);
    else
        status = algorithm->build(request, builder);
    if (status == ROTA_OK)
        status = sched_builder_finish(builder, schedule);
    sched_builder_destroy(builder);
    return status;
}
