/* Sets of ranks of a job, as bits. Their words are allocated once, with the object that owns them.
 * Internal to liveness. */
#ifndef LIVENESS_RANKS_H
#define LIVENESS_RANKS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct ranks {
    int n;
    uint64_t *words;
};

static inline size_t ranks_words(const struct ranks *set) {
    return ((size_t)set->n + 63) / 64;
}
static inline bool ranks_init(struct ranks *set, int n) {
    set->n = n;
    set->words = calloc(ranks_words(set), sizeof *set->words);
    return set->words != NULL;
}
static inline void ranks_free(struct ranks *set) {
    free(set->words);
    set->words = NULL;
}
static inline void ranks_clear(struct ranks *set) {
    memset(set->words, 0, ranks_words(set) * sizeof *set->words);
}
static inline void ranks_copy(struct ranks *to, const struct ranks *from) {
    memcpy(to->words, from->words, ranks_words(to) * sizeof *to->words);
}
static inline void ranks_add(struct ranks *set, int rank) {
    set->words[rank / 64] |= UINT64_C(1) << (rank % 64);
}
static inline void ranks_remove(struct ranks *set, int rank) {
    set->words[rank / 64] &= ~(UINT64_C(1) << (rank % 64));
}
static inline bool ranks_has(const struct ranks *set, int rank) {
    return (set->words[rank / 64] >> (rank % 64) & 1) != 0;
}
/* The lowest rank that is >= `from`, or set->n: there is none. */
static inline int ranks_next(const struct ranks *set, int from) {
    int rank = from;
    while (rank < set->n) {
        uint64_t word = set->words[rank / 64] >> (rank % 64);
        if (word != 0) {
            rank += __builtin_ctzll(word);
            return rank < set->n ? rank : set->n;
        }
        rank = (rank / 64 + 1) * 64;
    }
    return set->n;
}
#define RANKS_EACH(set, rank)                                                                      \
    for (int rank = ranks_next((set), 0); rank < (set)->n; rank = ranks_next((set), rank + 1))
static inline int ranks_count(const struct ranks *set) {
    int count = 0;
    for (size_t i = 0; i < ranks_words(set); i++)
        count += __builtin_popcountll(set->words[i]);
    return count;
}
static inline bool ranks_empty(const struct ranks *set) {
    return ranks_next(set, 0) == set->n;
}
/* Adds what `other` has; whether that was news. */
static inline bool ranks_merge(struct ranks *set, const struct ranks *other) {
    uint64_t news = 0;
    for (size_t i = 0; i < ranks_words(set); i++) {
        news |= other->words[i] & ~set->words[i];
        set->words[i] |= other->words[i];
    }
    return news != 0;
}
static inline void ranks_subtract(struct ranks *set, const struct ranks *other) {
    for (size_t i = 0; i < ranks_words(set); i++)
        set->words[i] &= ~other->words[i];
}

#endif
