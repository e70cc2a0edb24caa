/* What the parts of the executor share: executor.c decides what runs when, executor_straight.c
 * where that is known beforehand; executor_wire.c sends and receives, executor_memory.c moves and
 * combines the bytes. */
#ifndef ENGINE_EXECUTOR_STATE_H
#define ENGINE_EXECUTOR_STATE_H

#include "engine/executor.h"
#include "engine/staging.h"

/* Slices in flight. More would hide longer round trips and cost as much more scratch. */
#define EXECUTOR_SLOTS 4
#define EXECUTOR_MAX_PIECES 64
/* From here on posting user memory beats a copy through the transport's own. */
#define EXECUTOR_POST_BYTES 8192

struct cell_name {
    uint32_t step, slot;
};

struct cell {
    uint32_t pending; /* cells that must complete before */
    uint32_t waiting; /* sends: messages whose source is still in use */
    uint32_t arrived; /* receives: messages that are here */
    bool issued;
};

/* A place in the order of a lane: slice block + slot of step `index`. */
struct cursor {
    uint32_t block, index, slot;
};

struct lane {
    struct cursor send, recv;
    uint32_t send_peer; /* peers of the step under the cursor that have had it */
};

struct awaited {
    struct cell_name cell;
    uint32_t peer; /* index among the step's peers */
    uint32_t position, slice;
    size_t length, total; /* total: v-forms, first slice: of the whole message */
    bool announced, posted;
    bool settled; /* posted, and came */
};

/* The link of one (peer, channel), and the messages awaited on it, oldest first. */
struct wire {
    struct link link;
    struct executor *executor;
    struct awaited *awaited;
    uint32_t head, count, capacity;
    uint32_t stalled; /* a send waits for it */
    bool shown;       /* its oldest message is held by a cell */
    bool look;        /* in executor->looks */
    struct wire *next_look;
};

struct arrival_slot {
    struct wire *wire;
    struct transport_arrival arrival;
};

/* A post handed to a transport. */
struct post {
    struct transport_ticket ticket; /* first: done gets its address */
    struct executor *executor;
    struct wire *wire;
    struct cell_name cell;
    bool receiving;
    struct post *next, **previous;
};

enum transfer_kind {
    TRANSFER_SEND,
    TRANSFER_RECV,
    TRANSFER_RECV_REDUCE,
    TRANSFER_COPY,
    TRANSFER_REDUCE
};

/* Bytes being copied or combined for one cell; with host memory it ends at once. */
struct transfer {
    struct executor *executor;
    enum transfer_kind kind;
    struct cell_name cell;
    struct wire *wire;           /* SEND */
    struct transport_slot out;   /* SEND */
    uint32_t pending;            /* operations of other memory kinds under way */
    bool whole;                  /* all operations were begun */
    unsigned char *straightened; /* copies of messages that came in two pieces or misaligned */
    struct transfer *next, **previous;
};

/* One operation of another memory kind. */
struct memory_operation {
    struct staging_ticket ticket;
    struct transfer *transfer; /* NULL: forgotten */
    struct memory_operation *next;
};

struct slot {
    uint32_t slice;
    uint32_t left; /* cells to complete */
};

struct executor {
    rota_comm *comm;
    rota_request *request; /* NULL when nothing runs */
    struct plan *plan;
    struct wire **wires; /* [channel * nranks + peer], NULL until used */
    uint32_t nwires;

    /* What the sizes below, and what memory there is, were set for; NULL: nothing that lasts. */
    const struct plan *sized;
    size_t sized_count;
    size_t element_size, partial_size, widest_size;
    size_t slice_elements, scratch_stride;
    uint32_t nslices, nslots, active;
    bool vector; /* a v-form: blocks differ */
    struct slot slots[EXECUTOR_SLOTS];
    struct cell *cells; /* [step * EXECUTOR_SLOTS + slot] */
    struct lane *lanes;
    struct cell_name *ready; /* local cells that can run */
    size_t nready;
    struct wire *looks; /* wires at which a message may wait */
    bool dirty;         /* a cursor may be able to move */
    bool pumping;
    struct straight *straight;     /* not NULL: the plan runs so, ... */
    uint32_t action;               /* ... and stands here */
    size_t *begin;                 /* first element of each chunk of a block */
    struct arrival_slot *arrivals; /* [(peer entry) * EXECUTOR_SLOTS + slot] */
    struct reduce_operand *operands;
    unsigned char *scratch;
    size_t cell_capacity, ready_capacity, lane_capacity, begin_capacity, arrival_capacity,
        operand_capacity, scratch_capacity;

    const struct memory_kind *kind; /* of the user's buffers when not both are host */
    bool host_memory;
    struct post *posts, *free_posts;
    struct transfer *transfers, *free_transfers;
    struct memory_operation *operations;
};

/* Bytes of an element that moves as a partial, or as what it is. */
static inline size_t executor_size(const struct executor *executor, bool partial) {
    return partial ? executor->partial_size : executor->element_size;
}

/* Whether the messages of a step, or what it copies, are partials. */
static inline bool executor_moves_partials(const struct sched_step *step) {
    return step->type == SCHED_RECV_REDUCE ? (step->flags & SCHED_LOAD_MESSAGE) == 0
                                           : (step->flags & SCHED_PARTIAL) != 0;
}

static inline struct cell *executor_cell(const struct executor *executor, uint32_t step,
                                         uint32_t slot) {
    return &executor->cells[(size_t)step * EXECUTOR_SLOTS + slot];
}

/* Arrivals of a receive's peers: consecutive entries. */
static inline struct arrival_slot *executor_arrivals(const struct executor *executor, uint32_t step,
                                                     uint32_t slot) {
    const struct sched *schedule = executor->plan->schedule;
    return &executor->arrivals[(size_t)slot * schedule->npeers + schedule->steps[step].peers.begin];
}

/* -- executor.c ---------------------------------------------------------------------------------
 */
void executor_complete(struct executor *executor, uint32_t step, uint32_t slot);
void executor_transfer_sent(struct executor *executor, struct transfer *transfer);
void executor_transfer_received(struct executor *executor, struct transfer *transfer);
void executor_pump(struct executor *executor);

/* -- executor_wire.c ----------------------------------------------------------------------------
 */
/* The wire to a peer, made when needed; NULL without memory. */
struct wire *executor_wire(struct executor *executor, int peer, uint32_t channel);
/* Sends the cell's message to the peers that have not had it. False: not now. */
bool executor_issue_send(struct executor *executor, struct lane *lane, uint32_t step,
                         uint32_t slot);
/* Sends a step's message, which is all there is of it, from where it lies to one of the step's
 * peers. False: not now, or the request has ended. */
bool executor_send_short(struct executor *executor, uint32_t step, uint32_t peer, const void *data,
                         size_t length);
/* Awaits the message of one of the step's peers, and announces it where that can be done. */
bool executor_await(struct executor *executor, uint32_t step, uint32_t peer, uint32_t slot,
                    size_t length);
/* Takes the oldest message that is awaited from one of the step's peers. False: it is not here, or
 * the request has ended. */
bool executor_take_short(struct executor *executor, uint32_t step, uint32_t peer);
/* Gives the messages of a step's receive back. */
void executor_release(struct executor *executor, uint32_t step, uint32_t slot);
/* Whether a message without data is sent. */
bool executor_sends_empty(const struct executor *executor, uint32_t step, uint32_t slice);
/* Announces the cell's messages and takes those that are here. False: the request has ended. */
bool executor_issue_recv(struct executor *executor, uint32_t step, uint32_t slot);
/* Takes messages that wait at a wire, as far as receives were issued for them. */
void executor_look(struct executor *executor, struct wire *wire);
void executor_post_put(struct executor *executor, struct post *post);
int executor_rank_of(const struct executor *executor, const struct wire *wire);
void executor_fail_memory(struct executor *executor);

/* -- executor_straight.c ------------------------------------------------------------------------
 */
/* Whether the request, whose sizes are set, can run straight; then it is ready to. */
bool executor_is_straight(struct executor *executor);
/* Announces its messages and goes as far as they have come, as the next does when some have. */
void executor_start_straight(struct executor *executor);
void executor_run_straight(struct executor *executor);

/* -- executor_memory.c --------------------------------------------------------------------------
 */
/* Decides which memory kind moves the request's buffers. */
void executor_set_memory(struct executor *executor);
/* Bytes of a slice of the chunks that a list names. */
size_t executor_length(const struct executor *executor, struct sched_list list, uint32_t slice,
                       bool partial);
/* Bytes of all slices. */
size_t executor_total(const struct executor *executor, struct sched_list list, bool partial);
/* Pieces of a list in user memory and scratch, elements having `size` bytes, neighbours joined; -1
 * when they are more than `max`. */
int executor_pieces(const struct executor *executor, struct sched_list list, uint32_t slot,
                    size_t size, struct transport_piece *pieces, int max);
/* Those of a step's source (or destination), at most EXECUTOR_MAX_PIECES. */
int executor_gather(const struct executor *executor, const struct sched_step *step, uint32_t slot,
                    bool destination, struct transport_piece *pieces);
struct transfer *executor_transfer(struct executor *executor, enum transfer_kind kind,
                                   uint32_t step, uint32_t slot);
void executor_copy_out(struct executor *executor, struct transfer *transfer);
void executor_copy_in(struct executor *executor, struct transfer *transfer);
void executor_copy_local(struct executor *executor, struct transfer *transfer);
void executor_reduce(struct executor *executor, struct transfer *transfer);
/* Reduces executor->operands; with host memory at once, and without a transfer. */
bool executor_combine(struct executor *executor, struct transfer *transfer, void *dst,
                      bool finished, size_t noperands, size_t elements);
/* Message `index` of `count`, contiguous and aligned to its elements: copied where it is not, into
 * *copies, which the caller frees. NULL without memory. */
const unsigned char *executor_straighten(const struct executor *executor,
                                         const struct transport_arrival *arrival, uint32_t index,
                                         uint32_t count, unsigned char **copies);
/* Waits until operations of other memory kinds have ended, and forgets transfers. */
void executor_quiesce_memory(struct executor *executor);

#endif
