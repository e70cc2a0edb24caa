/* How calls come into the flight recorder: the engine's side of recorder.h. */
#ifndef ENGINE_RECORD_CALLS_H
#define ENGINE_RECORD_CALLS_H

#include "engine/comm.h"
#include "recording/recorder.h"

static inline struct record_entry record_entry_of(const struct call_args *args, uint64_t sequence,
                                                  uint64_t fingerprint, uint32_t algorithm,
                                                  unsigned flags) {
    return (struct record_entry){
        .sequence = sequence,
        .fingerprint = fingerprint,
        .count = args->count,
        .dtype = args->dtype,
        .op = args->op,
        .root = args->root,
        .algorithm = algorithm,
        .kind = (uint8_t)args->kind,
        .mode = (uint8_t)args->numerics,
        .flags = (uint8_t)(flags | (args->vector ? (unsigned)RECORD_VECTOR : 0u))};
}

/* Hash of what runs a call. By whoever may start collectives of the communicator. */
static inline uint32_t record_algorithm(rota_comm *comm, const char *name) {
    if (comm->recorded_name != name) {
        comm->recorded_hash = recorder_algorithm(comm->job->recorder, name);
        comm->recorded_name = name;
    }
    return comm->recorded_hash;
}

/* Inside the domain: a message was sent or received without a request. */
void record_message(rota_comm *comm, const struct call_args *args);
/* Inside the domain: a request begins (its sequence is drawn), is given to a native form or an
 * algorithm, waits for a member (-1: not known), has ended. */
void record_request(rota_request *request);
void record_request_runs(rota_request *request, const char *name, bool native);
void record_request_waits(rota_request *request, int member);
void record_request_ended(rota_request *request, rota_status status);
/* Inside the domain: the communicator has failed, as record says; it is destroyed. */
void record_comm_failed(rota_comm *comm, const rota_error *record);
void record_comm_destroyed(rota_comm *comm);

#endif
