/* Reader of the JSON form (docs/schedules.md): an object per rank, or an array of them. Unknown
 * members are refused, since a step that is half understood is another step. */
#include "schedule/draft.h"

#include "base/error.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

struct reader {
    struct draft *draft;
    size_t rank, step; /* where we are, for messages */
    bool in_step;
    rota_status status;
};

static bool fail(struct reader *r, const char *member, const char *what) {
    char where[64];
    if (r->in_step)
        snprintf(where, sizeof where, "[%zu].steps[%zu]", r->rank, r->step);
    else
        snprintf(where, sizeof where, "[%zu]", r->rank);
    r->status = error_raise(ROTA_ERR_FORMAT, "%s%s%s: %s", where, member ? "." : "",
                            member ? member : "", what);
    return false;
}

static bool accept(struct reader *r, const char *wrong) {
    if (!wrong)
        return true;
    if (wrong != draft_no_memory)
        return fail(r, NULL, wrong);
    r->status = error_raise(ROTA_ERR_MEMORY, "no memory to read a schedule");
    return false;
}

static bool number_of(struct reader *r, const json_t *value, const char *member, uint32_t *number) {
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        json_integer_value(value) > UINT32_MAX)
        return fail(r, member, "expected a number from 0 to 4294967295");
    *number = (uint32_t)json_integer_value(value);
    return true;
}

/* A member that may be missing. */
static bool read_number(struct reader *r, const json_t *object, const char *member,
                        uint32_t *number) {
    const json_t *value = json_object_get(object, member);
    return !value || number_of(r, value, member, number);
}

static bool check_members(struct reader *r, json_t *object, const char *const *known) {
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        size_t i = 0;
        while (known[i] && strcmp(known[i], key) != 0)
            i++;
        if (!known[i])
            return fail(r, NULL, "has a member that is not known");
    }
    return true;
}

static bool read_range(struct reader *r, json_t *object, const char *member,
                       struct draft_ranges *list) {
    static const char *const known[] = {"buffer", "first", "count",       "stride",
                                        "reps",   "like",  "like_stride", NULL};
    struct sched_range range = {.count = 1, .reps = 1};
    if (!json_is_object(object))
        return fail(r, member, "expected objects");
    const char *buffer = json_string_value(json_object_get(object, "buffer"));
    if (!buffer || !draft_parse_buffer(buffer, &range.buffer))
        return fail(r, member, "expected buffer input, output or scratch");
    return check_members(r, object, known) && read_number(r, object, "first", &range.first) &&
           read_number(r, object, "count", &range.count) &&
           read_number(r, object, "stride", &range.stride) &&
           read_number(r, object, "reps", &range.reps) &&
           read_number(r, object, "like", &range.like) &&
           read_number(r, object, "like_stride", &range.like_stride) &&
           accept(r, draft_add_range(r->draft, list, &range));
}

static bool read_ranges(struct reader *r, const json_t *object, const char *member,
                        struct draft_ranges *list) {
    json_t *array = json_object_get(object, member), *value;
    size_t i;
    if (array && !json_is_array(array))
        return fail(r, member, "expected an array");
    json_array_foreach(array, i, value) {
        if (!read_range(r, value, member, list))
            return false;
    }
    return true;
}

static bool read_numbers(struct reader *r, const json_t *object, const char *member,
                         struct draft_numbers *list) {
    json_t *array = json_object_get(object, member), *value;
    size_t i;
    if (array && !json_is_array(array))
        return fail(r, member, "expected an array");
    json_array_foreach(array, i, value) {
        uint32_t number = 0;
        if (!number_of(r, value, member, &number) || !accept(r, draft_add_number(list, number)))
            return false;
    }
    return true;
}

static bool read_flags(struct reader *r, const json_t *object) {
    json_t *array = json_object_get(object, "flags"), *value;
    size_t i;
    if (array && !json_is_array(array))
        return fail(r, "flags", "expected an array");
    json_array_foreach(array, i, value) {
        const char *word = json_string_value(value);
        uint32_t flag;
        if (!word || !draft_parse_flag(word, &flag))
            return fail(r, "flags", "expected load_message, load_local, finish or partial");
        r->draft->step.flags |= flag;
    }
    return true;
}

static bool read_step(struct reader *r, json_t *object) {
    static const char *const known[] = {"type",  "peers", "position", "operands", "src", "dst",
                                        "flags", "lane",  "channel",  "waits",    NULL};
    struct draft *d = r->draft;
    if (!json_is_object(object))
        return fail(r, NULL, "expected an object");
    draft_begin_step(d);
    const char *type = json_string_value(json_object_get(object, "type"));
    if (!type || !draft_parse_type(type, &d->step.type))
        return fail(r, "type", "expected send, recv, recv_reduce, copy or reduce");
    return check_members(r, object, known) && read_numbers(r, object, "peers", &d->peers) &&
           read_number(r, object, "position", &d->step.position) &&
           read_number(r, object, "operands", &d->step.operands) &&
           read_ranges(r, object, "src", &d->src) && read_ranges(r, object, "dst", &d->dst) &&
           read_flags(r, object) && read_number(r, object, "lane", &d->step.lane) &&
           read_number(r, object, "channel", &d->step.channel) &&
           read_numbers(r, object, "waits", &d->waits) && accept(r, draft_end_step(d));
}

static bool read_head(struct reader *r, json_t *object) {
    static const char *const known[] = {"collective", "ranks",    "rank",  "root", "chunks",
                                        "scratch",    "in_place", "steps", NULL};
    struct draft_head head = {.nranks = 0};
    if (!json_is_object(object))
        return fail(r, NULL, "expected an object");
    const char *kind = json_string_value(json_object_get(object, "collective"));
    if (!kind || !draft_parse_kind(kind, &head.kind))
        return fail(r, "collective", "expected the name of a collective");
    if (!json_object_get(object, "ranks") || !json_object_get(object, "rank"))
        return fail(r, NULL, "expected ranks and rank");
    const json_t *in_place = json_object_get(object, "in_place");
    if (in_place && !json_is_boolean(in_place))
        return fail(r, "in_place", "expected true or false");
    head.in_place = json_is_true(in_place);
    head.has_root = json_object_get(object, "root") != NULL;
    return check_members(r, object, known) && read_number(r, object, "ranks", &head.nranks) &&
           read_number(r, object, "rank", &head.rank) &&
           read_number(r, object, "root", &head.root) &&
           read_number(r, object, "chunks", &head.chunks) &&
           read_number(r, object, "scratch", &head.scratch) &&
           accept(r, draft_begin_rank(r->draft, &head));
}

static bool read_rank(struct reader *r, json_t *object) {
    json_t *step;
    r->in_step = false;
    if (!read_head(r, object))
        return false;
    const json_t *steps = json_object_get(object, "steps");
    if (!json_is_array(steps))
        return fail(r, "steps", "expected an array");
    r->in_step = true;
    json_array_foreach(steps, r->step, step) {
        if (!read_step(r, step))
            return false;
    }
    r->in_step = false;
    return accept(r, draft_end_rank(r->draft));
}

rota_status draft_read_json(struct draft *draft, const char *bytes, size_t length) {
    json_error_t error;
    json_t *root = json_loadb(bytes, length, JSON_REJECT_DUPLICATES, &error), *value;
    if (!root)
        return error_raise(ROTA_ERR_FORMAT, "line %d, column %d: %.100s", error.line, error.column,
                           error.text);
    struct reader r = {.draft = draft, .status = ROTA_OK};
    if (json_is_object(root)) {
        read_rank(&r, root);
    } else if (json_array_size(root) == 0) {
        r.status = error_raise(ROTA_ERR_FORMAT, "line 1: expected the schedule of at least 1 rank");
    } else {
        json_array_foreach(root, r.rank, value) {
            if (!read_rank(&r, value))
                break;
        }
    }
    json_decref(root);
    return r.status;
}
