/* What is called: the part of an operation that its caller gives. */
#ifndef ENGINE_CALL_H
#define ENGINE_CALL_H

#include <rota/p2p.h>

struct algorithm;

/* One wait's questions to whom it waits for: see inquiry_wait. Zero-initialise. */
struct inquiry_turn {
    int64_t next_ns;
    int step;
};

/* A call as ranks tell each other of it: of the operation what must be equal on all of them. Sent,
 * so its layout is fixed. */
struct call_summary {
    uint64_t sequence;    /* 0: no call */
    uint64_t fingerprint; /* without algorithm; 0 where checking is off */
    uint64_t count;       /* of a v-form this rank's */
    uint32_t dtype;
    int32_t root;                  /* -1: none */
    uint32_t algorithm;            /* hash of its name; 0 unknown */
    uint8_t kind, op, mode, flags; /* op: RECORD_USER_OP: a user's; flags: record_flags */
};
_Static_assert(sizeof(struct call_summary) == 40, "sent between ranks");

struct call_args {
    rota_kind kind;
    const void *send;
    void *recv;
    size_t count; /* elements, as in the public call */
    rota_dtype dtype;
    rota_op op;             /* in kinds that reduce */
    uint64_t op_identity;   /* of an operator that was created, else 0; set with the mode */
    rota_numerics numerics; /* the mode, never DEFAULT; set by collective_run and for plans */
    int root;               /* -1 where there is none; peer of send and recv */
    int tag;                /* of a fusion: how it is divided, see fusion.h */
    rota_recv_info *info;
    /* v-forms: elements of each block and where it begins in its buffer, one entry per rank, of the
     * buffers that have nranks blocks on this rank, else NULL. The request keeps its own copy. */
    bool vector;
    const size_t *send_counts, *send_displs, *recv_counts, *recv_displs;
};

static inline bool call_is_vector(const struct call_args *args) {
    return args->vector;
}
/* Whether a rank knows its own counts only. */
static inline bool call_counts_are_local(const struct call_args *args) {
    return args->vector && args->kind != ROTA_KIND_ALL_GATHER &&
           args->kind != ROTA_KIND_REDUCE_SCATTER;
}

/* What of a plain call must be equal on all ranks, the choice of algorithm aside. */
struct call_shape {
    uint64_t words[3];
};
static inline struct call_shape call_shape_of(const struct call_args *args) {
    /* The handle of an operator that was created is this rank's alone. */
    uint64_t op = args->op < ROTA_OP_COUNT ? args->op : ROTA_OP_COUNT;
    return (struct call_shape){{(uint64_t)args->kind | (uint64_t)args->dtype << 8 | op << 40,
                                (uint64_t)(uint32_t)args->root | (uint64_t)args->numerics << 40,
                                args->count ^ (uint64_t)(uint32_t)args->tag << 32}};
}

/* Whether this rank's buffers are the in-place form of the kind. */
bool call_in_place(const rota_comm *comm, const struct call_args *args, size_t element_size);
/* Of what must be equal on all ranks; never 0, but where checking is off. */
uint64_t call_fingerprint(const rota_comm *comm, const struct call_args *args,
                          const struct algorithm *algorithm);
/* The caller's tables of a v-form need not outlive the call: copies them to *tables (to be freed),
 * with packed displacements where the caller gave none. Errors: ROTA_ERR_MEMORY. */
rota_status call_keep_tables(struct call_args *args, int nranks, size_t **tables);
/* Whether a summary that came from elsewhere has a call's values. */
bool call_summary_valid(const struct call_summary *call);
/* Whether two ranks' calls of one number are different calls. */
bool call_differs(const struct call_summary *a, const struct call_summary *b);
/* "all_reduce #5 (float32 sum, 1000) root 2"; `detailed` adds algorithm and fingerprint. Returns
 * the length written. */
size_t call_text(const struct call_summary *call, bool detailed, char *text, size_t size);
/* Appends to `text` at `at`; returns the new length, which never passes the end. */
size_t call_text_add(char *text, size_t size, size_t at, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
