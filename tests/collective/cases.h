/* The matrix: what varies from case to case, and how a case follows from its number. */
#ifndef TESTS_COLLECTIVE_CASES_H
#define TESTS_COLLECTIVE_CASES_H

#include <rota/rota.h>

#define MATRIX_MAX_RANKS 16

struct matrix_options {
    uint64_t seed;
    uint64_t samples; /* per number of ranks; 0: all cases */
    const char *transport;
    size_t slice; /* ROTA_SLICE_BYTES; 0: the library's choice */
    unsigned delay_us;
    bool mock;      /* some buffers are mock memory */
    bool processes; /* ranks are processes, else threads */
    bool joined;    /* this process is one rank of a job that somebody else starts */
    int ranks[MATRIX_MAX_RANKS];
    int nranks;            /* entries of ranks */
    uint32_t kinds;        /* bit per rota_kind */
    const char *algorithm; /* NULL: each and none; "native": none */
    rota_numerics mode;    /* DEFAULT: each */
    bool single;           /* only case `index` of the one kind */
    uint64_t index;
};

enum matrix_place { MATRIX_OUT_OF_PLACE, MATRIX_IN_PLACE, MATRIX_MIXED, MATRIX_PLACES };

struct matrix_case {
    uint64_t index; /* among the cases of its kind */
    rota_kind
        kind; /* SEND stands for a shift: send to the next rank, receive from the one before */
    rota_dtype dtype;
    rota_op op; /* VALUE_MOVED where nothing is reduced */
    int nranks, root;
    size_t count;
    enum matrix_place place;
    const char *algorithm; /* NULL: the library's choice */
    rota_numerics mode;
    bool request; /* else blocking */
    uint64_t salt;
};

/* Number of cases of a kind. */
uint64_t cases_of_kind(const struct matrix_options *options, rota_kind kind, int nranks);
/* Case number `index` of the kind. */
struct matrix_case case_at(const struct matrix_options *options, rota_kind kind, int nranks,
                           uint64_t index);
/* The number-th case of a run; false past the last. The same on all ranks. */
bool case_next(const struct matrix_options *options, int nranks, uint64_t number,
               struct matrix_case *out);
/* A line that says what it is and how to run it alone. */
void case_describe(const struct matrix_options *options, const struct matrix_case *test, char *text,
                   size_t size);
/* Blocks of count elements in and out on a rank. */
size_t case_blocks_in(const struct matrix_case *test, int rank);
size_t case_blocks_out(const struct matrix_case *test, int rank);

#endif
