/* Communicators: how ranks find each other, and how they part.
 *
 * The child of a fork is no rank: there every call on a communicator that it inherited fails with
 * ROTA_ERR_STATE at once, destroy leaves it alone, and the parent notices nothing. It may join jobs
 * of its own. */
#ifndef ROTA_COMM_H
#define ROTA_COMM_H

#include <rota/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Names a job and holds its key; made by one process, passed to all others by any means. */
typedef struct rota_unique_id {
    unsigned char bytes[128];
} rota_unique_id;

/* Makes an id. The process that calls this serves the rendezvous until all ranks have joined, so
 * it must stay alive until then; it need not be rank 0. Thread-safe.
 * Errors: ROTA_ERR_ARGUMENT (NULL), ROTA_ERR_SYSTEM, ROTA_ERR_SETTING. */
ROTA_API rota_status rota_unique_id_create(rota_unique_id *id);

/* The caller's own all-gather: every rank passes `bytes` bytes at `send`, and gets the
 * contributions of all ranks in rank order at `recv` (nranks * bytes). Returns 0 on success. */
typedef int (*rota_all_gather_fn)(const void *send, void *recv, size_t bytes, void *arg);

/* The caller's key-value store: torch's store, a launcher's, files. Both return 0 on success. Rank
 * 0 sets one value of 128 bytes, and then every rank, rank 0 included, gets it, whatever the number
 * of ranks. The value holds the job's key: who can read or write the store can join the job.
 *
 * set: keeps a copy of `bytes` bytes at `value` under `key` (printable ASCII without blanks), in
 *      place of what was there.
 * get: waits until there is a value under `key`, for at most timeout_ms, and copies it to `value`;
 *      *bytes is its length. Fails when the time is over or the value is longer than `capacity`. */
typedef struct rota_store {
    size_t size; /* sizeof(rota_store) */
    int (*set)(void *arg, const char *key, const void *value, size_t bytes);
    int (*get)(void *arg, const char *key, void *value, size_t capacity, size_t *bytes,
               int64_t timeout_ms);
    void *arg;
    const char *prefix; /* of the keys, another for each job; NULL = "" */
} rota_store;

#define ROTA_STORE_INIT ROTA_SIZED(rota_store)

/* Explicit configuration of rota_init. Zeroed fields are taken from the environment. */
typedef struct rota_config {
    size_t size;                   /* sizeof(rota_config) */
    int nranks;                    /* 0: from the environment */
    int rank;                      /* read only when nranks > 0 */
    const rota_unique_id *id;      /* rendezvous by id; the process that made it serves */
    rota_all_gather_fn all_gather; /* rendezvous by the caller's all-gather instead */
    void *all_gather_arg;
    const char *name;        /* of the communicator, in error records; NULL = "world" */
    const rota_store *store; /* rendezvous by a key-value store instead */
} rota_config;

#define ROTA_CONFIG_INIT ROTA_SIZED(rota_config)

/* Joins a job and makes its communicator. `config` NULL or with nranks = 0 finds rank, size and
 * rendezvous in the environment: ROTA_RANK/ROTA_SIZE/ROTA_ROOT (`rota run` sets them), then
 * RANK/WORLD_SIZE/MASTER_ADDR/MASTER_PORT (torchrun), then what PMIx (Open MPI's mpirun, srun), PMI
 * (MPICH's and Intel's mpiexec, srun) or srun alone say, else a job of one rank; docs/launching.md
 * has the details. Collective over all ranks of the job. `call` may carry timeout_ms (default:
 * setting ROTA_INIT_TIMEOUT_MS), numerics, request and done. With a request it returns once the
 * arguments and the environment were looked at, and joins in a thread of its own; *comm is set when
 * the request ends well, and until it ends comm, and what config's functions are given, must live.
 * rota_request_cancel gives such a joining up, whatever it waits for: it ends with ROTA_ERR_ABORTED
 * here, and ranks that wait for it at the rendezvous end with ROTA_ERR_PEER naming this one. Only a
 * function of the caller's that is being called is waited for (a store's get is called for at most
 * 250 ms at a time then).
 * Errors: ROTA_ERR_ARGUMENT, ROTA_ERR_SETTING, ROTA_ERR_TIMEOUT (names the missing ranks),
 * ROTA_ERR_MISMATCH (duplicate rank, different sizes, protocols or settings), ROTA_ERR_PEER (a rank
 * was cancelled), ROTA_ERR_ABORTED, ROTA_ERR_SYSTEM. */
ROTA_API rota_status rota_init(const rota_config *config, rota_comm **comm, const rota_call *call);

/* Makes the communicators of `nranks` ranks that all live in this process: comms[r] is rank r's,
 * to be driven by a thread of its own. Not collective: one call by one thread makes them all.
 * Errors: ROTA_ERR_ARGUMENT (nranks < 1 or > 1024, comms NULL), ROTA_ERR_SYSTEM, ROTA_ERR_SETTING.
 */
ROTA_API rota_status rota_init_threads(int nranks, rota_comm **comms, const rota_call *call);

/* Waits until the operations of all ranks on this communicator have ended, then closes it for new
 * ones. Collective; call rota_comm_destroy afterwards. Errors: ROTA_ERR_TIMEOUT, ROTA_ERR_STATE. */
ROTA_API rota_status rota_comm_finalize(rota_comm *comm, const rota_call *call);

/* Frees the communicator: local, returns at once, aborts what is still outstanding. NULL is
 * harmless. A second destroy of the same pointer is ROTA_ERR_ARGUMENT, not a crash. */
ROTA_API rota_status rota_comm_destroy(rota_comm *comm);

#define ROTA_COLOR_UNDEFINED (-1)

/* Splits a communicator: ranks that pass the same color (0 or more) get a communicator of their
 * own, ordered by (key, rank). ROTA_COLOR_UNDEFINED takes no part: *child is then NULL. Collective;
 * costs one small all-gather on the parent and some kilobytes, and nothing else before the child is
 * used. `name` is for error records, NULL = the parent's. Children are independent of their parent:
 * each may be destroyed first. call may carry timeout_ms, label and numerics (the mode of the
 * child, else it has the parent's); requests are not supported. Errors: as collectives;
 * ROTA_ERR_ARGUMENT for another negative color. */
ROTA_API rota_status rota_comm_split(rota_comm *comm, int color, int key, const char *name,
                                     rota_comm **child, const rota_call *call);

/* A communicator of `nranks` ranks of `comm`, in the order of `ranks`, which is the same on all of
 * them and has this rank in it. Collective over these ranks alone: the others take no part and
 * notice nothing. Local, nothing is communicated: who does not call it is named by the first
 * operation that waits for it. Any thread, also several at once with different tags; those of one
 * tag (0 or more) and one list are told apart by their order, which is the same on all ranks.
 * `name` is for error records, NULL = that of comm. call may carry numerics (the mode of the new
 * one, else it has that of comm). As the children of a split it is independent of comm.
 * Errors: ROTA_ERR_ARGUMENT (the list, the tag), ROTA_ERR_MEMORY; the status that ended comm. */
ROTA_API rota_status rota_comm_create_group(rota_comm *comm, const int *ranks, int nranks, int tag,
                                            const char *name, rota_comm **group,
                                            const rota_call *call);

/* A communicator of the same ranks with streams and order of its own. Collective, as split. */
ROTA_API rota_status rota_comm_duplicate(rota_comm *comm, rota_comm **copy, const rota_call *call);

/* Bytes that the communicator holds on this rank beyond what its job holds: plans, scratch,
 * streams' bookkeeping. Any thread. Errors: ROTA_ERR_ARGUMENT. */
ROTA_API rota_status rota_comm_memory(rota_comm *comm, size_t *bytes);

/* Ends every operation of this communicator here with ROTA_ERR_ABORTED, also those in which other
 * threads are blocked. Local, from any thread; afterwards only query, error and destroy work. The
 * other ranks are told, best effort: what waits there ends with ROTA_ERR_PEER naming this rank. */
ROTA_API rota_status rota_comm_abort(rota_comm *comm);

/* Ends every operation of this communicator on all of its ranks with ROTA_ERR_REVOKED, those under
 * way and those to come; rank by rank as the news reaches it. Only agree, shrink, query, error,
 * abort and destroy work afterwards. So whoever has met an error can make all others leave what
 * they are in, and meet them in rota_comm_shrink. Does not wait; any thread, any number of ranks.
 * One that has ended already stays as it is. Errors: ROTA_ERR_ARGUMENT. */
ROTA_API rota_status rota_comm_revoke(rota_comm *comm);

/* The same value on all living ranks of the communicator: *flags becomes the conjunction (bit by
 * bit "and") of what they passed. Works on communicators that have failed or were revoked; ranks
 * that fail meanwhile are left out. Every rank that returns ROTA_OK has the same *flags, also where
 * a rank fails during the call. Collective over the living ranks, in the same order as other calls
 * of agree and shrink; costs some messages over the control plane, not over the data path. call may
 * carry timeout_ms; requests are not supported.
 * Errors: ROTA_ERR_TIMEOUT (some living rank has not called it), ROTA_ERR_ISOLATED,
 * ROTA_ERR_ABORTED, ROTA_ERR_BUSY, ROTA_ERR_STATE (aborted before), ROTA_ERR_ARGUMENT. */
ROTA_API rota_status rota_comm_agree(rota_comm *comm, uint64_t *flags, const rota_call *call);

/* Makes a communicator of the ranks that are left: all members of `comm` that had not failed when
 * it was decided, in their order. All that return ROTA_OK have the same group, and the new
 * communicator works unless another rank fails, which then ends it as any other. `name` is for
 * error records, NULL = that of comm, which stays as it is and is to be destroyed. Collective over
 * the living ranks as rota_comm_agree; call may carry timeout_ms. Errors: those of agree,
 * ROTA_ERR_MEMORY. */
ROTA_API rota_status rota_comm_shrink(rota_comm *comm, const char *name, rota_comm **shrunk,
                                      const rota_call *call);

/* Rank and size; any thread. Errors: ROTA_ERR_ARGUMENT. */
ROTA_API rota_status rota_comm_rank(const rota_comm *comm, int *rank);
ROTA_API rota_status rota_comm_size(const rota_comm *comm, int *nranks);

/* State of the communicator: ROTA_OK while it works, else the status that ended it. Any thread,
 * never blocks. */
ROTA_API rota_status rota_comm_query(const rota_comm *comm);

/* Copies the record of the error that ended the communicator or its last failed call (status
 * ROTA_OK where there is none). Any thread. */
ROTA_API rota_status rota_comm_error(const rota_comm *comm, rota_error *error);

/* Default deadline of operations in ms (setting ROTA_TIMEOUT_MS). Must be > 0. */
ROTA_API rota_status rota_comm_set_timeout(rota_comm *comm, int64_t timeout_ms);

/* Mode of the communicator's operations that name none (setting ROTA_MODE at first). Local: all
 * ranks set the same one between the same two operations, else the next one that reduces ends in
 * ROTA_ERR_MISMATCH. Communicators that are split off or shrunk from it later begin with it. Plans
 * keep the mode with which they were made. Errors: ROTA_ERR_ARGUMENT (no mode, or
 * ROTA_NUMERICS_DEFAULT). */
ROTA_API rota_status rota_comm_set_numerics(rota_comm *comm, rota_numerics numerics);

#ifdef __cplusplus
}
#endif
#endif
