/* Native groups: how the members of a communicator find each other in shared memory.
 *
 * Design note. Each member publishes an entry in the table of its own arena, under the
 * communicator's id and generation. An entry ends in one of two final states: CONNECTED, when the
 * member has found the entries of all others, or FAILED. A group may be used when all entries say
 * CONNECTED and may not when one says FAILED, or when a pair of its members has given shared memory
 * up (both of the pair know that, and publish FAILED). As final states never change, all members
 * come to the same answer. Closing says nothing about the past: an entry of a closed group keeps
 * its final state, and area and entry are used again only when all members have closed. */
#include "transports/shm/group.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

/* Polls before the engine is asked how to wait, when each rank has a core, and when not. */
#define POLLS_ALONE 200
#define POLLS_CROWDED 2
/* Entries given back that are kept readable before they are used again. */
#define SPARE_MINIMUM 64

/* -- entries --------------------------------------------------------------------------------- */

static struct shm_group_entry *own_table(struct shm *shm) {
    return shm_arena_at(&shm->arena, shm->arena.head->identity.group_table);
}

/* Index of an entry to use; -1 when all are in use. */
static int entry_take(struct shm *shm) {
    bool full = shm->groups_used == SHM_GROUPS;
    if (shm->group_spare_count > (full ? 0u : SPARE_MINIMUM)) {
        int index = shm->group_spare[shm->group_spare_head % SHM_GROUPS];
        shm->group_spare_head++;
        shm->group_spare_count--;
        return index;
    }
    if (full)
        return -1;
    atomic_store_explicit(&shm->arena.head->groups.used, ++shm->groups_used, memory_order_release);
    return (int)shm->groups_used - 1;
}

static void entry_put(struct shm *shm, uint32_t index) {
    shm->group_spare[(shm->group_spare_head + shm->group_spare_count) % SHM_GROUPS] =
        (uint16_t)index;
    shm->group_spare_count++;
}

/* Stores are releases, and the reader's loads acquires, so that whoever sees a field of this use
 * sees the state changed before it: entry_read. */
static void entry_publish(const struct native_group *group) {
    struct shm_group_entry *entry = group->entry;
    uint64_t use = (atomic_load_explicit(&entry->state, memory_order_relaxed) >> 8) + 1;
    atomic_store_explicit(&entry->state, use << 8 | SHM_GROUP_FREE, memory_order_release);
    atomic_store_explicit(&entry->key, group->key, memory_order_release);
    atomic_store_explicit(&entry->area, group->area_offset, memory_order_release);
    atomic_store_explicit(&entry->forms, group->forms, memory_order_release);
    atomic_store_explicit(&entry->closed, 0, memory_order_release);
    atomic_store_explicit(&entry->state, use << 8 | group->outcome, memory_order_release);
}

static void set_outcome(struct native_group *group, uint8_t outcome) {
    uint64_t use = atomic_load_explicit(&group->entry->state, memory_order_relaxed) >> 8;
    group->outcome = outcome;
    atomic_store_explicit(&group->entry->state, use << 8 | outcome, memory_order_release);
}

/* Whether a peer's entry belongs to the group now; fills what the member needs of it. */
static bool entry_read(const struct native_group *group, struct shm_member *member,
                       const struct shm_map *map, const struct shm_group_entry *entry) {
    uint64_t state = atomic_load_explicit(&entry->state, memory_order_acquire);
    if ((state & 0xff) == SHM_GROUP_FREE ||
        atomic_load_explicit(&entry->key, memory_order_acquire) != group->key)
        return false;
    uint64_t offset = atomic_load_explicit(&entry->area, memory_order_acquire);
    uint32_t forms = atomic_load_explicit(&entry->forms, memory_order_acquire);
    if (atomic_load_explicit(&entry->state, memory_order_relaxed) >> 8 != state >> 8)
        return false;
    member->entry = entry;
    member->use = state >> 8;
    member->area = NULL;
    member->staging = NULL;
    if (offset)
        member->area = shm_map_at(map, offset, sizeof *member->area);
    if (member->area && (forms & SHM_FORM_STAGED))
        member->staging = shm_map_at(map, offset + sizeof *member->area, sizeof *member->staging);
    return true;
}

/* Looks for the group in a peer's table. Peers that open groups in the same order have it at the
 * same index. */
static bool entry_find(const struct native_group *group, struct shm_member *member) {
    const struct shm_map *map = &group->shm->peers[member->rank]->map;
    const struct shm_group_entry *table =
        (const void *)(map->base + map->head->identity.group_table);
    uint32_t used = atomic_load_explicit(&map->head->groups.used, memory_order_acquire);
    if (used > map->head->identity.groups || used > SHM_GROUPS)
        return false;
    if (group->index < used && entry_read(group, member, map, &table[group->index]))
        return true;
    for (uint32_t i = 0; i < used; i++)
        if (entry_read(group, member, map, &table[i]))
            return true;
    return false;
}

/* State of a member's entry; one that is in use by another group has been left by all of this. */
static uint8_t member_state(const struct shm_member *member, bool *closed) {
    uint32_t says = atomic_load_explicit(&member->entry->closed, memory_order_acquire);
    uint64_t state = atomic_load_explicit(&member->entry->state, memory_order_acquire);
    bool gone = state >> 8 != member->use;
    *closed = gone || says;
    return gone ? SHM_GROUP_FAILED : (uint8_t)(state & 0xff);
}

static void tell_members(const struct native_group *group) {
    for (int i = 0; i < group->n; i++)
        if (group->members[i].bell)
            doorbell_ring(group->members[i].bell, group->members[i].event_fd);
}

/* Whether the member is connected, so that its doorbell can be rung. */
static bool member_bell(const struct native_group *group, struct shm_member *member) {
    if (member->bell)
        return true;
    if (shm_state(group->shm, member->rank) != SHM_PEER_ESTABLISHED)
        return false;
    const struct shm_peer *peer = group->shm->peers[member->rank];
    member->bell = shm_peer_bell(peer);
    member->event_fd = peer->event_fd;
    return true;
}

/* -- closing --------------------------------------------------------------------------------- */

static void group_free(struct native_group *group) {
    free(group->members);
    free(group->operands);
    free(group);
}

static bool all_closed(struct native_group *group) {
    for (int i = 0; i < group->n; i++) {
        struct shm_member *member = &group->members[i];
        if (i == group->self || member->closed)
            continue;
        uint8_t state = shm_state(group->shm, member->rank);
        if (state == SHM_PEER_GIVEN_UP) {
            member->closed = true;
            continue;
        }
        if (!member->entry && (state != SHM_PEER_ESTABLISHED || !entry_find(group, member)))
            return false;
        (void)member_state(member, &member->closed);
        if (!member->closed)
            return false;
    }
    return true;
}

static void area_free(struct native_group *group) {
    if (group->area_offset)
        shm_arena_free(&group->shm->arena, group->area_offset, group->area_bytes);
    group->area_offset = 0;
}

/* Takes back what closed groups held, as far as nobody reads it any more. */
static void reclaim(struct shm *shm) {
    struct native_group **link = &shm->groups;
    while (*link) {
        struct native_group *group = *link;
        if (!group->closed || !all_closed(group)) {
            link = &group->next;
            continue;
        }
        *link = group->next;
        area_free(group);
        entry_put(shm, group->index);
        group_free(group);
    }
}

static void group_close(struct native_group *group) {
    struct shm *shm = group->shm;
    bool used = group->outcome == SHM_GROUP_CONNECTED;
    if (!used) {
        set_outcome(group, SHM_GROUP_FAILED);
        area_free(group); /* nobody uses it unless all are connected */
    }
    group->closed = true;
    /* Release: whatever this rank still published comes before; partner: wait_slowly. */
    atomic_store_explicit(&group->entry->closed, 1, memory_order_release);
    tell_members(group);
    reclaim(shm);
}

void shm_groups_free(struct shm *shm) {
    while (shm->groups) {
        struct native_group *next = shm->groups->next;
        group_free(shm->groups);
        shm->groups = next;
    }
}

/* -- opening --------------------------------------------------------------------------------- */

/* Takes memory for the forms from the arena: all, or what small calls need, or none. */
static void area_take(struct native_group *group) {
    struct shm *shm = group->shm;
    group->area_bytes = sizeof(struct shm_area) + sizeof(struct shm_staging);
    group->forms = SHM_FORM_SMALL | SHM_FORM_STAGED;
    group->area_offset = shm_arena_allocate(&shm->arena, group->area_bytes);
    if (!group->area_offset) {
        group->area_bytes = sizeof(struct shm_area);
        group->forms = SHM_FORM_SMALL;
        group->area_offset = shm_arena_allocate(&shm->arena, group->area_bytes);
    }
    if (!group->area_offset) {
        group->forms = 0;
        return;
    }
    group->area = shm_arena_at(&shm->arena, group->area_offset);
    /* Another group may have used it before: its numbers must not be taken for ours. */
    for (int i = 0; i < SHM_LINES; i++)
        atomic_store_explicit(&group->area->line[i].sequence, 0, memory_order_relaxed);
    for (int i = 0; i < 2; i++)
        atomic_store_explicit(&group->area->level_line[i].sequence, 0, memory_order_relaxed);
    for (int i = 0; i < SHM_LEVEL_STEPS; i++)
        atomic_store_explicit(&group->area->level[i].slices, 0, memory_order_relaxed);
    struct shm_group_counter *counters[] = {&group->area->staged,  &group->area->reduced,
                                            &group->area->taken,   &group->area->shown,
                                            &group->area->fetched, &group->area->received};
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++)
        atomic_store_explicit(&counters[i]->slices, 0, memory_order_relaxed);
    if (group->forms & SHM_FORM_STAGED)
        group->staging = shm_arena_at(&shm->arena, group->area_offset + sizeof(struct shm_area));
}

static rota_status group_open(struct transport *transport, uint32_t comm, uint32_t generation,
                              const int *members, int nmembers, int self,
                              struct native_group **result) {
    struct shm *shm = shm_of(transport);
    reclaim(shm);
    struct native_group *group = calloc(1, sizeof *group);
    if (!group)
        return error_raise(ROTA_ERR_MEMORY, "out of memory");
    group->members = calloc((size_t)nmembers, sizeof *group->members);
    group->operands = calloc((size_t)nmembers, sizeof *group->operands);
    int index = group->members && group->operands ? entry_take(shm) : -1;
    if (index < 0) {
        group_free(group);
        return error_raise(ROTA_ERR_MEMORY, "no room for another native group");
    }
    group->shm = shm;
    group->n = nmembers;
    group->self = self;
    group->polls = nmembers <= shm->host->cores ? POLLS_ALONE : POLLS_CROWDED;
    group->sequence = group->slices = group->posts = group->moves = shm->start;
    group->isa = shm->isa;
    group->key = (uint64_t)comm << 32 | generation;
    group->index = (uint32_t)index;
    group->entry = &own_table(shm)[index];
    for (int i = 0; i < nmembers; i++)
        group->members[i] = (struct shm_member){.rank = members[i], .event_fd = -1};
    if (nmembers <= SHM_GROUP_MEMBERS)
        area_take(group);
    group->members[self].area = group->area;
    group->members[self].staging = group->staging;
    group->outcome = group->area_offset ? SHM_GROUP_OPENED : SHM_GROUP_FAILED;
    entry_publish(group);
    for (int i = 0; i < nmembers; i++)
        if (i != self)
            (void)member_bell(group, &group->members[i]);
    tell_members(group);
    group->next = shm->groups;
    shm->groups = group;
    *result = group;
    return ROTA_OK;
}

/* -- connecting ------------------------------------------------------------------------------ */

/* Finds all members' entries. AGAIN while some are missing, UNSUPPORTED when one cannot come. */
static enum transport_result find_members(struct native_group *group) {
    struct shm *shm = group->shm;
    enum transport_result result = TRANSPORT_OK;
    for (int i = 0; i < group->n; i++) {
        struct shm_member *member = &group->members[i];
        if (i == group->self || member->entry)
            continue;
        uint8_t state = shm_state(shm, member->rank);
        if (state == SHM_PEER_IDLE || state == SHM_PEER_ADMITTED) {
            if (shm_reaches(&shm->transport, member->rank))
                shm_connect(&shm->transport, member->rank);
            else
                return TRANSPORT_UNSUPPORTED;
            state = shm_state(shm, member->rank);
        }
        if (state == SHM_PEER_GIVEN_UP)
            return TRANSPORT_UNSUPPORTED;
        if (!member_bell(group, member) || !entry_find(group, member)) {
            result = TRANSPORT_AGAIN;
            continue;
        }
        if (!member->area)
            return TRANSPORT_UNSUPPORTED;
    }
    return result;
}

/* All members are connected: whether this one can read all their heaps. */
static void find_heaps(struct native_group *group) {
    group->forms |= SHM_FORM_MAPPED;
    for (int i = 0; i < group->n; i++) {
        struct shm_member *member = &group->members[i];
        if (i == group->self)
            continue;
        member->heap = group->shm->peers[member->rank]->heap;
        member->heap_bytes = group->shm->peers[member->rank]->heap_bytes;
        if (!member->heap)
            group->forms &= ~(uint32_t)SHM_FORM_MAPPED;
    }
    atomic_store_explicit(&group->entry->forms, group->forms, memory_order_relaxed);
}

/* What all members' final states say. */
static enum transport_result agree(struct native_group *group) {
    enum transport_result result = TRANSPORT_OK;
    uint32_t forms = group->forms;
    for (int i = 0; i < group->n; i++) {
        if (i == group->self || !group->members[i].entry)
            continue;
        bool closed;
        uint8_t state = member_state(&group->members[i], &closed);
        if (state == SHM_GROUP_FAILED)
            return TRANSPORT_UNSUPPORTED;
        if (state != SHM_GROUP_CONNECTED)
            result = TRANSPORT_AGAIN;
        /* After its state (acquire), which was stored last. */
        forms &= atomic_load_explicit(&group->members[i].entry->forms, memory_order_relaxed);
        if (!group->members[i].staging)
            forms &= ~(uint32_t)SHM_FORM_STAGED;
    }
    if (result == TRANSPORT_OK)
        group->forms = forms;
    return result;
}

static enum transport_result group_connect(struct native_group *group) {
    if (group->outcome == SHM_GROUP_OPENED) {
        enum transport_result found = find_members(group);
        if (found == TRANSPORT_AGAIN && agree(group) != TRANSPORT_UNSUPPORTED)
            return TRANSPORT_AGAIN;
        if (found == TRANSPORT_OK)
            find_heaps(group);
        set_outcome(group, found == TRANSPORT_OK ? SHM_GROUP_CONNECTED : SHM_GROUP_FAILED);
        tell_members(group);
    }
    if (group->outcome != SHM_GROUP_CONNECTED)
        return TRANSPORT_UNSUPPORTED;
    enum transport_result agreed = agree(group);
    if (agreed == TRANSPORT_OK)
        shm_levels_divide(group);
    return agreed;
}

static int group_missing(const struct native_group *group) {
    for (int i = 0; i < group->n; i++) {
        const struct shm_member *member = &group->members[i];
        bool closed = false;
        if (i != group->self &&
            (!member->entry || member_state(member, &closed) == SHM_GROUP_OPENED))
            return i;
    }
    return -1;
}

const struct transport_native_ops shm_native = {
    .group_open = group_open,
    .group_connect = group_connect,
    .group_missing = group_missing,
    .group_close = group_close,
    .query = shm_native_query,
    .advance = shm_native_advance,
};
