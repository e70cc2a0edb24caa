/* Rules, one per line and the first that fits:
 *
 *   OPERATION  SIZES     RANKS = ALGORITHM
 *   all_reduce 0..64K    2..8  = recursive_doubling
 *   broadcast  1M..      *     = ring
 *   all_reduce *         *     = auto
 *
 * Sizes are bytes of the larger buffer, as `rota bench` counts them; both ends are included. */
#include "engine/rules.h"

#include "base/error.h"
#include "base/setting_file.h"
#include <algorithms/algorithm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define RULES_MAX 256

struct rules {
    char path[SETTING_PLACE_SIZE];
    uint64_t hash;
    int count;
    struct rule rules[RULES_MAX];
};

/* Decimal digits with an optional K, M or G; *end behind. */
static bool parse_size(const char *text, const char **end, uint64_t *number) {
    uint64_t value = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
            return false;
    if (at == text)
        return false;
    static const char units[] = "KMG";
    const char *unit = *at != '\0' ? strchr(units, *at) : NULL;
    if (unit != NULL) {
        if (__builtin_mul_overflow(value, UINT64_C(1024) << (10 * (unit - units)), &value))
            return false;
        at++;
    }
    *number = value;
    *end = at;
    return true;
}

/* "*", "N", "N..", "..N" or "N..N". */
static bool parse_range(const char *text, uint64_t *least, uint64_t *most) {
    const char *at = text;
    *least = 0;
    *most = UINT64_MAX;
    if (strcmp(text, "*") == 0)
        return true;
    bool first = strncmp(at, "..", 2) != 0;
    if (first && !parse_size(at, &at, least))
        return false;
    if (*at == '\0')
        *most = *least;
    else if (strncmp(at, "..", 2) != 0)
        return false;
    else if (at[2] == '\0')
        return first;
    else if (!parse_size(at + 2, &at, most) || *at != '\0')
        return false;
    return *least <= *most;
}

/* The rule in words[]; NULL, or what is wrong with it. */
static const char *parse_rule(char *const words[3], const char *name, struct rule *rule) {
    uint64_t least, most;
    if (rota_kind_parse(words[0], &rule->kind) != ROTA_OK || !sched_kind_collective(rule->kind))
        return "there is no such operation";
    if (!parse_range(words[1], &rule->bytes_min, &rule->bytes_max))
        return "sizes are *, N, N.., ..N or N..N, with K, M or G";
    if (!parse_range(words[2], &least, &most))
        return "ranks are *, N, N.., ..N or N..N";
    rule->ranks_min = least < 1048576 ? (int)least : 1048576;
    rule->ranks_max = most < 1048576 ? (int)most : 1048576;
    rule->algorithm = algorithm_find(name);
    if (rule->algorithm == NULL && strcmp(name, "auto") != 0)
        return "there is no such algorithm, and it is not auto";
    for (int n = 2; rule->algorithm != NULL; n++) {
        if (algorithm_can(rule->algorithm, rule->kind, n))
            break;
        if (n == 64)
            return "the algorithm cannot do the operation";
    }
    return NULL;
}

static rota_status take_line(void *arg, const char *path, int line, const char *name,
                             const char *value) {
    struct rules *rules = arg;
    char copy[128] = "", *words[3] = {NULL}, *rest = NULL, place[SETTING_PLACE_SIZE];
    const char *wrong = NULL;
    struct rule rule = {.line = line};
    snprintf(copy, sizeof(copy), "%s", name);
    bool whole = strlen(name) < sizeof(copy);
    for (int i = 0; i < 3; i++)
        words[i] = strtok_r(i == 0 ? copy : NULL, " \t", &rest);
    if (!whole || words[2] == NULL || strtok_r(NULL, " \t", &rest) != NULL)
        wrong = "expected OPERATION SIZES RANKS = ALGORITHM";
    else if (rules->count == RULES_MAX)
        wrong = "too many rules";
    else
        wrong = parse_rule(words, value, &rule);
    if (wrong != NULL) {
        setting_file_place(path, line, place);
        return error_raise(ROTA_ERR_SETTING, "%s (ROTA_RULES): %s", place, wrong);
    }
    rules->hash = XXH64(name, strlen(name), rules->hash);
    rules->hash = XXH64(value, strlen(value), rules->hash);
    rules->rules[rules->count++] = rule;
    return ROTA_OK;
}

rota_status rules_load(struct settings *settings, struct rules **out) {
    const char *path = settings_text(settings, SETTING_RULES);
    *out = NULL;
    if (strcmp(path, "none") == 0)
        return ROTA_OK;
    struct rules *rules = calloc(1, sizeof(*rules));
    if (rules == NULL)
        return error_raise(ROTA_ERR_MEMORY, "no memory for rules");
    setting_file_place(path, 0, rules->path);
    rota_status status = setting_file_read(path, "ROTA_RULES", take_line, rules);
    if (status != ROTA_OK) {
        free(rules);
        return status;
    }
    settings_agree_on(settings, SETTING_RULES, rules->hash);
    *out = rules;
    return ROTA_OK;
}

void rules_free(struct rules *rules) {
    free(rules);
}

void rules_place(const struct rules *rules, const struct rule *rule, char *text, size_t size) {
    snprintf(text, size, "%.80s:%d (ROTA_RULES)", rules->path, rule->line);
}

rota_status rules_check(const struct rules *rules, int nranks) {
    char place[128];
    for (int i = 0; rules != NULL && nranks > 1 && i < rules->count; i++) {
        const struct rule *rule = &rules->rules[i];
        if (nranks < rule->ranks_min || nranks > rule->ranks_max || rule->algorithm == NULL ||
            algorithm_can(rule->algorithm, rule->kind, nranks))
            continue;
        rules_place(rules, rule, place, sizeof(place));
        return error_raise(ROTA_ERR_SETTING, "%s: algorithm %s cannot do %s on %d ranks", place,
                           rule->algorithm->name, rota_kind_name(rule->kind), nranks);
    }
    return ROTA_OK;
}

const struct rule *rules_find(const struct rules *rules, rota_kind kind, uint64_t bytes,
                              int nranks) {
    for (int i = 0; rules != NULL && i < rules->count; i++) {
        const struct rule *rule = &rules->rules[i];
        if (rule->kind == kind && bytes >= rule->bytes_min && bytes <= rule->bytes_max &&
            nranks >= rule->ranks_min && nranks <= rule->ranks_max)
            return rule->algorithm != NULL ? rule : NULL;
    }
    return NULL;
}
