/* Public functions that tell about the library: settings, transports, counters. */
#include <rota/info.h>

#include "api/check.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/settings.h"
#include <stdio.h>
#include <string.h>

int rota_setting_count(void) {
    return SETTING_COUNT;
}

rota_status rota_setting_describe(int index, rota_setting_info *info) {
    if (index < 0 || index >= SETTING_COUNT)
        return error_raise(ROTA_ERR_ARGUMENT, "index is %d, expected 0 ... %d", index,
                           SETTING_COUNT - 1);
    if (info == NULL || info->size < sizeof(*info))
        return error_raise(ROTA_ERR_ARGUMENT,
                           "info is NULL or its size is not sizeof(rota_setting_info)");
    const struct setting *setting = &settings_table()[index];
    info->name = setting->name;
    info->type = settings_type_name(setting->type);
    info->default_value = setting->default_value;
    info->range = setting->range;
    info->help = setting->help;
    info->since = setting->since;
    info->must_agree = setting->must_agree;
    return ROTA_OK;
}

rota_status rota_setting_value(const char *name, char *value, size_t value_size, char *origin,
                               size_t origin_size) {
    CHECK_KEEP_ERRNO;
    if (name == NULL || value == NULL || value_size == 0 || origin == NULL || origin_size == 0)
        return error_raise(ROTA_ERR_ARGUMENT, "name, value and origin must not be NULL or empty");
    int index = 0;
    while (index < SETTING_COUNT && strcmp(settings_table()[index].name, name) != 0)
        index++;
    if (index == SETTING_COUNT)
        return error_raise(ROTA_ERR_ARGUMENT, "there is no setting \"%.60s\"", name);
    struct settings *settings = NULL;
    rota_status status = settings_load(&settings);
    if (status != ROTA_OK)
        return status;
    const char *shown = settings_shown(settings, (enum setting_id)index);
    const char *from = settings_origin(settings, (enum setting_id)index);
    if (strlen(shown) >= value_size || strlen(from) >= origin_size) {
        status = error_raise(ROTA_ERR_ARGUMENT,
                             "value_size is %zu and origin_size %zu, expected at least %zu and %zu",
                             value_size, origin_size, strlen(shown) + 1, strlen(from) + 1);
    } else {
        memcpy(value, shown, strlen(shown) + 1);
        memcpy(origin, from, strlen(from) + 1);
    }
    settings_free(settings);
    return status;
}

const char *rota_transport_name(int index) {
    const struct transport_ops *ops = transport_at(index);
    return ops != NULL ? ops->name : NULL;
}

const char *rota_isa_name(void) {
    return cpu_isa_name(cpu_isa_best());
}

int rota_usable_cores(void) {
    return cpu_usable_cores();
}

static void add_counters(rota_counters *counters, const struct transport *transport,
                         const char *name, uint64_t native_calls) {
    rota_transport_counters *out = &counters->transports[counters->transport_count++];
    memset(out, 0, sizeof(*out));
    snprintf(out->name, sizeof(out->name), "%s", name);
    out->messages_sent = transport->counters.messages_sent;
    out->messages_received = transport->counters.messages_received;
    out->bytes_sent = transport->counters.bytes_sent;
    out->bytes_received = transport->counters.bytes_received;
    out->wire_bytes_sent = transport->counters.wire_bytes_sent;
    out->wire_bytes_received = transport->counters.wire_bytes_received;
    out->native_calls = native_calls;
}

rota_status rota_comm_counters(const rota_comm *comm, rota_counters *counters) {
    if (comm == NULL || counters == NULL || counters->size < sizeof(*counters))
        return error_raise(ROTA_ERR_ARGUMENT, "comm or counters is NULL, or counters->size is not "
                                              "sizeof(rota_counters)");
    struct job *job = comm->job;
    domain_enter(&job->domain);
    counters->transport_count = 0;
    for (int i = 0; i < TRANSPORT_COUNT; i++)
        if (job->transports[i] != NULL)
            add_counters(counters, job->transports[i], transport_at(i)->name,
                         i == TRANSPORT_SHM
                             ? atomic_load_explicit(&comm->native_calls, memory_order_relaxed)
                             : 0);
    counters->operations =
        job->operations + atomic_load_explicit(&comm->native_calls, memory_order_relaxed);
    counters->sleeps = atomic_load_explicit(&job->domain.sleeps, memory_order_relaxed);
    const char *last = atomic_load_explicit(&comm->last_algorithm, memory_order_relaxed);
    snprintf(counters->last_algorithm, sizeof(counters->last_algorithm), "%s",
             last != NULL ? last : "");
    domain_leave(&job->domain);
    return ROTA_OK;
}

rota_status rota_comm_peer_counters(const rota_comm *comm, int peer, rota_peer_counters *counters) {
    if (comm == NULL || counters == NULL || counters->size < sizeof(*counters))
        return error_raise(ROTA_ERR_ARGUMENT, "comm or counters is NULL, or counters->size is not "
                                              "sizeof(rota_peer_counters)");
    rota_status status = check_rank("peer", peer, comm->nranks);
    if (status != ROTA_OK)
        return status;
    struct job *job = comm->job;
    size_t size = counters->size;
    *counters = (rota_peer_counters){.size = size};
    domain_enter(&job->domain);
    const struct endpoint *endpoint = &job->endpoints[comm->members[peer]];
    if (endpoint->transport != NULL)
        snprintf(counters->transport, sizeof(counters->transport), "%s",
                 endpoint->transport->ops->name);
    counters->messages_sent = endpoint->messages_sent;
    counters->messages_received = endpoint->messages_received;
    counters->bytes_sent = endpoint->bytes_sent;
    counters->bytes_received = endpoint->bytes_received;
    domain_leave(&job->domain);
    const struct skew *skew = atomic_load_explicit(&comm->skew, memory_order_acquire);
    if (skew != NULL) {
        const struct skew_entry *entry = &skew->peers[peer];
        counters->waits = atomic_load_explicit(&entry->waits, memory_order_relaxed);
        counters->waited_ns = atomic_load_explicit(&entry->waited_ns, memory_order_relaxed);
    }
    return ROTA_OK;
}

const char *rota_comm_algorithm(const rota_comm *comm, rota_kind kind) {
    if (comm == NULL || (int)kind < 0 || kind >= ROTA_KIND_COUNT)
        return NULL;
    return atomic_load_explicit(&comm->algorithms[kind], memory_order_relaxed);
}
