/* The parts of `rota verify`: what is asked, the proof of one algorithm or file, and the table of
 * all. */
#ifndef TOOLS_VERIFY_H
#define TOOLS_VERIFY_H

#include <rota/rota.h>
#include <stdbool.h>

#define VERIFY_MAX_RANKS 4096
/* Above this many ranks only the roots 0, 1 and the last are tried unless --root says otherwise. */
#define VERIFY_ALL_ROOTS 16

#define VERIFY_ROOT_DEFAULT (-2)
#define VERIFY_ROOT_ALL (-3)

struct verify_request {
    const char *command;
    const char *algorithm; /* NULL: all */
    int kind;              /* -1: all */
    int first, last;       /* numbers of ranks */
    int root;              /* or one of VERIFY_ROOT_... */
};

/* What holds for all schedules looked at so far. */
struct verify_summary {
    long schedules;
    int fewest, most; /* ranks */
    bool same, canonical, ascending;
    bool same_in_fast;
    unsigned depth, fast_roundings;
    bool refuted, failed; /* by the verifier; by an error of the library */
    char text[512];       /* of the first refutation or failure */
};

void verify_summary_init(struct verify_summary *summary);
void verify_summary_merge(struct verify_summary *into, const struct verify_summary *from);
/* "same bits on all ranks, ..." */
void verify_summary_print(const struct verify_summary *summary, rota_kind kind);

bool verify_kind_has_root(rota_kind kind);
/* Builds and verifies one schedule and adds what came out. */
void verify_one(const char *algorithm, rota_kind kind, int nranks, int root, int in_place,
                struct verify_summary *summary);

/* verify_all.c: everything that the request names, on all usable cores; returns the exit status. */
int verify_all(const struct verify_request *request);

#endif
