/* The exchange of records: which back-end, and the one by the caller's all-gather. */
#include "bootstrap/bootstrap.h"
#include "base/error.h"
#include "bootstrap/exchange.h"
#include "bootstrap/launcher.h"
#include "bootstrap/message.h"
#include "bootstrap/store.h"
#include "bootstrap/unique_id.h"
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

/* What each rank contributes to the caller's all-gather. */
struct contribution {
    struct bootstrap_record record;
    uint8_t key[NET_KEY_BYTES]; /* rank 0's are taken by all */
    uint8_t job[16];
};
_Static_assert(sizeof(struct contribution) == 744, "sent between processes");

static rota_status gather(const struct bootstrap_place *place, const void *mine, void *all,
                          size_t bytes) {
    int failure = place->all_gather(mine, all, bytes, place->all_gather_arg);
    if (failure != 0)
        return error_raise(ROTA_ERR_SYSTEM, "the caller's all-gather returned %d", failure);
    return ROTA_OK;
}

/* Settings differ, as every rank sees alike: one more all-gather to name the one that does. */
static rota_status gather_difference(const struct bootstrap_place *place,
                                     const struct settings *settings,
                                     const struct contribution *all, int other) {
    char mine[BOOTSTRAP_TEXT] = "";
    char *texts = malloc((size_t)place->nranks * sizeof mine);
    if (texts == NULL)
        return error_raise(ROTA_ERR_MEMORY, "no memory to compare settings");
    (void)settings_agreement_text(settings, mine, sizeof mine);
    rota_status status = gather(place, mine, texts, sizeof mine);
    if (status == ROTA_OK) {
        texts[sizeof mine - 1] = 0;
        texts[(size_t)(other + 1) * sizeof mine - 1] = 0;
        status = bootstrap_records_fit(&all[0].record, texts, &all[other].record,
                                       texts + (size_t)other * sizeof mine);
    }
    free(texts);
    return status;
}

static rota_status check_order(const struct bootstrap_place *place, const struct contribution *all,
                               const struct contribution *mine) {
    for (int rank = 0; rank < place->nranks; rank++) {
        const struct bootstrap_record *record = &all[rank].record;
        if (!bootstrap_record_valid(record))
            return error_raise(ROTA_ERR_FORMAT,
                               "what the caller's all-gather returned for rank %d is no record",
                               rank);
        for (int before = 0; record->rank != (uint32_t)rank && before < place->nranks; before++)
            if (before != rank && all[before].record.rank == record->rank)
                return bootstrap_duplicate_raise(&all[before].record, record);
        if (record->rank != (uint32_t)rank)
            return error_raise(ROTA_ERR_MISMATCH,
                               "the caller's all-gather returned rank %u in place of rank %d",
                               record->rank, rank);
    }
    if (memcmp(&all[place->rank], mine, sizeof *mine) != 0)
        return error_raise(ROTA_ERR_MISMATCH,
                           "the caller's all-gather returned another process as rank %d",
                           place->rank);
    return ROTA_OK;
}

static rota_status check_contributions(const struct bootstrap_place *place,
                                       const struct settings *settings,
                                       const struct contribution *all,
                                       const struct contribution *mine) {
    rota_status status = check_order(place, all, mine);
    for (int rank = 1; rank < place->nranks && status == ROTA_OK; rank++) {
        const struct bootstrap_record *first = &all[0].record, *record = &all[rank].record;
        bool text = first->nranks == record->nranks && first->agreement != record->agreement &&
                    first->protocol_first <= record->protocol_last &&
                    record->protocol_first <= first->protocol_last;
        status = text ? gather_difference(place, settings, all, rank)
                      : bootstrap_records_fit(first, NULL, record, NULL);
    }
    return status;
}

static rota_status exchange_callback(struct bootstrap_place *place, const struct settings *settings,
                                     const struct bootstrap_record *mine,
                                     struct bootstrap_record *records) {
    struct contribution own = {.record = *mine};
    struct contribution *all = calloc((size_t)place->nranks, sizeof *all);
    if (all == NULL)
        return error_raise(ROTA_ERR_MEMORY, "no memory for the records of %d ranks", place->nranks);
    memcpy(own.key, place->identity.key, sizeof own.key);
    memcpy(own.job, place->identity.job, sizeof own.job);
    rota_status status = gather(place, &own, all, sizeof own);
    if (status == ROTA_OK)
        status = check_contributions(place, settings, all, &own);
    if (status == ROTA_OK) {
        for (int rank = 0; rank < place->nranks; rank++)
            records[rank] = all[rank].record;
        memcpy(place->identity.key, all[0].key, sizeof all[0].key);
        memcpy(place->identity.job, all[0].job, sizeof all[0].job);
    }
    sodium_memzero(all, (size_t)place->nranks * sizeof *all);
    sodium_memzero(own.key, sizeof own.key);
    free(all);
    return status;
}

static rota_status gather_identity(struct bootstrap_place *place) {
    struct {
        uint8_t key[NET_KEY_BYTES], job[16];
    } own, *all;
    all = calloc((size_t)place->nranks, sizeof *all);
    if (all == NULL)
        return error_raise(ROTA_ERR_MEMORY, "no memory for the keys of %d ranks", place->nranks);
    memcpy(own.key, place->identity.key, sizeof own.key);
    memcpy(own.job, place->identity.job, sizeof own.job);
    rota_status status = gather(place, &own, all, sizeof own);
    if (status == ROTA_OK) {
        memcpy(place->identity.key, all[0].key, sizeof all[0].key);
        memcpy(place->identity.job, all[0].job, sizeof all[0].job);
    }
    sodium_memzero(all, (size_t)place->nranks * sizeof *all);
    sodium_memzero(&own, sizeof own);
    free(all);
    return status;
}

rota_status bootstrap_agree_identity(struct bootstrap_place *place, int64_t deadline_ns) {
    switch (place->way) {
    case BOOTSTRAP_CALLBACK:
        return gather_identity(place);
    case BOOTSTRAP_STORE:
        return store_agree(place, &place->store, false, deadline_ns);
    case BOOTSTRAP_LAUNCHER:
        return place->launcher == LAUNCHER_PMIX ? pmix_agree(place, deadline_ns)
                                                : pmi_agree(place, deadline_ns);
    case BOOTSTRAP_ROOT:
    case BOOTSTRAP_ID:
    case BOOTSTRAP_SINGLE:
        break;
    }
    return ROTA_OK;
}

void bootstrap_withdraw(struct bootstrap_place *place) {
    if (place->made_id)
        bootstrap_unique_id_withdraw(place->identity.job);
    place->made_id = false;
}

static rota_status exchange_id(struct bootstrap_place *place, const struct settings *settings,
                               const struct bootstrap_record *mine,
                               struct bootstrap_record *records, int64_t deadline_ns) {
    if (bootstrap_id_is_used(&place->identity))
        return bootstrap_id_used_raise();
    rota_status status = bootstrap_exchange_sockets(place, settings, mine, records, deadline_ns);
    if (status == ROTA_OK)
        bootstrap_id_use(&place->identity);
    return status;
}

rota_status bootstrap_exchange(struct bootstrap_place *place, const struct settings *settings,
                               const struct bootstrap_record *mine,
                               struct bootstrap_record *records, int64_t deadline_ns) {
    struct bootstrap_record own = *mine;
    own.magic = NET_MAGIC;
    own.rank = (uint32_t)place->rank;
    own.nranks = (uint32_t)place->nranks;
    if (!bootstrap_record_valid(&own))
        return error_raise(ROTA_ERR_INTERNAL, "the record of rank %d is not sound", place->rank);
    switch (place->way) {
    case BOOTSTRAP_CALLBACK:
        return exchange_callback(place, settings, &own, records);
    case BOOTSTRAP_ROOT:
        return bootstrap_exchange_sockets(place, settings, &own, records, deadline_ns);
    case BOOTSTRAP_ID:
        return exchange_id(place, settings, &own, records, deadline_ns);
    case BOOTSTRAP_STORE:
    case BOOTSTRAP_LAUNCHER:
        return error_raise(ROTA_ERR_INTERNAL, "the store was not asked before the exchange");
    case BOOTSTRAP_SINGLE:
        break;
    }
    records[0] = own;
    return ROTA_OK;
}
