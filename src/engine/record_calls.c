/* Requests and failures in the flight recorder. Pages are made by the first call of each kind. */
#include "engine/record_calls.h"

#include <stdio.h>

static struct record_page *page_of(rota_comm *comm, uint32_t kind) {
    struct record_page **page =
        kind == RECORD_PAGE_COLLECTIVES ? &comm->recorded_calls : &comm->recorded_messages;
    if (*page == NULL)
        *page = recorder_page(comm->job->recorder, kind, comm->id, comm->generation, comm->name,
                              comm->rank, comm->nranks, comm->members);
    return *page;
}

static struct record_entry entry_of_message(const struct record_page *page,
                                            const struct call_args *args) {
    uint64_t number =
        page != NULL ? atomic_load_explicit(&page->calls, memory_order_relaxed) + 1 : 0;
    return record_entry_of(args, number, (uint64_t)(int64_t)args->tag, 0, 0);
}

void record_message(rota_comm *comm, const struct call_args *args) {
    if (comm->job->recorder == NULL)
        return;
    struct record_page *page = page_of(comm, RECORD_PAGE_MESSAGES);
    struct record_entry entry = entry_of_message(page, args);
    bool stamped = record_stamps(page, entry.sequence, args->count * rota_dtype_size(args->dtype));
    record_end(record_begin_queued(page, &entry, stamped), ROTA_OK);
}

void record_request(rota_request *request) {
    rota_comm *comm = request->comm;
    const struct call_args *args = &request->args;
    request->line = NULL;
    if (comm->job->recorder == NULL)
        return;
    struct record_entry entry;
    struct record_page *page;
    if (sched_kind_collective(args->kind)) {
        page = page_of(comm, RECORD_PAGE_COLLECTIVES);
        uint64_t fingerprint =
            request->like != NULL ? request->like->fingerprint : call_fingerprint(comm, args, NULL);
        entry = record_entry_of(args, request->sequence, fingerprint, 0,
                                args->tag != 0 ? (unsigned)RECORD_FUSED : 0);
    } else {
        page = page_of(comm, RECORD_PAGE_MESSAGES);
        entry = entry_of_message(page, args);
    }
    request->line = record_begin_queued(page, &entry, true);
    request->line_page = page;
}

void record_request_runs(rota_request *request, const char *name, bool native) {
    if (request->line == NULL)
        return;
    RECORD_STORE(request->line->algorithm, record_algorithm(request->comm, name));
    if (native)
        RECORD_STORE(request->line->flags, (uint8_t)(request->line->flags | RECORD_NATIVE));
}

void record_request_waits(rota_request *request, int member) {
    record_waiting(request->line_page, request->line, member);
}

void record_request_ended(rota_request *request, rota_status status) {
    record_end(request->line, status);
    request->line = NULL;
}

void record_comm_failed(rota_comm *comm, const rota_error *record) {
    /* To be destroyed with nothing under way is no failure; who aborts is inside a call. */
    if (record->status == ROTA_ERR_ABORTED && LIST_EMPTY(&comm->requests) && !comm_in_use(comm))
        return;
    rota_error named = *record;
    snprintf(named.comm_name, sizeof(named.comm_name), "%s", comm->name);
    recorder_failed(comm->job->recorder, comm->id, comm->generation, &named);
}

void record_comm_destroyed(rota_comm *comm) {
    recorder_page_free(comm->job->recorder, comm->recorded_calls);
    recorder_page_free(comm->job->recorder, comm->recorded_messages);
    comm->recorded_calls = comm->recorded_messages = NULL;
}
