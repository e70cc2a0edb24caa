/* Rules: a file that says which algorithm runs which calls, whatever selection would choose. */
#ifndef ENGINE_RULES_H
#define ENGINE_RULES_H

#include "base/settings.h"
#include <rota/types.h>

struct algorithm;
struct rules;

struct rule {
    rota_kind kind;
    uint64_t bytes_min, bytes_max; /* of the larger buffer, inclusive */
    int ranks_min, ranks_max;
    const struct algorithm *algorithm; /* NULL: auto, selection chooses */
    int line;
};

/* Reads what ROTA_RULES names, NULL where it names nothing; ranks then agree on what it holds.
 * Errors: ROTA_ERR_SETTING with the line and what is wrong, ROTA_ERR_MEMORY. */
rota_status rules_load(struct settings *settings, struct rules **rules);
void rules_free(struct rules *rules);
/* Every rule for this number of ranks names an algorithm that can do the operation on them.
 * Errors: ROTA_ERR_SETTING naming the rule. */
rota_status rules_check(const struct rules *rules, int nranks);
/* The first rule that fits, NULL when there is none or it says auto. */
const struct rule *rules_find(const struct rules *rules, rota_kind kind, uint64_t bytes,
                              int nranks);
/* "PATH:LINE (ROTA_RULES)", for messages. */
void rules_place(const struct rules *rules, const struct rule *rule, char *text, size_t size);

#endif
