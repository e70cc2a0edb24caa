/* Reads MSCCL's XML into plain arrays. Everything is checked that does not need the meaning of
 * steps: names, numbers, order, sizes. A document type is refused, so there are no entities. */
#include "schedule/msccl.h"

#include "base/error.h"

#include <errno.h>
#include <expat.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is below follows the file's length, but for these. */
enum {
    MAX_GPUS = 1024,
    MAX_CHUNKS = 65536,
    MAX_CHANNEL = 65535,
    MAX_BLOCKS = 1024,
    MAX_BYTES = 256 << 20
};

struct reading {
    struct msccl *file;
    XML_Parser parser;
    int depth;
    rota_status status;
};

static void fail(struct reading *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void fail(struct reading *r, const char *format, ...) {
    char text[160];
    if (r->status != ROTA_OK)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    r->status = error_raise(ROTA_ERR_FORMAT, "line %lu: %s",
                            (unsigned long)XML_GetCurrentLineNumber(r->parser), text);
    XML_StopParser(r->parser, XML_FALSE);
}

static const char *find(const char **attributes, const char *name) {
    for (; attributes[0] != NULL; attributes += 2)
        if (strcmp(attributes[0], name) == 0)
            return attributes[1];
    return NULL;
}

static const char *text(struct reading *r, const char **attributes, const char *name) {
    const char *value = find(attributes, name);
    if (value == NULL)
        fail(r, "expected the attribute %s", name);
    return value != NULL ? value : "";
}

static int32_t number(struct reading *r, const char **attributes, const char *name, int32_t low,
                      int32_t high) {
    const char *value = text(r, attributes, name);
    char *end = NULL;
    errno = 0;
    long read = strtol(value, &end, 10);
    if (end == value || *end != '\0' || errno != 0 || read < low || read > high) {
        fail(r, "%s: expected a number from %d to %d, not \"%.20s\"", name, low, high, value);
        return low;
    }
    return (int32_t)read;
}

/* A new element at the end of an array, NULL after a failure. */
static void *add(struct reading *r, void **array, uint32_t *count, uint32_t *room, size_t size) {
    if (r->status != ROTA_OK)
        return NULL;
    if (*count == *room) {
        uint32_t wanted = *room > 0 ? *room * 2 : 16;
        void *larger = realloc(*array, wanted * size);
        if (larger == NULL) {
            r->status = error_raise(ROTA_ERR_MEMORY, "no memory for a schedule");
            XML_StopParser(r->parser, XML_FALSE);
            return NULL;
        }
        *array = larger;
        *room = wanted;
    }
    void *added = (char *)*array + (size_t)(*count)++ * size;
    memset(added, 0, size);
    return added;
}

static rota_kind read_kind(struct reading *r, const char *name) {
    static const struct {
        const char *name;
        rota_kind kind;
    } kinds[] = {{"allreduce", ROTA_KIND_ALL_REDUCE},
                 {"allgather", ROTA_KIND_ALL_GATHER},
                 {"reducescatter", ROTA_KIND_REDUCE_SCATTER},
                 {"reduce_scatter", ROTA_KIND_REDUCE_SCATTER},
                 {"alltoall", ROTA_KIND_ALL_TO_ALL}};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strcmp(name, kinds[i].name) == 0)
            return kinds[i].kind;
    fail(r, "coll: expected allreduce, allgather, reduce_scatter or alltoall, not \"%.20s\"", name);
    return ROTA_KIND_ALL_REDUCE;
}

static void read_algo(struct reading *r, const char **attributes) {
    struct msccl *file = r->file;
    file->kind = read_kind(r, text(r, attributes, "coll"));
    file->ngpus = (uint32_t)number(r, attributes, "ngpus", 1, MAX_GPUS);
    file->in_place = number(r, attributes, "inplace", 0, 1) == 1;
    uint32_t chunks = (uint32_t)number(r, attributes, "nchunksperloop", 1, MAX_CHUNKS);
    uint32_t blocks = sched_kind_blocks(file->kind, (int)file->ngpus);
    if (r->status == ROTA_OK && chunks % blocks != 0)
        fail(r, "nchunksperloop: expected a multiple of %u, not %u", blocks, chunks);
    file->chunks_per_block = chunks / blocks;
}

static void read_gpu(struct reading *r, const char **attributes) {
    struct msccl *file = r->file;
    uint32_t next = file->ngpus_read;
    if (next == file->ngpus)
        fail(r, "a gpu more than the %u of ngpus", next);
    if (number(r, attributes, "id", 0, MAX_GPUS) != (int32_t)next)
        fail(r, "expected gpu %u", next);
    uint32_t scratch = (uint32_t)number(r, attributes, "s_chunks", 0, MAX_CHUNKS);
    struct msccl_gpu *gpu =
        add(r, (void **)&file->gpus, &file->ngpus_read, &file->gpu_room, sizeof(*gpu));
    if (gpu != NULL)
        *gpu = (struct msccl_gpu){.scratch_chunks = scratch, .first_block = file->nblocks};
}

static void read_block(struct reading *r, const char **attributes) {
    struct msccl *file = r->file;
    struct msccl_gpu *gpu = &file->gpus[file->ngpus_read - 1];
    int32_t last = (int32_t)file->ngpus - 1, self = (int32_t)file->ngpus_read - 1;
    if (number(r, attributes, "id", 0, MAX_BLOCKS - 1) != (int32_t)gpu->nblocks)
        fail(r, "expected tb %u", gpu->nblocks);
    int32_t send = number(r, attributes, "send", -1, last);
    int32_t recv = number(r, attributes, "recv", -1, last);
    uint32_t channel = (uint32_t)number(r, attributes, "chan", 0, MAX_CHANNEL);
    if (send == self || recv == self)
        fail(r, "a tb's peers are other gpus");
    struct msccl_block *block =
        add(r, (void **)&file->blocks, &file->nblocks, &file->block_room, sizeof(*block));
    if (block == NULL)
        return;
    *block = (struct msccl_block){.send = send,
                                  .recv = recv,
                                  .channel = channel,
                                  .gpu = (uint32_t)self,
                                  .first_step = file->nsteps};
    gpu->nblocks++;
}

static enum msccl_type read_type(struct reading *r, const char *name) {
    static const char *const names[MSCCL_TYPES] = {"s",    "r",   "rcs", "rrc", "rrs",
                                                   "rrcs", "cpy", "re",  "nop"};
    for (int i = 0; i < MSCCL_TYPES; i++)
        if (strcmp(name, names[i]) == 0)
            return (enum msccl_type)i;
    fail(r, "type: expected s, r, rcs, rrc, rrs, rrcs, cpy, re or nop, not \"%.20s\"", name);
    return MSCCL_NOP;
}

static int read_buffer(struct reading *r, const char **attributes, const char *name) {
    const char *value = text(r, attributes, name);
    if (value[0] != '\0' && value[1] == '\0' && strchr("ios", value[0]) != NULL)
        return value[0] == 'i' ? MSCCL_INPUT : value[0] == 'o' ? MSCCL_OUTPUT : MSCCL_SCRATCH;
    fail(r, "%s: expected i, o or s, not \"%.20s\"", name, value);
    return MSCCL_INPUT;
}

static void read_step(struct reading *r, const char **attributes) {
    struct msccl *file = r->file;
    struct msccl_block *block = &file->blocks[file->nblocks - 1];
    if (number(r, attributes, "s", 0, INT32_MAX) != (int32_t)block->nsteps)
        fail(r, "expected step %u", block->nsteps);
    struct msccl_step step = {.type = read_type(r, text(r, attributes, "type")),
                              .line = (uint32_t)XML_GetCurrentLineNumber(r->parser)};
    step.dep_block = number(r, attributes, "depid", -1, MAX_BLOCKS - 1);
    step.dep_step = number(r, attributes, "deps", -1, INT32_MAX);
    if (step.type != MSCCL_NOP) {
        step.src_buffer = read_buffer(r, attributes, "srcbuf");
        step.dst_buffer = read_buffer(r, attributes, "dstbuf");
        step.src_offset = number(r, attributes, "srcoff", -1, MAX_CHUNKS);
        step.dst_offset = number(r, attributes, "dstoff", -1, MAX_CHUNKS);
        step.count = (uint32_t)number(r, attributes, "cnt", 1, MAX_CHUNKS);
        file->widest = step.count > file->widest ? step.count : file->widest;
    }
    struct msccl_step *added =
        add(r, (void **)&file->steps, &file->nsteps, &file->step_room, sizeof(*added));
    if (added == NULL)
        return;
    *added = step;
    block->nsteps++;
}

static void on_start(void *data, const char *name, const char **attributes) {
    static const char *const names[] = {"algo", "gpu", "tb", "step"};
    static void (*const readers[])(struct reading *, const char **) = {read_algo, read_gpu,
                                                                       read_block, read_step};
    struct reading *r = data;
    if (r->status != ROTA_OK)
        return;
    if (r->depth >= 4 || strcmp(name, names[r->depth]) != 0)
        fail(r, "expected %s, not \"%.20s\"", r->depth < 4 ? names[r->depth] : "nothing", name);
    else
        readers[r->depth](r, attributes);
    r->depth++;
}

static void on_end(void *data, const char *name) {
    struct reading *r = data;
    (void)name;
    r->depth--;
}

static void on_doctype(void *data, const char *name, const char *system, const char *public,
                       int has_subset) {
    (void)name, (void)system, (void)public, (void)has_subset;
    fail(data, "a document type has no place here");
}

rota_status msccl_parse(const char *bytes, size_t length, struct msccl *file) {
    struct reading r = {.file = file, .parser = XML_ParserCreate("UTF-8")};
    if (r.parser == NULL)
        return error_raise(ROTA_ERR_MEMORY, "no memory for a schedule");
    XML_SetUserData(r.parser, &r);
    XML_SetElementHandler(r.parser, on_start, on_end);
    XML_SetStartDoctypeDeclHandler(r.parser, on_doctype);
    if (length > MAX_BYTES)
        fail(&r, "more than 256 MiB");
    else if (XML_Parse(r.parser, bytes, (int)length, 1) != XML_STATUS_OK)
        fail(&r, "%s", XML_ErrorString(XML_GetErrorCode(r.parser)));
    else if (file->ngpus_read != file->ngpus)
        fail(&r, "expected %u gpus, not %u", file->ngpus, file->ngpus_read);
    XML_ParserFree(r.parser);
    return r.status;
}

void msccl_free(struct msccl *file) {
    free(file->gpus);
    free(file->blocks);
    free(file->steps);
}
