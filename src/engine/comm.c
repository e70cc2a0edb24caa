/* Communicators: made from the ranks of a job, failed once, destroyed by anybody at any time. */
#include "engine/comm.h"

#include "base/error.h"
#include "engine/collective.h"
#include "engine/executor.h"
#include "engine/failure.h"
#include "engine/numerics.h"
#include "engine/persistent.h"
#include "engine/plan.h"
#include "engine/record_calls.h"
#include "engine/registry.h"
#include "engine/rules.h"
#include "engine/select.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* The job's ring without those that are not members; NULL where there is none. */
static rota_status set_ring(rota_comm *comm) {
    const int *ring = comm->job->ring;
    if (ring == NULL)
        return ROTA_OK;
    comm->ring = malloc((size_t)comm->nranks * sizeof(*comm->ring));
    int *number = malloc((size_t)comm->job->nranks * sizeof(*number)); /* by rank of the job */
    if (comm->ring == NULL || number == NULL) {
        free(number);
        return error_raise(ROTA_ERR_MEMORY, "out of memory for a communicator");
    }
    for (int i = 0; i < comm->job->nranks; i++)
        number[i] = -1;
    for (int i = 0; i < comm->nranks; i++)
        number[comm->members[i]] = i;
    for (int i = 0, used = 0; i < comm->job->nranks; i++)
        if (number[ring[i]] >= 0)
            comm->ring[used++] = number[ring[i]];
    free(number);
    comm->ring_hash = XXH3_64bits(comm->ring, (size_t)comm->nranks * sizeof(*comm->ring));
    return ROTA_OK;
}

/* Which ranks share a host, as algorithms may know it. */
static rota_status set_topology(rota_comm *comm) {
    comm->group_of = malloc((size_t)comm->nranks * sizeof(*comm->group_of));
    if (comm->group_of == NULL)
        return error_raise(ROTA_ERR_MEMORY, "out of memory for a communicator");
    int groups = 0;
    for (int i = 0; i < comm->nranks; i++) {
        comm->group_of[i] = groups;
        for (int j = 0; j < i; j++) {
            if (job_same_host(comm->job, comm->members[i], comm->members[j])) {
                comm->group_of[i] = comm->group_of[j];
                break;
            }
        }
        groups += comm->group_of[i] == groups;
    }
    rota_status status = set_ring(comm);
    comm->topology = (struct algorithm_topology){
        .ngroups = groups, .group_of = comm->group_of, .ring = comm->ring};
    return status;
}

static enum cpu_isa isa_setting(const struct settings *settings) {
    const char *name = settings_text(settings, SETTING_ISA);
    for (int isa = 0; isa < CPU_ISA_COUNT; isa++)
        if (strcmp(name, cpu_isa_name((enum cpu_isa)isa)) == 0)
            return (enum cpu_isa)isa;
    return cpu_isa_best();
}

static rota_numerics mode_setting(const struct settings *settings) {
    const char *name = settings_text(settings, SETTING_MODE);
    rota_numerics mode = ROTA_NUMERICS_EQUAL;
    while (strcmp(name, rota_numerics_name(mode)) != 0) /* the setting takes no other name */
        mode++;
    return mode;
}

static rota_status read_settings(rota_comm *comm) {
    const struct settings *settings = comm->job->settings;
    atomic_init(&comm->timeout_ms, settings_integer(settings, SETTING_TIMEOUT_MS));
    atomic_store_explicit(&comm->numerics, (int)mode_setting(settings), memory_order_relaxed);
    const char *check = settings_text(settings, SETTING_CHECK);
    comm->check = strcmp(check, "off") != 0;
    comm->strict = strcmp(check, "strict") == 0;
    comm->deliberate = comm->strict || comm->job->rules != NULL;
    comm->sequence = (uint64_t)settings_integer(settings, SETTING_TEST_SEQUENCE_START);
    comm->isa = isa_setting(settings);
    if (!cpu_isa_available(comm->isa))
        return error_raise(ROTA_ERR_SETTING, "ROTA_ISA: this machine has no %s",
                           cpu_isa_name(comm->isa));
    const char *forced = settings_text(settings, SETTING_ALGORITHM);
    if (forced[0] != '\0') {
        comm->forced = algorithm_find(forced);
        if (comm->forced == NULL)
            return error_raise(ROTA_ERR_SETTING,
                               "ROTA_ALGORITHM (from %s): there is no algorithm \"%.40s\"",
                               settings_origin(settings, SETTING_ALGORITHM), forced);
    }
    /* Of a part of the job it is found when a call meets the rule. */
    return comm->id == 0 ? rules_check(comm->job->rules, comm->nranks) : ROTA_OK;
}

/* Most members of a native group. A group connects every pair: 64 ranks have 2016 of them, which
 * took 0.3 s on two cores; 256 have 32640, which took minutes, where schedules need 8 peers per
 * rank. */
#define NATIVE_MAX_RANKS 64

/* Whether all members can share memory, as far as their records tell. */
static bool may_share_memory(const rota_comm *comm) {
    const struct job *job = comm->job;
    struct transport *shm = job->transports[TRANSPORT_SHM];
    if (shm == NULL || shm->ops->native == NULL || comm->nranks < 2 ||
        comm->nranks > NATIVE_MAX_RANKS || comm->topology.ngroups != 1)
        return false;
    for (int i = 0; i < comm->nranks; i++)
        if ((job->records[comm->members[i]].transports & (1u << TRANSPORT_SHM)) == 0)
            return false;
    return true;
}

static void free_parts(rota_comm *comm) {
    free(comm->ending);
    free(comm->groups);
    p2p_table_destroy(comm->p2p);
    executor_destroy(comm->executor);
    plan_free_all(comm->plans);
    numerics_free(comm);
    select_free(comm);
    operators_destroy(&comm->operators);
    skew_drop(atomic_load_explicit(&comm->skew, memory_order_acquire));
    free(comm->members);
    free(comm->group_of);
    free(comm->ring);
    free(comm);
}

rota_status comm_create(struct job *job, const char *name, const int *members, int nmembers,
                        int self, struct comm_name wire_name, rota_comm **out) {
    rota_comm *comm = calloc(1, sizeof(*comm));
    if (comm == NULL)
        return error_raise(ROTA_ERR_MEMORY, "out of memory for a communicator");
    comm->job = job;
    comm->rank = self;
    comm->id = wire_name.id;
    comm->generation = wire_name.generation;
    comm->nranks = nmembers;
    comm->record = (rota_error)ROTA_ERROR_INIT;
    comm->record.peer = -1;
    comm->record.kind = -1;
    snprintf(comm->name, sizeof(comm->name), "%s", name);
    TAILQ_INIT(&comm->queue);
    LIST_INIT(&comm->requests);
    LIST_INIT(&comm->persistent);
    operators_init(&comm->operators);
    comm->members = malloc((size_t)nmembers * sizeof(*members));
    rota_status status = ROTA_OK;
    if (comm->members == NULL)
        status = error_raise(ROTA_ERR_MEMORY, "out of memory for a communicator");
    else
        memcpy(comm->members, members, (size_t)nmembers * sizeof(*members));
    if (status == ROTA_OK)
        status = set_topology(comm);
    if (status == ROTA_OK)
        status = read_settings(comm);
    if (status == ROTA_OK)
        status = executor_create(comm, &comm->executor);
    if (status == ROTA_OK && (comm->p2p = p2p_table_create(comm)) == NULL)
        status = ROTA_ERR_MEMORY;
    if (status == ROTA_OK)
        status = registry_add(comm);
    if (status != ROTA_OK) {
        free_parts(comm);
        return status;
    }
    if (may_share_memory(comm))
        comm->native_ops = job->transports[TRANSPORT_SHM]->ops->native;
    atomic_store(&comm->native_state, comm->native_ops != NULL ? NATIVE_UNKNOWN : NATIVE_NONE);
    domain_enter(&job->domain);
    job_retain(job);
    LIST_INSERT_HEAD(&job->comms, comm, job_entry);
    status = failures_comm_open(comm);
    domain_leave(&job->domain);
    if (status != ROTA_OK) {
        rota_error record = *error_record();
        comm_destroy(comm);
        *error_record() = record;
        return status;
    }
    *out = comm;
    return ROTA_OK;
}

rota_status comm_make_spec(rota_comm *comm, struct call_args *args, struct reduce_spec *spec) {
    args->op_identity = 0;
    rota_status status =
        operator_is_created(args->op)
            ? operators_spec(&comm->operators, args->dtype, args->op, comm->nranks, comm->isa, spec,
                             &args->op_identity)
            : reduce_spec_init(spec, args->dtype, args->op, comm->nranks, comm->isa);
    if (status == ROTA_OK)
        spec->team = comm->job->team;
    return status;
}

const struct reduce_spec *comm_spec(rota_comm *comm, struct call_args *args) {
    struct reduce_spec *spec = &comm->specs[(args->dtype * 5 + args->op) % COMM_SPECS];
    args->op_identity = 0;
    if (spec->element_size > 0 && spec->dtype == args->dtype && spec->op == args->op)
        return spec;
    /* An operator that was created may have been freed: it is looked up each time. */
    if (operator_is_created(args->op))
        spec = &comm->created_spec;
    return comm_make_spec(comm, args, spec) == ROTA_OK ? spec : NULL;
}

rota_status comm_usable(rota_comm *comm) {
    rota_status status = (rota_status)atomic_load_explicit(&comm->status, memory_order_acquire);
    if (status != ROTA_OK) {
        *error_record() = comm->record;
        return status;
    }
    if (comm->finalized)
        return error_raise(ROTA_ERR_STATE, "communicator %s is finalized", comm->name);
    return ROTA_OK;
}

rota_status comm_keep_error(rota_comm *comm, rota_status status) {
    domain_enter(&comm->job->domain);
    if (atomic_load_explicit(&comm->status, memory_order_relaxed) == ROTA_OK) {
        comm->record = *error_record();
        comm->record.size = sizeof(comm->record);
        comm->record.status = status;
        snprintf(comm->record.comm_name, sizeof(comm->record.comm_name), "%s", comm->name);
    }
    domain_leave(&comm->job->domain);
    return status;
}

/* Ends everything. A `bare` record becomes one of each request by itself. */
static void end_all(rota_comm *comm, const rota_error *record, bool bare) {
    rota_error kept = *record;
    kept.size = sizeof(kept);
    snprintf(kept.comm_name, sizeof(kept.comm_name), "%s", comm->name);
    free(comm->held);
    comm->held = NULL;
    record_comm_failed(comm, &kept);
    comm->record = kept;
    comm->bare = bare;
    /* Partner: comm_usable and the waits of native forms; the record is set before. */
    atomic_store_explicit(&comm->status, (int)kept.status, memory_order_release);
    executor_cancel(comm->executor);
    p2p_cancel_all(comm->p2p);
    rota_request *request;
    while ((request = LIST_FIRST(&comm->requests)) != NULL) {
        if (bare)
            request_raise_found(request, &kept);
        else
            *error_record() = kept;
        comm->bare = false;
        request_close(request, kept.status);
    }
    doorbell_interrupt(&comm->job->domain.bell);
    *error_record() = kept;
}

void comm_fail(rota_comm *comm, const rota_error *record) {
    if (atomic_load_explicit(&comm->status, memory_order_relaxed) != ROTA_OK)
        return;
    rota_error told = *record;
    end_all(comm, record, false);
    failure_tell(comm, &told);
}

void comm_end(rota_comm *comm, const rota_error *record) {
    if (atomic_load_explicit(&comm->status, memory_order_relaxed) == ROTA_OK)
        end_all(comm, record, true);
}

rota_status comm_destroy(rota_comm *comm) {
    if (!registry_remove(comm))
        return error_raise(ROTA_ERR_ARGUMENT,
                           "no such communicator: it was destroyed before, or never made");
    struct job *job = comm->job;
    if (job->forked)
        return ROTA_OK; /* what the parent had is not taken apart here */
    domain_enter(&job->domain);
    persistent_begin_all(job); /* so that they end as everything else */
    error_raise(ROTA_ERR_ABORTED, "communicator %s was destroyed", comm->name);
    /* Peers that wait for what is under way are told. */
    bool under_way = !LIST_EMPTY(&comm->requests) || comm_in_use(comm);
    rota_error record = *error_record();
    if (under_way)
        comm_fail(comm, &record);
    else if (atomic_load_explicit(&comm->status, memory_order_relaxed) == ROTA_OK)
        end_all(comm, &record, false);
    domain_leave(&job->domain);
    job_run_callbacks(job);
    while (comm_in_use(comm))
        sched_yield();
    domain_enter(&job->domain);
    if (comm->native != NULL)
        comm->native_ops->group_close(comm->native);
    persistent_orphan(comm);
    failures_comm_close(comm);
    record_comm_destroyed(comm);
    LIST_REMOVE(comm, job_entry);
    free_parts(comm);
    domain_leave(&job->domain);
    job_release(job);
    error_clear();
    return ROTA_OK;
}

int64_t comm_expire(rota_comm *comm, int64_t now_ns) {
    int64_t next = CLOCK_NEVER;
    rota_request *request;
    if (comm->ending != NULL && comm->ending_ns <= now_ns) {
        rota_error record = *comm->ending;
        free(comm->ending);
        comm->ending = NULL;
        if (!comm->finalized)
            comm_end(comm, &record);
        return CLOCK_NEVER;
    }
    if (comm->ending != NULL)
        next = comm->ending_ns;
    if (comm->held != NULL && comm->held_until_ns > now_ns)
        return comm->held_until_ns;
    if (comm->held != NULL) {
        rota_error record = *comm->held;
        comm_fail(comm, &record);
        return CLOCK_NEVER;
    }
    LIST_FOREACH(request, &comm->requests, comm_entry) {
        int awaited[ROTA_ERROR_MAX_CULPRITS];
        int count = request_awaited(request, awaited, ROTA_ERROR_MAX_CULPRITS);
        if (request->deadline_ns <= now_ns && !failure_postpone(request, awaited, count, now_ns)) {
            failure_expire(request, awaited, count);
            return comm->held != NULL ? comm->held_until_ns : CLOCK_NEVER;
        }
        next = request->deadline_ns < next ? request->deadline_ns : next;
        bool behind =
            sched_kind_collective(request->args.kind) && request != TAILQ_FIRST(&comm->queue);
        int64_t look = behind ? CLOCK_NEVER : failure_wait(request, awaited, count, now_ns);
        next = look < next ? look : next;
    }
    return next;
}
