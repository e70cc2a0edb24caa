/* Finding out who we are and where the job is met: the caller's configuration, rota's variables,
 * torchrun's, another launcher's, or a job of one rank. What is found is checked here. */
#include "base/error.h"
#include "base/log.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/launcher.h"
#include "bootstrap/message.h"
#include "bootstrap/process.h"
#include "bootstrap/unique_id.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sodium.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LEAST_SECRET 16
#define MOST_SECRET 4096
#define TORCH_CANDIDATES 16 /* ports after MASTER_PORT where rank 0 may listen */

/* -- rank and size -----------------------------------------------------------------------------
 */

static rota_status check_rank(int rank, int nranks, rota_status failure, const char *rank_name,
                              const char *size_name) {
    if (nranks < 1 || nranks > BOOTSTRAP_MAX_RANKS)
        return error_raise(failure, "%s is %d: expected a number of ranks from 1 to %d", size_name,
                           nranks, BOOTSTRAP_MAX_RANKS);
    if (rank < 0 || rank >= nranks)
        return error_raise(failure, "%s is %d: expected a rank from 0 to %d, since %s is %d",
                           rank_name, rank, nranks - 1, size_name, nranks);
    return ROTA_OK;
}

enum ranks_from { FROM_NOTHING, FROM_CONFIG, FROM_ROTA, FROM_TORCH, FROM_LAUNCHER };

static rota_status ranks_of_rota(const struct settings *settings, struct bootstrap_place *place) {
    bool rank = !settings_is_default(settings, SETTING_RANK);
    bool size = !settings_is_default(settings, SETTING_SIZE);
    if (!rank || !size)
        return error_raise(ROTA_ERR_SETTING, "%s is set but %s is not",
                           rank ? "ROTA_RANK" : "ROTA_SIZE", rank ? "ROTA_SIZE" : "ROTA_RANK");
    place->rank = (int)settings_integer(settings, SETTING_RANK);
    place->nranks = (int)settings_integer(settings, SETTING_SIZE);
    return check_rank(place->rank, place->nranks, ROTA_ERR_SETTING, "ROTA_RANK", "ROTA_SIZE");
}

static rota_status ranks_of_torch(struct bootstrap_place *place) {
    if (!launcher_is_set("RANK") || !launcher_is_set("WORLD_SIZE"))
        return error_raise(ROTA_ERR_SETTING, "%s is set but %s is not",
                           launcher_is_set("RANK") ? "RANK" : "WORLD_SIZE",
                           launcher_is_set("RANK") ? "WORLD_SIZE" : "RANK");
    rota_status status = launcher_number("RANK", INT_MAX, &place->rank);
    if (status == ROTA_OK)
        status = launcher_number("WORLD_SIZE", INT_MAX, &place->nranks);
    if (status == ROTA_OK)
        status = check_rank(place->rank, place->nranks, ROTA_ERR_SETTING, "RANK", "WORLD_SIZE");
    return status;
}

static rota_status find_ranks(const rota_config *config, const struct settings *settings,
                              struct bootstrap_place *place, enum ranks_from *from) {
    if (config->nranks != 0) {
        *from = FROM_CONFIG;
        place->rank = config->rank;
        place->nranks = config->nranks;
        return check_rank(place->rank, place->nranks, ROTA_ERR_ARGUMENT, "rank", "nranks");
    }
    if (!settings_is_default(settings, SETTING_RANK) ||
        !settings_is_default(settings, SETTING_SIZE)) {
        *from = FROM_ROTA;
        return ranks_of_rota(settings, place);
    }
    /* A lone RANK may be anybody's; with a companion it is a launcher's. */
    int companions =
        launcher_is_set("RANK") + launcher_is_set("WORLD_SIZE") + launcher_is_set("MASTER_ADDR");
    if (companions >= 2 && (launcher_is_set("RANK") || launcher_is_set("WORLD_SIZE"))) {
        *from = FROM_TORCH;
        return ranks_of_torch(place);
    }
    rota_status status = launcher_find(place);
    *from = place->launcher != LAUNCHER_NONE ? FROM_LAUNCHER : FROM_NOTHING;
    if (status == ROTA_OK && *from == FROM_NOTHING) {
        place->rank = 0;
        place->nranks = 1;
    }
    return status;
}

/* -- keys --------------------------------------------------------------------------------------
 */

static void add_text(crypto_generichash_state *state, const char *text) {
    crypto_generichash_update(state, (const unsigned char *)text, strlen(text) + 1);
}

static rota_status secret_from_file(const char *path, char *secret, size_t *length) {
    /* Not blocking on a pipe; what is no regular file is refused. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat about;
    if (fd < 0)
        return error_raise_system(errno, "cannot open the key file %.200s (ROTA_KEY_FILE)", path);
    rota_status status = ROTA_OK;
    ssize_t got = -1;
    if (fstat(fd, &about) != 0)
        status = error_raise_system(errno, "cannot look at the key file %.200s", path);
    else if (!S_ISREG(about.st_mode) || about.st_size > MOST_SECRET)
        status = error_raise(ROTA_ERR_SETTING,
                             "the key file %.200s (ROTA_KEY_FILE) is no regular file of at most %d "
                             "bytes",
                             path, MOST_SECRET);
    else if ((got = read(fd, secret, MOST_SECRET)) < 0)
        status = error_raise_system(errno, "cannot read the key file %.200s", path);
    close(fd);
    if (status != ROTA_OK)
        return status;
    if (about.st_mode & (S_IRWXG | S_IRWXO))
        log_write(LOG_INFO, "the key file %s can be used by others than its owner", path);
    while (got > 0 && (secret[got - 1] == '\n' || secret[got - 1] == '\r'))
        got--;
    if (got < LEAST_SECRET)
        return error_raise(ROTA_ERR_SETTING,
                           "the key file %.200s (ROTA_KEY_FILE) holds fewer than %d characters",
                           path, LEAST_SECRET);
    *length = (size_t)got;
    return ROTA_OK;
}

/* The key from the secret of the job; without one it is derived from what the launcher says, which
 * keeps strays out and attackers not. */
static rota_status derive_key(const struct settings *settings, const char *root, const char *job,
                              uint8_t key[NET_KEY_BYTES]) {
    char secret[MOST_SECRET];
    size_t length = strlen(settings_text(settings, SETTING_JOB_KEY));
    const char *path = settings_text(settings, SETTING_KEY_FILE);
    crypto_generichash_state state;
    rota_status status = ROTA_OK;
    crypto_generichash_init(&state, NULL, 0, NET_KEY_BYTES);
    if (length > 0 && length < LEAST_SECRET)
        return error_raise(ROTA_ERR_SETTING, "ROTA_JOB_KEY has fewer than %d characters",
                           LEAST_SECRET);
    if (length > 0 && length <= MOST_SECRET)
        memcpy(secret, settings_text(settings, SETTING_JOB_KEY), length);
    else if (path[0] != 0)
        status = secret_from_file(path, secret, &length);
    if (status != ROTA_OK)
        return status;
    add_text(&state, length > 0 ? "rota key of a secret" : "rota key derived");
    if (length > 0) {
        crypto_generichash_update(&state, (const unsigned char *)secret, length);
    } else {
        add_text(&state, job);
        add_text(&state, root);
        log_write(LOG_INFO, "no ROTA_JOB_KEY: the job's key is derived from %s %s", root, job);
    }
    crypto_generichash_final(&state, key, NET_KEY_BYTES);
    sodium_memzero(secret, sizeof secret);
    return ROTA_OK;
}

static rota_status derive_identity(const struct settings *settings, const char *root,
                                   struct bootstrap_place *place) {
    struct net_identity *identity = &place->identity;
    crypto_generichash_state state;
    rota_status status = derive_key(settings, root, place->job_text, identity->key);
    if (status != ROTA_OK)
        return status;
    crypto_generichash_init(&state, identity->key, NET_KEY_BYTES, sizeof identity->job);
    add_text(&state, "rota job");
    add_text(&state, root);
    add_text(&state, place->job_text);
    crypto_generichash_final(&state, identity->job, sizeof identity->job);
    return ROTA_OK;
}

/* -- the place ---------------------------------------------------------------------------------
 */

/* Host names are resolved while joining, since they may appear late; only the form counts here. */
static bool is_host_port(const char *text) {
    const char *colon = strrchr(text, ':');
    bool bracketed = text[0] == '[';
    if (colon == NULL || colon == text || strlen(colon + 1) > 5 || colon[1] == 0 ||
        colon[1 + strspn(colon + 1, "0123456789")] != 0)
        return false;
    long port = strtol(colon + 1, NULL, 10);
    if (port < 1 || port > 65535)
        return false;
    return bracketed ? colon > text + 2 && colon[-1] == ']' : strchr(text, ':') == colon;
}

static rota_status place_at_root(const struct settings *settings, const char *root,
                                 const char *variable, struct bootstrap_place *place) {
    const char *run = getenv("TORCHELASTIC_RUN_ID");
    if (place->job_text[0] == 0 && run != NULL)
        snprintf(place->job_text, sizeof place->job_text, "%s", run);
    place->way = BOOTSTRAP_ROOT;
    place->serves = place->rank == 0;
    if (root[0] == '@') {
        if (root[1] == 0 || strlen(root + 1) >= sizeof place->root.local_name)
            return error_raise(ROTA_ERR_SETTING,
                               "%s=\"%.60s\": expected a name of 1 to %zu characters after the @",
                               variable, root, sizeof place->root.local_name - 1);
        memcpy(place->root.local_name, root + 1, strlen(root));
    } else {
        if (!is_host_port(root) || strlen(root) >= sizeof place->root_name)
            return error_raise(ROTA_ERR_SETTING,
                               "%s=\"%.60s\": expected HOST:PORT, [IPV6]:PORT or @NAME", variable,
                               root);
        memcpy(place->root_name, root, strlen(root) + 1);
    }
    return derive_identity(settings, root, place);
}

/* torchrun: with an agent store MASTER_PORT is taken by it. Otherwise rank 0 takes MASTER_PORT, or
 * one of the next when torch's own store was there first; the others try them all with the keyed
 * handshake. */
static rota_status place_by_torch(const struct settings *settings, struct bootstrap_place *place) {
    const char *host = getenv("MASTER_ADDR"), *store = getenv("TORCHELASTIC_USE_AGENT_STORE");
    char root[sizeof place->root_name];
    int port = 0;
    if (!launcher_is_set("MASTER_ADDR") || !launcher_is_set("MASTER_PORT"))
        return error_raise(ROTA_ERR_SETTING, "RANK and WORLD_SIZE are set but %s is not",
                           launcher_is_set("MASTER_ADDR") ? "MASTER_PORT" : "MASTER_ADDR");
    rota_status status = launcher_number("MASTER_PORT", 65535, &port);
    if (status != ROTA_OK)
        return status;
    bool six = strchr(host, ':') != NULL && host[0] != '[';
    int length = snprintf(root, sizeof root, six ? "[%s]:%d" : "%s:%d", host, port);
    if (length >= (int)sizeof root || host[0] == '@')
        return error_raise(ROTA_ERR_SETTING, "MASTER_ADDR=\"%.60s\": expected a host name", host);
    bool agent = store != NULL && (strcmp(store, "True") == 0 || strcmp(store, "1") == 0);
    place->root_offset = agent ? 1 : 0;
    place->root_candidates = TORCH_CANDIDATES - place->root_offset;
    return place_at_root(settings, root, "MASTER_ADDR", place);
}

/* What all ranks reach without meeting somewhere first. */
static rota_status place_single(struct bootstrap_place *place) {
    place->way = BOOTSTRAP_SINGLE;
    net_random(place->identity.key, sizeof place->identity.key);
    net_random(place->identity.job, sizeof place->identity.job);
    return ROTA_OK;
}

static rota_status place_by_launcher(const struct settings *settings,
                                     struct bootstrap_place *place) {
    char root[sizeof place->root_name];
    if (place->launcher == LAUNCHER_PMIX || place->launcher == LAUNCHER_PMI) {
        place->way = BOOTSTRAP_LAUNCHER;
        return ROTA_OK;
    }
    rota_status status = launcher_root(place, root, sizeof root);
    return status == ROTA_OK ? place_at_root(settings, root, "the launcher's root", place) : status;
}

static rota_status place_by_environment(const struct settings *settings, enum ranks_from from,
                                        struct bootstrap_place *place) {
    const char *root = settings_text(settings, SETTING_ROOT);
    if (place->nranks == 1)
        return place_single(place);
    if (root[0] != 0 && place->nranks == 0)
        return error_raise(ROTA_ERR_SETTING, "ROTA_ROOT is set, but the launcher's variables do "
                                             "not tell the number of ranks: set ROTA_RANK and "
                                             "ROTA_SIZE too");
    if (root[0] != 0)
        return place_at_root(settings, root, "ROTA_ROOT", place);
    if (from == FROM_TORCH)
        return place_by_torch(settings, place);
    if (from == FROM_LAUNCHER)
        return place_by_launcher(settings, place);
    if (from == FROM_ROTA)
        return error_raise(ROTA_ERR_SETTING, "ROTA_SIZE is %d but ROTA_ROOT is not set",
                           place->nranks);
    return error_raise(ROTA_ERR_ARGUMENT,
                       "nranks is %d, but there is no place to meet: pass id, store or all_gather, "
                       "or set ROTA_ROOT",
                       place->nranks);
}

static rota_status place_by_store(const rota_store *store, struct bootstrap_place *place) {
    if (store->size < sizeof *store)
        return error_raise(ROTA_ERR_ARGUMENT,
                           "the store has size %zu, expected %zu: use ROTA_STORE_INIT", store->size,
                           sizeof *store);
    if (store->set == NULL || store->get == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "the store lacks its function %s",
                           store->set == NULL ? "set" : "get");
    place->way = BOOTSTRAP_STORE;
    place->store = *store;
    return ROTA_OK;
}

static rota_status find_place(const rota_config *config, const struct settings *settings,
                              enum ranks_from from, struct bootstrap_place *place) {
    int ways = (config->id != NULL) + (config->all_gather != NULL) + (config->store != NULL);
    if (ways > 1)
        return error_raise(ROTA_ERR_ARGUMENT,
                           "the configuration has several of id, all_gather and store");
    if (ways == 0)
        return place_by_environment(settings, from, place);
    if (from == FROM_NOTHING || place->nranks == 0)
        return error_raise(ROTA_ERR_ARGUMENT, "nranks is 0, and the environment does not tell the "
                                              "number of ranks (ROTA_RANK and ROTA_SIZE, RANK and "
                                              "WORLD_SIZE, or a launcher's variables)");
    if (config->id != NULL) {
        place->way = BOOTSTRAP_ID;
        return bootstrap_unique_id_read(config->id, place);
    }
    if (config->store != NULL)
        return place_by_store(config->store, place);
    (void)place_single(place); /* for the identity, of which rank 0's will be taken */
    place->way = BOOTSTRAP_CALLBACK;
    place->all_gather = config->all_gather;
    place->all_gather_arg = config->all_gather_arg;
    return ROTA_OK;
}

/* The caller's configuration in full: those compiled before it grew have less of it. */
static rota_status read_config(const rota_config *config, rota_config *full) {
    size_t least = offsetof(rota_config, store);
    memset(full, 0, sizeof *full);
    if (config == NULL)
        return ROTA_OK;
    if (config->size < least)
        return error_raise(ROTA_ERR_ARGUMENT,
                           "the configuration has size %zu, expected %zu: use ROTA_CONFIG_INIT",
                           config->size, sizeof *config);
    memcpy(full, config, config->size < sizeof *full ? config->size : sizeof *full);
    return ROTA_OK;
}

rota_status bootstrap_locate(const rota_config *config, const struct settings *settings,
                             struct bootstrap_place *place) {
    enum ranks_from from;
    struct bootstrap_place found = {.way = BOOTSTRAP_SINGLE};
    rota_config full;
    rota_status status = read_config(config, &full);
    if (status != ROTA_OK)
        return status;
    if (sodium_init() < 0)
        return error_raise(ROTA_ERR_SYSTEM, "libsodium cannot be initialised");
    status = find_ranks(&full, settings, &found, &from);
    if (status == ROTA_OK)
        status = find_place(&full, settings, from, &found);
    if (status != ROTA_OK)
        return status;
    found.identity.rank = found.rank;
    found.identity.incarnation = process_incarnation();
    found.identity.agreement = settings_agreement(settings);
    process_protocols(settings, &found.identity.protocol_first, &found.identity.protocol_last);
    *place = found;
    return ROTA_OK;
}
