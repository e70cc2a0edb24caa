/* Groups. An operation that is recorded keeps a copy of its call. Ending starts each as a request
 * of its own: collectives of one communicator queue up in the order of recording, everything else
 * goes on side by side, so no order of sends and receives can block another. Small all-reduces may
 * go together as one. The group's own request is told by its members' call-backs. */
#include "engine/group.h"

#include "base/error.h"
#include "engine/collective.h"
#include "engine/fusion.h"
#include <stdlib.h>
#include <string.h>

struct recorded {
    rota_comm *comm;
    struct call_args args;
    rota_call call;
    char *algorithm, *label;
    size_t *tables;
    bool fused; /* is a part of a fusion that has started */
    struct recorded *next;
};

struct rota_group {
    rota_group *outer; /* what is recorded here goes there */
    int open;          /* groups inside that have not ended */
    struct recorded *first, **last;
    int count;
    rota_status refused; /* status of the first call that was refused ... */
    rota_error record;   /* ... and its record */
};

/* The members of a group that has started. The last member to end frees it. */
struct member {
    struct together *together;
    rota_request *request;
    struct fusion *fusion; /* what it stands for, or NULL */
};
struct together {
    rota_request *whole;
    _Atomic int left;   /* members that have not ended, and one for whoever starts them */
    _Atomic int failed; /* index + 1 of the first member known to have failed */
    rota_error record;
    int count;
    struct member members[];
};

rota_status group_begin(rota_group **group) {
    rota_group *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return error_raise(ROTA_ERR_MEMORY, "out of memory for a group");
    made->last = &made->first;
    *group = made;
    return ROTA_OK;
}

static rota_group *outermost(rota_group *group) {
    while (group->outer != NULL)
        group = group->outer;
    return group;
}

static void free_recorded(struct recorded *recorded) {
    free(recorded->algorithm);
    free(recorded->label);
    free(recorded->tables);
    free(recorded);
}

static void group_free(rota_group *group) {
    while (group->first != NULL) {
        struct recorded *next = group->first->next;
        free_recorded(group->first);
        group->first = next;
    }
    free(group);
}

void group_refuse(rota_group *group) {
    group = outermost(group);
    if (group->refused != ROTA_OK)
        return;
    group->record = *error_record();
    group->refused = group->record.status;
}

rota_status group_record(rota_comm *comm, const struct call_args *args, const rota_call *call) {
    rota_group *group = outermost(call->group);
    struct recorded *recorded = calloc(1, sizeof(*recorded));
    if (recorded == NULL)
        return error_raise(ROTA_ERR_MEMORY, "out of memory for a group");
    recorded->comm = comm;
    recorded->args = *args;
    recorded->call = *call;
    recorded->call.size = sizeof(recorded->call);
    recorded->call.group = NULL;
    bool kept = !args->vector ||
                call_keep_tables(&recorded->args, comm->nranks, &recorded->tables) == ROTA_OK;
    if (call->algorithm != NULL)
        kept &= (recorded->algorithm = strdup(call->algorithm)) != NULL;
    if (call->label != NULL)
        kept &= (recorded->label = strdup(call->label)) != NULL;
    if (!kept) {
        free_recorded(recorded);
        return error_raise(ROTA_ERR_MEMORY, "out of memory for a group");
    }
    recorded->call.algorithm = recorded->algorithm;
    recorded->call.label = recorded->label;
    *group->last = recorded;
    group->last = &recorded->next;
    group->count++;
    return ROTA_OK;
}

rota_status group_add(rota_group *outer, rota_group *inner) {
    if (inner->outer != NULL)
        return error_raise(ROTA_ERR_STATE, "inner is in a group already");
    for (rota_group *group = outer; group != NULL; group = group->outer)
        if (group == inner)
            return error_raise(ROTA_ERR_ARGUMENT, "outer is inner, or inside of it");
    inner->outer = outer;
    outer->open++;
    rota_group *top = outermost(outer);
    if (inner->first != NULL) {
        *top->last = inner->first;
        top->last = inner->last;
        top->count += inner->count;
        inner->first = NULL;
        inner->last = &inner->first;
    }
    if (inner->refused != ROTA_OK && top->refused == ROTA_OK) {
        top->refused = inner->refused;
        top->record = inner->record;
    }
    return ROTA_OK;
}

/* -- running ------------------------------------------------------------------------------------
 */

static void leave(struct together *together) {
    /* Partner: the other members' decrements; the last one sees all records. */
    if (atomic_fetch_sub_explicit(&together->left, 1, memory_order_acq_rel) > 1)
        return;
    rota_status status = ROTA_OK;
    if (atomic_load_explicit(&together->failed, memory_order_relaxed) != 0) {
        status = together->record.status;
        *error_record() = together->record;
    }
    request_settle(together->whole, status);
    free(together);
}

static void fail(struct together *together, int index, const rota_error *record) {
    int none = 0;
    if (atomic_compare_exchange_strong(&together->failed, &none, index + 1))
        together->record = *record;
}

/* Call-back of a member. */
static void member_done(void *arg, rota_status status) {
    struct member *member = arg;
    struct together *together = member->together;
    int index = (int)(member - together->members);
    if (status != ROTA_OK)
        fail(together, index, &member->request->record);
    else if (member->fusion != NULL &&
             fusion_unpack(member->fusion, together->whole->job) != ROTA_OK)
        fail(together, index, error_record());
    fusion_free(member->fusion);
    request_release(member->request);
    leave(together);
}

/* The calls of the same communicator that follow `first` and can go with it: those up to the next
 * other collective, as long as they fit. Visits at most as many others as the group has. */
static int count_joining(const struct recorded *first, size_t limit, const struct recorded **last) {
    size_t bytes = 0;
    int count = 0;
    for (const struct recorded *next = first; next != NULL; next = next->next) {
        if (next->comm != first->comm || !sched_kind_collective(next->args.kind))
            continue;
        if (!fusion_takes(next->comm, &next->args, &next->call) ||
            !fusion_joins(&first->args, &first->call, &next->args, &next->call))
            break;
        bytes += next->args.count * rota_dtype_size(next->args.dtype);
        if (bytes > limit)
            break;
        count++;
        *last = next;
    }
    return count;
}

/* Puts the calls that go with `first` together, where there are any. */
static rota_status fuse(struct recorded *first, struct fusion **fusion) {
    size_t limit = fusion_limit(first->comm);
    const struct recorded *last = NULL;
    if (!fusion_takes(first->comm, &first->args, &first->call))
        return ROTA_OK;
    int count = count_joining(first, limit, &last);
    if (count < 2)
        return ROTA_OK;
    struct fusion *made = fusion_create(&first->args, count);
    if (made == NULL)
        return error_raise(ROTA_ERR_MEMORY, "out of memory for a group");
    for (struct recorded *next = first;; next = next->next) {
        if (next->comm == first->comm && sched_kind_collective(next->args.kind)) {
            fusion_add(made, &next->args);
            next->fused = true;
            if (first->call.timeout_ms == 0 ||
                (next->call.timeout_ms > 0 && next->call.timeout_ms < first->call.timeout_ms))
                first->call.timeout_ms = next->call.timeout_ms;
        }
        if (next == last)
            break;
    }
    rota_status status = fusion_pack(made, first->comm->job);
    if (status == ROTA_OK)
        *fusion = made;
    else
        fusion_free(made);
    return status;
}

static rota_status start_member(struct recorded *recorded, struct member *member) {
    rota_call *call = &recorded->call;
    call->request = &member->request;
    call->done = member_done;
    call->done_arg = member;
    rota_comm *comm = recorded->comm;
    rota_status status = fuse(recorded, &member->fusion);
    if (status != ROTA_OK)
        return status;
    struct call_args *args = member->fusion != NULL ? &member->fusion->args : &recorded->args;
    atomic_fetch_add_explicit(&comm->users, 1, memory_order_relaxed);
    status = sched_kind_collective(args->kind) ? collective_run(comm, args, call)
                                               : collective_p2p(comm, args, call);
    /* Partner: comm_destroy waits for 0 before it frees. */
    atomic_fetch_sub_explicit(&comm->users, 1, memory_order_release);
    return status;
}

/* Starts all; the first that cannot start ends the starting. */
static void start_all(rota_group *group, struct together *together) {
    int index = 0;
    for (struct recorded *recorded = group->first; recorded != NULL; recorded = recorded->next) {
        if (recorded->fused)
            continue;
        struct member *member = &together->members[index];
        member->together = together;
        atomic_fetch_add_explicit(&together->left, 1, memory_order_relaxed);
        if (start_member(recorded, member) != ROTA_OK) {
            fail(together, index, error_record());
            fusion_free(member->fusion);
            atomic_fetch_sub_explicit(&together->left, 1, memory_order_relaxed);
            break;
        }
        index++;
    }
    leave(together);
}

static rota_status run(rota_group *group, const rota_call *call) {
    struct together *together =
        calloc(1, sizeof(*together) + (size_t)group->count * sizeof(together->members[0]));
    rota_request *whole = together != NULL ? request_create_whole(group->first->comm, call) : NULL;
    if (whole == NULL) {
        free(together);
        return error_raise(ROTA_ERR_MEMORY, "out of memory for a group");
    }
    together->whole = whole;
    together->count = group->count;
    atomic_init(&together->left, 1);
    if (call != NULL && call->request != NULL)
        *call->request = whole;
    bool asynchronous = call != NULL && call->request != NULL;
    start_all(group, together);
    if (asynchronous)
        return ROTA_OK;
    request_wait(whole, CLOCK_NEVER);
    rota_status status = request_outcome(whole);
    request_release(whole);
    return status;
}

static rota_status check_open(const rota_group *group) {
    if (group->open > 0)
        return error_raise(ROTA_ERR_STATE, "%d groups inside this one are still open", group->open);
    return ROTA_OK;
}

rota_status group_drop(rota_group *group) {
    rota_status status = check_open(group);
    if (status != ROTA_OK)
        return status;
    if (group->outer != NULL)
        group->outer->open--;
    group_free(group);
    return ROTA_OK;
}

rota_status group_end(rota_group *group, const rota_call *call) {
    rota_status status = check_open(group);
    if (status != ROTA_OK)
        return status;
    if (group->outer != NULL) {
        group->outer->open--;
    } else if (group->refused != ROTA_OK) {
        *error_record() = group->record;
        status = group->refused;
    } else if (group->first != NULL) {
        status = run(group, call);
    } else if (call != NULL && call->request != NULL) {
        status = error_raise(ROTA_ERR_ARGUMENT, "a request for a group without operations");
    }
    group_free(group);
    return status;
}
