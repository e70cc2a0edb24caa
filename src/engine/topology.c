/* Topology files that settings name are read when a job begins, so that a file left over from
 * another machine is found there and not in the middle of the work. */
#include "engine/topology.h"
#include "base/error.h"
#include "base/log.h"
#include "topology/rings.h"

#include <stdlib.h>
#include <string.h>

/* The error at hand with the setting that led to it. */
static rota_status blame(rota_status status, const char *setting, const char *origin) {
    rota_error before = *error_record(); /* describing starts the record afresh */
    error_describe(status, "%s (%.60s): %.400s", setting, origin, before.message);
    return status;
}

/* Where it has a GPU for each rank, the ring is the first of those that its links carry. */
static rota_status check_topology(const char *path, const char *origin, int nranks, int **ring) {
    char *bytes = NULL;
    size_t length = 0;
    struct topo_rings rings = {0};
    struct topo *topo = topo_create(path);
    rota_status status = topo == NULL ? error_raise(ROTA_ERR_MEMORY, "no memory for a topology")
                                      : topo_read_file(path, &bytes, &length);
    if (status == ROTA_OK)
        status = topo_read(topo, bytes, length);
    if (status == ROTA_OK)
        status = topo_finish(topo);
    for (int i = 0; status == ROTA_OK && i < topo->warning_count; i++)
        log_write(LOG_INFO, "%s: %s", path, topo->warnings[i]);
    if (status == ROTA_OK && topo->gpu_count == nranks && ring != NULL)
        status = topo_find_rings(topo, &rings);
    if (rings.count > 0) { /* taken over, not copied */
        *ring = rings.rings[0].gpus;
        rings.rings[0].gpus = NULL;
    }
    topo_free_rings(&rings);
    free(bytes);
    topo_destroy(topo);
    return status == ROTA_OK ? ROTA_OK : blame(status, "ROTA_TOPO_FILE", origin);
}

/* The first ring, if it has every rank once. */
static rota_status take_ring(const char *path, const struct topo_graph_file *file, int **ring) {
    int n = file->width;
    int *order = malloc((size_t)n * sizeof(*order));
    bool *seen = calloc((size_t)n, sizeof(*seen));
    rota_status status = order != NULL && seen != NULL
                             ? ROTA_OK
                             : error_raise(ROTA_ERR_MEMORY, "no memory for a ring");
    for (int i = 0; i < n && status == ROTA_OK; i++) {
        order[i] = file->devices[i];
        if (seen[order[i]])
            status =
                error_raise(ROTA_ERR_FORMAT, "%.150s: GPU %d is in its ring twice", path, order[i]);
        seen[order[i]] = true;
    }
    free(seen);
    if (status == ROTA_OK)
        *ring = order;
    else
        free(order);
    return status;
}

static rota_status check_graph(const char *path, const char *origin, int nranks, int **ring) {
    struct topo_graph_file file = {0};
    char *bytes = NULL;
    size_t length = 0;
    rota_status status = topo_read_file(path, &bytes, &length);
    if (status == ROTA_OK)
        status = topo_read_graph(path, bytes, length, &file);
    for (int i = 0; status == ROTA_OK && i < file.count * file.width; i++)
        if (file.devices[i] >= nranks)
            status = error_raise(ROTA_ERR_FORMAT, "%.150s: there is no GPU %d in a job of %d ranks",
                                 path, file.devices[i], nranks);
    if (status == ROTA_OK && file.width != nranks)
        status =
            error_raise(ROTA_ERR_FORMAT, "%.150s: its rings have %d GPUs, the job has %d ranks",
                        path, file.width, nranks);
    if (status == ROTA_OK && file.count > 0)
        status = take_ring(path, &file, ring);
    free(bytes);
    topo_free_graph(&file);
    if (status == ROTA_OK || status == ROTA_ERR_MEMORY)
        return status;
    log_write(LOG_WARN, "ROTA_GRAPH_FILE (%s): %s: ignored", origin, error_record()->message);
    error_clear();
    return ROTA_OK;
}

rota_status topology_check_settings(const struct settings *settings, int nranks, int **ring) {
    const char *topology = settings_text(settings, SETTING_TOPO_FILE);
    const char *graph = settings_text(settings, SETTING_GRAPH_FILE);
    rota_status status = ROTA_OK;
    *ring = NULL;
    if (graph[0] != '\0')
        status = check_graph(graph, settings_origin(settings, SETTING_GRAPH_FILE), nranks, ring);
    if (status == ROTA_OK && topology[0] != '\0')
        status = check_topology(topology, settings_origin(settings, SETTING_TOPO_FILE), nranks,
                                *ring == NULL ? ring : NULL);
    if (status != ROTA_OK) {
        free(*ring);
        *ring = NULL;
    }
    return status;
}
