/* An all_gather along the trees that the links of a machine carry: the library finds them in a
 * topology file, this program makes them an algorithm, and the library verifies and runs it. Rank r
 * stands for GPU r of the file.
 *
 *     rota run -n 8 -- topology_trees FILE */
#include "check.h"
#include <math.h>
#include <string.h>

struct tree {
    rota_topo_tree found;
    uint32_t first, chunks; /* of the root's block */
};

struct plan {
    rota_topo *topo; /* holds the edges */
    struct tree *trees;
    int count;
    uint32_t chunks; /* of each block */
};

/* One lane and channel per tree: what comes from the parent goes to the children. */
static rota_status gather(const rota_algorithm_request *request, rota_builder *builder, void *arg) {
    const struct plan *plan = arg;
    uint32_t me = (uint32_t)request->rank;
    rota_builder_chunks(builder, plan->chunks);
    rota_builder_copy(builder, rota_input(0, plan->chunks),
                      rota_output(me * plan->chunks, plan->chunks), 0);
    for (int t = 0; t < plan->count; t++) {
        const struct tree *tree = &plan->trees[t];
        bool is_root = tree->found.root == request->rank;
        rota_range block =
            rota_output((uint32_t)tree->found.root * plan->chunks + tree->first, tree->chunks);
        rota_builder_lane(builder, 1 + (uint32_t)t, (uint32_t)t);
        for (int e = 0; e < tree->found.edge_count; e++)
            if (tree->found.children[e] == request->rank)
                rota_builder_recv(builder, tree->found.parents[e], block, 0);
        for (int e = 0; e < tree->found.edge_count; e++)
            if (tree->found.parents[e] == request->rank)
                rota_builder_send(builder, tree->found.children[e],
                                  is_root ? rota_input(tree->first, tree->chunks) : block, 0);
    }
    return ROTA_OK;
}

/* Chunks of each block so that the share of every tree is a whole number of them. */
static void divide(struct plan *plan, int nranks) {
    double unit = 1;
    bool whole = false;
    for (; !whole && unit <= 1024; unit += !whole) {
        whole = true;
        for (int t = 0; t < plan->count; t++) {
            double chunks = plan->trees[t].found.share * unit;
            whole = whole && fabs(chunks - round(chunks)) < 1e-6 && chunks > 0.5;
        }
    }
    for (int root = 0; root < nranks; root++) {
        uint32_t first = 0;
        for (int t = 0; t < plan->count; t++) {
            struct tree *tree = &plan->trees[t];
            if (tree->found.root != root)
                continue;
            tree->first = first;
            tree->chunks = (uint32_t)lround(tree->found.share * unit);
            first += tree->chunks;
        }
        plan->chunks = first;
    }
}

static void plan_trees(struct plan *plan, const char *path, int nranks) {
    rota_topo_info info = ROTA_TOPO_INFO_INIT;
    rota_topo_result result = ROTA_TOPO_RESULT_INIT;
    check(rota_topo_load(path, &plan->topo), "topology", NULL);
    check(rota_topo_describe(plan->topo, &info), "describe", NULL);
    check(rota_topo_find_trees(plan->topo, &result), "trees", NULL);
    if (info.gpus != nranks) {
        fprintf(stderr, "%s has %d GPUs, the job %d ranks\n", path, info.gpus, nranks);
        exit(1);
    }
    plan->count = result.count;
    plan->trees = calloc((size_t)result.count + 1, sizeof(*plan->trees));
    for (int t = 0; plan->trees && t < result.count; t++) {
        plan->trees[t].found = (rota_topo_tree)ROTA_TOPO_TREE_INIT;
        check(rota_topo_tree_describe(plan->topo, t, &plan->trees[t].found), "tree", NULL);
    }
    if (!plan->trees)
        exit(1);
    divide(plan, nranks);
    printf("%d trees carry %.4g of at most %.4g links\n", result.count, result.score, result.bound);
}

int main(int argc, char **argv) {
    enum { COUNT = 50001 };
    static struct plan plan;
    rota_comm *comm;
    int rank, size;
    check(rota_init(NULL, &comm, NULL), "init", NULL);
    check(rota_comm_rank(comm, &rank), "rank", comm);
    check(rota_comm_size(comm, &size), "size", comm);
    if (argc != 2) {
        fprintf(stderr, "usage: topology_trees FILE\n");
        return 2;
    }
    plan_trees(&plan, argv[1], size);
    check(rota_algorithm_register("trees", ROTA_KIND_BIT(ROTA_KIND_ALL_GATHER), gather, &plan),
          "register", NULL);
    float *mine = malloc(COUNT * sizeof(*mine));
    float *all = malloc((size_t)size * COUNT * sizeof(*all));
    if (!mine || !all)
        return 1;
    for (int i = 0; i < COUNT; i++)
        mine[i] = (float)(i % 1000 + 1000 * rank);
    rota_call call = ROTA_CALL_INIT;
    call.algorithm = "trees";
    check(rota_all_gather(mine, all, COUNT, ROTA_FLOAT32, comm, &call), "all_gather", comm);
    for (int r = 0; r < size; r++)
        for (int i = 0; i < COUNT; i++)
            if (all[(size_t)r * COUNT + (size_t)i] != (float)(i % 1000 + 1000 * r)) {
                fprintf(stderr, "rank %d: element %d of rank %d is wrong\n", rank, i, r);
                return 1;
            }
    const char *ran = rota_comm_algorithm(comm, ROTA_KIND_ALL_GATHER);
    if (!ran || strcmp(ran, "trees") != 0)
        return 1;
    printf("right on %d ranks\n", size);
    check(rota_comm_finalize(comm, NULL), "finalize", comm);
    check(rota_comm_destroy(comm), "destroy", NULL);
    rota_topo_free(plan.topo);
    free(plan.trees);
    free(mine);
    free(all);
    return 0;
}
