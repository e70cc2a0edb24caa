/* NCCL's graph files: the rings that NCCL chose (NCCL_GRAPH_DUMP_FILE) or is told to take. Read for
 * comparison: each ring is a list of device numbers. */
#include "base/error.h"
#include "topology/grow.h"
#include "topology/rings.h"
#include "topology/xml.h"

#include <stdlib.h>
#include <string.h>

#define PATTERN_RING 4 /* NCCL_TOPO_PATTERN_RING */

struct reading {
    struct topo_xml xml;
    struct topo_graph_file *file;
    int depth, room, used, width; /* of the channel being read */
    bool in_ring;
};

/* "" where there is none. */
static const char *attribute(const char **attributes, const char *name) {
    const char *value = topo_xml_attribute(attributes, name);
    return value != NULL ? value : "";
}

static void add_device(struct reading *reading, const char *text) {
    struct topo_graph_file *file = reading->file;
    char *end;
    long device = strtol(text, &end, 10);
    if (end == text || *end != '\0' || device < 0 || device > 1 << 20) {
        topo_xml_refuse(&reading->xml, "a <gpu> has no dev");
        return;
    }
    if (!grow((void **)&file->devices, reading->used, &reading->room, sizeof(int))) {
        reading->xml.no_memory = true;
        topo_xml_refuse(&reading->xml, "no memory");
        return;
    }
    file->devices[reading->used++] = (int)device;
    reading->width++;
}

static void on_start(void *argument, const char *name, const char **attributes) {
    struct reading *reading = argument;
    if (reading->depth++ == 0) {
        if (strcmp(name, "graphs") != 0)
            topo_xml_refuse(&reading->xml, "the root element is not <graphs>");
    } else if (strcmp(name, "graph") == 0) {
        reading->in_ring = strtol(attribute(attributes, "pattern"), NULL, 10) == PATTERN_RING;
    } else if (strcmp(name, "channel") == 0) {
        reading->width = 0;
    } else if (reading->in_ring && strcmp(name, "gpu") == 0) {
        add_device(reading, attribute(attributes, "dev"));
    }
}

static void on_end(void *argument, const char *name) {
    struct reading *reading = argument;
    struct topo_graph_file *file = reading->file;
    reading->depth--;
    if (!reading->in_ring || strcmp(name, "channel") != 0 || reading->width == 0)
        return;
    if (file->count > 0 && reading->width != file->width)
        topo_xml_refuse(&reading->xml, "its channels have different numbers of GPUs");
    file->width = reading->width;
    file->count++;
    reading->width = 0;
    if ((long)file->count * file->width != reading->used)
        topo_xml_refuse(&reading->xml, "a <gpu> stands outside its channel");
}

rota_status topo_read_graph(const char *source, const char *bytes, size_t length,
                            struct topo_graph_file *file) {
    struct reading reading = {.file = file};
    *file = (struct topo_graph_file){0};
    rota_status status =
        topo_xml_parse(&reading.xml, source, bytes, length, on_start, on_end, NULL);
    if (status == ROTA_OK && file->count == 0)
        status =
            error_raise(ROTA_ERR_FORMAT, "%.150s: no ring graph (pattern 4) with channels", source);
    if (status != ROTA_OK)
        topo_free_graph(file);
    return status;
}

void topo_free_graph(struct topo_graph_file *file) {
    free(file->devices);
    *file = (struct topo_graph_file){0};
}

/* GPU with the device number; where devices have none, numbers are ids. */
static int gpu_of(const struct topo *topo, int device) {
    for (int i = 0; i < topo->gpu_count; i++)
        if (topo->nodes[topo->gpus[i]].dev == device)
            return i;
    return device < topo->gpu_count && topo->nodes[topo->gpus[device]].dev < 0 ? device : -1;
}

rota_status topo_judge(const struct topo *topo, const char *source,
                       const struct topo_graph_file *file, struct topo_rings *rings) {
    *rings = (struct topo_rings){
        .kind = "none", .bound_kind = "whole", .path_bound = -1, .gpu_count = topo->gpu_count};
    if (topo->host_count > 1)
        return error_raise(ROTA_ERR_FORMAT, "%.150s: a graph file is of one host, %.80s has %d",
                           source, topo->source, topo->host_count);
    if (file->width != topo->gpu_count)
        return error_raise(ROTA_ERR_FORMAT, "%.150s: its rings have %d GPUs, %.80s has %d", source,
                           file->width, topo->source, topo->gpu_count);
    bool *seen = calloc((size_t)topo->gpu_count + 1, sizeof(bool));
    rota_status status = ROTA_OK;
    for (int r = 0; r < file->count && status == ROTA_OK && seen != NULL; r++) {
        struct topo_ring *ring = topo_add_ring(rings, 1);
        memset(seen, 0, (size_t)topo->gpu_count * sizeof(bool));
        if (ring == NULL)
            break;
        for (int i = 0; i < file->width && status == ROTA_OK; i++) {
            int device = file->devices[r * file->width + i], gpu = gpu_of(topo, device);
            if (gpu < 0)
                status = error_raise(ROTA_ERR_FORMAT, "%.150s: there is no GPU %d in %.80s", source,
                                     device, topo->source);
            else if (seen[gpu])
                status = error_raise(ROTA_ERR_FORMAT, "%.150s: GPU %d stands twice in ring %d",
                                     source, device, r);
            else
                seen[ring->gpus[i] = gpu] = true;
        }
    }
    bool short_of_memory = status == ROTA_OK &&
                           (seen == NULL || rings->count < file->count || !topo_score(topo, rings));
    free(seen);
    if (short_of_memory)
        status = error_raise(ROTA_ERR_MEMORY, "no memory for the rings of %.150s", source);
    if (status != ROTA_OK) {
        topo_free_rings(rings);
        return status;
    }
    rings->kind = "file";
    if (rings->score <= 0)
        rings->bound_kind = "hops";
    return ROTA_OK;
}
