/* Reading, the part that does not depend on the form: words, limits, and the set of ranks. */
#include "schedule/draft.h"

#include "base/error.h"
#include "schedule/msccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Limits for files; algorithms in C have none. Memory and time of reading and verifying follow the
 * chunks, so a short file cannot ask for much. */
enum {
    MAX_RANKS = 65536,
    MAX_CHUNKS = 1 << 22, /* of one buffer */
    MAX_TOTAL = 1 << 24,  /* chunks that all buffers hold, or all steps name */
    MAX_LANE = 65535      /* lanes and channels */
};

const char draft_no_memory[] = "no memory";

static const char *const type_words[] = {"send", "recv", "recv_reduce", "copy", "reduce"};
static const char *const buffer_words[] = {"input", "output", "scratch"};
static const char *const flag_words[] = {"load_message", "load_local", "finish", "partial"};

#define COUNT(array) (sizeof(array) / sizeof *(array))

static size_t find_word(const char *const *words, size_t count, const char *word) {
    size_t i = 0;
    while (i < count && strcmp(words[i], word) != 0)
        i++;
    return i;
}

bool draft_parse_kind(const char *word, rota_kind *kind) {
    for (int i = 0; i < ROTA_KIND_COUNT; i++)
        if (sched_kind_collective((rota_kind)i) &&
            strcmp(sched_kind_name((rota_kind)i), word) == 0) {
            *kind = (rota_kind)i;
            return true;
        }
    return false;
}

bool draft_parse_type(const char *word, enum sched_step_type *type) {
    size_t i = find_word(type_words, COUNT(type_words), word);
    *type = (enum sched_step_type)(i % COUNT(type_words));
    return i < COUNT(type_words);
}

bool draft_parse_buffer(const char *word, enum sched_buffer *buffer) {
    size_t i = find_word(buffer_words, COUNT(buffer_words), word);
    *buffer = (enum sched_buffer)(i % COUNT(buffer_words));
    return i < COUNT(buffer_words);
}

bool draft_parse_flag(const char *word, uint32_t *flag) {
    size_t i = find_word(flag_words, COUNT(flag_words), word);
    *flag = 1u << i % COUNT(flag_words);
    return i < COUNT(flag_words);
}

const char *draft_type_word(enum sched_step_type type) {
    return (unsigned)type < COUNT(type_words) ? type_words[type] : NULL;
}

const char *draft_buffer_word(enum sched_buffer buffer) {
    return (unsigned)buffer < COUNT(buffer_words) ? buffer_words[buffer] : NULL;
}

const char *draft_flag_word(uint32_t flag) {
    for (size_t i = 0; i < COUNT(flag_words); i++)
        if (flag == 1u << i)
            return flag_words[i];
    return NULL;
}

void sched_set_free(struct sched_set *set) {
    for (int i = 0; i < set->count; i++)
        sched_free(set->schedules[i]);
    free(set->schedules);
    *set = (struct sched_set){0, NULL};
}

void draft_free(struct draft *draft) {
    sched_set_free(&draft->set);
    sched_builder_destroy(draft->builder);
    free(draft->peers.items);
    free(draft->waits.items);
    free(draft->src.items);
    free(draft->dst.items);
}

static bool same_collective(const struct draft_head *a, const struct draft_head *b) {
    return a->kind == b->kind && a->nranks == b->nranks && a->chunks == b->chunks &&
           a->has_root == b->has_root && (!a->has_root || a->root == b->root);
}

static const char *check_head(const struct draft *draft, const struct draft_head *head) {
    if (head->nranks < 1 || head->nranks > MAX_RANKS)
        return "expected 1 to 65536 ranks";
    if (head->rank >= head->nranks)
        return "expected a rank below the number of ranks";
    if (head->has_root != sched_kind_rooted(head->kind))
        return head->has_root ? "this kind has no root" : "this kind needs a root";
    if (head->has_root && head->root >= head->nranks)
        return "expected a root below the number of ranks";
    uint32_t blocks = sched_kind_blocks(head->kind, (int)head->nranks);
    if ((blocks == 0) != (head->chunks == 0))
        return blocks ? "expected at least 1 chunk" : "a barrier has no chunks";
    if ((uint64_t)blocks * head->chunks > MAX_CHUNKS || head->scratch > MAX_CHUNKS)
        return "expected at most 4194304 chunks in a buffer";
    if (draft->set.count && !same_collective(&draft->head, head))
        return "expected the same collective, ranks, root and chunks as before";
    if (draft->set.count && head->rank <= draft->head.rank)
        return "expected ranks in ascending order";
    return NULL;
}

const char *draft_begin_rank(struct draft *draft, const struct draft_head *head) {
    const char *wrong = check_head(draft, head);
    if (wrong)
        return wrong;
    uint64_t chunks = (uint64_t)sched_kind_blocks(head->kind, (int)head->nranks) * head->chunks;
    draft->chunks_held += 2 * chunks + head->scratch;
    if (draft->chunks_held > MAX_TOTAL)
        return "expected at most 16777216 chunks on all ranks";
    draft->head = *head;
    draft->nsteps = 0;
    struct sched_shape shape = {head->kind, (int)head->nranks, (int)head->rank,
                                head->has_root ? (int)head->root : -1, head->in_place};
    if (sched_builder_create(&shape, &draft->builder) != ROTA_OK)
        return draft_no_memory; /* the shape was checked above */
    sched_set_chunks(draft->builder, head->chunks);
    sched_alloc_scratch(draft->builder, head->scratch);
    return NULL;
}

void draft_begin_step(struct draft *draft) {
    draft->step = (struct sched_step){.type = SCHED_SEND};
    draft->peers.count = draft->waits.count = draft->src.count = draft->dst.count = 0;
}

const char *draft_add_range(struct draft *draft, struct draft_ranges *list,
                            const struct sched_range *range) {
    if (!range->count || !range->reps)
        return "expected at least 1 chunk";
    uint64_t chunks = (uint64_t)range->count * range->reps;
    if (chunks > MAX_TOTAL || (draft->chunks_named += chunks) > MAX_TOTAL)
        return "expected at most 16777216 chunks in all steps";
    if (list->count == list->room) {
        uint32_t room = list->room ? list->room * 2 : 16;
        struct sched_range *items = realloc(list->items, room * sizeof *items);
        if (!items)
            return draft_no_memory;
        list->items = items;
        list->room = room;
    }
    list->items[list->count++] = *range;
    return NULL;
}

const char *draft_add_number(struct draft_numbers *list, uint32_t number) {
    if (number > INT32_MAX)
        return "expected a number below 2147483648";
    if (list->count == list->room) {
        uint32_t room = list->room ? list->room * 2 : 16;
        uint32_t *items = realloc(list->items, room * sizeof *items);
        if (!items)
            return draft_no_memory;
        list->items = items;
        list->room = room;
    }
    list->items[list->count++] = number;
    return NULL;
}

const char *draft_end_step(struct draft *draft) {
    const struct sched_step *step = &draft->step;
    if (step->lane > MAX_LANE || step->channel > MAX_LANE)
        return "expected lane and channel below 65536";
    bool local = step->type == SCHED_COPY || step->type == SCHED_REDUCE;
    if (local != (draft->peers.count == 0))
        return local ? "a local step has no peers" : "expected peers";
    for (uint32_t i = 0; i < draft->peers.count; i++)
        if (draft->peers.items[i] >= draft->head.nranks ||
            draft->peers.items[i] == draft->head.rank)
            return "expected peers that are other ranks";
    sched_lane(draft->builder, step->lane, step->channel);
    _Static_assert(sizeof(int) == sizeof(uint32_t), "peers were checked to fit an int");
    uint32_t number =
        sched_append(draft->builder, step, (const int *)draft->peers.items, draft->peers.count,
                     draft->src.items, draft->src.count, draft->dst.items, draft->dst.count);
    for (uint32_t i = 0; i < draft->waits.count; i++)
        sched_wait(draft->builder, number, draft->waits.items[i]);
    draft->nsteps++;
    return NULL;
}

static const char *add_schedule(struct draft *draft, struct sched *schedule) {
    if ((uint32_t)draft->set.count == draft->set_room) {
        uint32_t room = draft->set_room ? draft->set_room * 2 : 8;
        struct sched **larger = realloc(draft->set.schedules, room * sizeof(struct sched *));
        if (!larger) {
            sched_free(schedule);
            return draft_no_memory;
        }
        draft->set.schedules = larger;
        draft->set_room = room;
    }
    draft->set.schedules[draft->set.count++] = schedule;
    return NULL;
}

const char *draft_end_rank(struct draft *draft) {
    struct sched *schedule = NULL;
    rota_status status = sched_builder_finish(draft->builder, &schedule);
    sched_builder_destroy(draft->builder);
    draft->builder = NULL;
    if (status == ROTA_ERR_MEMORY)
        return draft_no_memory;
    if (status != ROTA_OK) {
        snprintf(draft->message, sizeof draft->message, "rank %u: %.120s", draft->head.rank,
                 error_record()->message);
        return draft->message;
    }
    return add_schedule(draft, schedule);
}

static rota_status read_msccl(const char *bytes, size_t length, struct sched_set *set) {
    struct msccl file = {.nsteps = 0};
    rota_status status = msccl_parse(bytes, length, &file);
    if (status == ROTA_OK)
        status = msccl_translate(&file, set);
    msccl_free(&file);
    return status;
}

rota_status sched_read(const char *bytes, size_t length, struct sched_set *set) {
    if (!bytes || !set)
        return error_raise(ROTA_ERR_ARGUMENT, "nothing to read a schedule from or to");
    size_t start = 0;
    while (start < length && strchr(" \t\r\n", bytes[start]) && bytes[start])
        start++;
    if (start < length && bytes[start] == '<')
        return read_msccl(bytes, length, set);
    struct draft draft = {.builder = NULL};
    bool json = start < length && (bytes[start] == '{' || bytes[start] == '[');
    rota_status status =
        json ? draft_read_json(&draft, bytes, length) : draft_read_text(&draft, bytes, length);
    if (status == ROTA_OK) {
        *set = draft.set;
        draft.set = (struct sched_set){0, NULL};
    }
    draft_free(&draft);
    return status;
}
