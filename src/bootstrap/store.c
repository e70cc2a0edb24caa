/* Meeting by a key-value store.
 *
 * Design notes. The store carries one value, rank 0's unique id, whatever the number of ranks: one
 * set and n gets; everything else goes the way of unique ids. Rank 0 reads its own value back, so
 * that a store whose get is a barrier (PMI's fence) needs no third function, and a store that loses
 * or changes values is found at once. The job's key travels in the id: a store is trusted as much
 * as the launcher or the program that owns it. */
#include "bootstrap/store.h"
#include "base/clock.h"
#include "base/error.h"
#include "bootstrap/cancel.h"
#include "bootstrap/unique_id.h"
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#define MS 1000000ll
#define KEY_BYTES 512
/* A store that waits as long as it was told may be back so much earlier: its clock, and what it is
 * told, are of whole milliseconds. */
#define STORE_EARLY_MS 2

static rota_status make_key(const rota_store *store, char key[KEY_BYTES]) {
    const char *prefix = store->prefix != NULL ? store->prefix : "";
    int length = snprintf(key, KEY_BYTES, "%srota-id", prefix);
    if (length < 0 || length >= KEY_BYTES)
        return error_raise(ROTA_ERR_ARGUMENT, "the store's prefix is longer than %d characters",
                           KEY_BYTES - (int)sizeof "rota-id");
    return ROTA_OK;
}

static rota_status set_id(const rota_store *store, bool raises, const char *key,
                          const rota_unique_id *id) {
    int failure = store->set(store->arg, key, id->bytes, sizeof id->bytes);
    if (failure == 0)
        return ROTA_OK;
    if (raises)
        return error_record()->status;
    return error_raise(ROTA_ERR_SYSTEM, "the caller's store returned %d when setting %.100s",
                       failure, key);
}

/* Asks the store, in pieces where this may be given up: a failure that took at least half of a
 * piece's time was for want of time. */
static int ask(const rota_store *store, const char *key, rota_unique_id *id, size_t *bytes,
               int64_t deadline_ns) {
    for (;;) {
        int64_t began_ns = clock_now_ns(), look_ns = cancel_look_ns(deadline_ns);
        int64_t left_ms = clock_left_ms(look_ns);
        int failure = store->get(store->arg, key, id->bytes, sizeof id->bytes, bytes, left_ms);
        bool again = failure != 0 && look_ns < deadline_ns && !cancel_or_passed(deadline_ns) &&
                     clock_passed(began_ns + left_ms * MS / 2);
        if (!again)
            return failure;
    }
}

static rota_status get_id(const rota_store *store, bool raises, const char *key, rota_unique_id *id,
                          int64_t begun_ns, int64_t deadline_ns) {
    size_t bytes = 0;
    int failure = ask(store, key, id, &bytes, deadline_ns);
    if (failure != 0 && raises)
        return error_record()->status;
    if (failure != 0 && clock_passed(deadline_ns - STORE_EARLY_MS * MS)) {
        int64_t waited_ms = (clock_now_ns() - begun_ns) / MS;
        (void)error_raise(ROTA_ERR_TIMEOUT,
                          "rank 0 has not set %.100s in the caller's store within %lld ms (get "
                          "returned %d)",
                          key, (long long)waited_ms, failure);
        error_add_culprit(error_record(), 0);
        error_record()->peer = 0;
        error_record()->waited_ms = (uint64_t)waited_ms;
        return ROTA_ERR_TIMEOUT;
    }
    if (failure != 0)
        return error_raise(ROTA_ERR_SYSTEM, "the caller's store returned %d when getting %.100s",
                           failure, key);
    if (bytes != sizeof id->bytes)
        return error_raise(ROTA_ERR_FORMAT, "the store holds %zu bytes at %.100s, expected %zu",
                           bytes, key, sizeof id->bytes);
    return ROTA_OK;
}

static rota_status take_id(struct bootstrap_place *place, const char *key,
                           const rota_unique_id *own, const rota_unique_id *found) {
    if (place->made_id && memcmp(own, found, sizeof *own) != 0)
        return error_raise(ROTA_ERR_MISMATCH,
                           "the store does not hold what rank 0 has set at %.100s: is it used by "
                           "two jobs, or by two ranks 0?",
                           key);
    if (bootstrap_unique_id_read(found, place) != ROTA_OK)
        return error_raise(ROTA_ERR_FORMAT, "what the store holds at %.100s is no unique id", key);
    if (bootstrap_id_is_used(&place->identity))
        return error_raise(ROTA_ERR_ARGUMENT,
                           "the store holds the id of an earlier job at %.100s: give each job a "
                           "prefix of its own",
                           key);
    place->way = BOOTSTRAP_ID;
    return ROTA_OK;
}

rota_status store_agree(struct bootstrap_place *place, const rota_store *store, bool raises,
                        int64_t deadline_ns) {
    rota_unique_id own = {{0}}, found = {{0}};
    char key[KEY_BYTES];
    int64_t begun_ns = clock_now_ns();
    if (place->nranks == 1) {
        place->way = BOOTSTRAP_SINGLE;
        net_random(place->identity.key, sizeof place->identity.key);
        net_random(place->identity.job, sizeof place->identity.job);
        return ROTA_OK;
    }
    rota_status status = make_key(store, key);
    if (status == ROTA_OK && place->rank == 0) {
        status = bootstrap_unique_id_once(&own);
        place->made_id = status == ROTA_OK;
        if (status == ROTA_OK)
            status = bootstrap_unique_id_read(&own, place); /* so that it can be withdrawn */
        if (status == ROTA_OK)
            status = set_id(store, raises, key, &own);
    }
    if (status == ROTA_OK)
        status = get_id(store, raises, key, &found, begun_ns, deadline_ns);
    if (status == ROTA_OK)
        status = take_id(place, key, &own, &found);
    sodium_memzero(&own, sizeof own);
    sodium_memzero(&found, sizeof found);
    return status;
}
