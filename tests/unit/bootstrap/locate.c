/* Finding rank, size, place and key in configuration and environment. */
#include "base/error.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/unique_id.h"
#include "ranks.h"
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static rota_status locate(const rota_config *config, struct bootstrap_place *place) {
    struct settings *settings;
    rota_status status = settings_load(&settings);
    if (status != ROTA_OK)
        return status;
    status = bootstrap_locate(config, settings, place);
    settings_free(settings);
    return status;
}

static void expect_refused(const rota_config *config, rota_status status, const char *name) {
    struct bootstrap_place place;
    cr_assert_eq(locate(config, &place), status, "%s", error_record()->message);
    cr_assert(strstr(error_record()->message, name), "%s lacks %s", error_record()->message, name);
}

Test(locate, alone) {
    struct bootstrap_place place;
    cr_assert_eq(locate(NULL, &place), ROTA_OK);
    cr_assert_eq(place.way, BOOTSTRAP_SINGLE);
    cr_assert_eq(place.nranks, 1);
    cr_assert_eq(place.rank, 0);
    setenv("RANK", "7", 1); /* somebody else's */
    cr_assert_eq(locate(NULL, &place), ROTA_OK);
    cr_assert_eq(place.way, BOOTSTRAP_SINGLE);
}

Test(locate, C59_impossible_arguments) {
    static const struct {
        int rank, nranks;
    } bad[] = {{-1, 3}, {3, 3}, {0, -1}, {0, 1 << 30}, {1, 1}};
    rota_unique_id id = {{0}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        rota_config config = ROTA_CONFIG_INIT;
        config.rank = bad[i].rank;
        config.nranks = bad[i].nranks;
        expect_refused(&config, ROTA_ERR_ARGUMENT, "rank");
    }
    rota_config config = ROTA_CONFIG_INIT;
    config.id = &id;
    expect_refused(&config, ROTA_ERR_ARGUMENT, "nranks is 0");
    config.nranks = 2;
    expect_refused(&config, ROTA_ERR_ARGUMENT, "unique id");
    config.id = NULL;
    expect_refused(&config, ROTA_ERR_ARGUMENT, "no place to meet");
    config.size = 4;
    expect_refused(&config, ROTA_ERR_ARGUMENT, "size");
}

Test(locate, rotas_variables) {
    struct bootstrap_place place;
    setenv("ROTA_RANK", "2", 1);
    expect_refused(NULL, ROTA_ERR_SETTING, "ROTA_SIZE");
    setenv("ROTA_SIZE", "2", 1);
    expect_refused(NULL, ROTA_ERR_SETTING, "ROTA_RANK");
    setenv("ROTA_SIZE", "3", 1);
    expect_refused(NULL, ROTA_ERR_SETTING, "ROTA_ROOT");
    setenv("ROTA_ROOT", "somewhere", 1);
    expect_refused(NULL, ROTA_ERR_SETTING, "ROTA_ROOT");
    setenv("ROTA_ROOT", "somewhere.example:5000", 1);
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "9", 1);
    cr_assert_eq(locate(NULL, &place), ROTA_OK, "%s", error_record()->message);
    cr_assert_eq(place.way, BOOTSTRAP_ROOT);
    cr_assert_eq(place.rank, 2);
    cr_assert_eq(place.nranks, 3);
    cr_assert_not(place.serves);
    cr_assert_str_eq(place.root_name, "somewhere.example:5000");
    cr_assert_eq(place.identity.rank, 2);
    setenv("ROTA_ROOT", "@here", 1);
    setenv("ROTA_RANK", "0", 1);
    cr_assert_eq(locate(NULL, &place), ROTA_OK);
    cr_assert(place.serves);
    cr_assert_str_eq(place.root.local_name, "here");
    setenv("ROTA_SIZE", "0", 1);
    expect_refused(NULL, ROTA_ERR_SETTING, "ROTA_SIZE");
}

Test(locate, bad_roots) {
    static const char *const roots[] = {
        "@",         "a:",
        ":5",        "a:0",
        "a:65536",   "a:b",
        "fd00::1:5", "[fd00::1]",
        "[]:5",      "@a-name-that-is-much-longer-than-a-local-name-may-be"};
    rota_config config = ROTA_CONFIG_INIT;
    config.nranks = 2;
    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++) {
        setenv("ROTA_ROOT", roots[i], 1);
        expect_refused(&config, ROTA_ERR_SETTING, "ROTA_ROOT");
    }
}

Test(locate, torchruns_variables) {
    struct bootstrap_place place;
    setenv("RANK", "1", 1);
    setenv("WORLD_SIZE", "4", 1);
    expect_refused(NULL, ROTA_ERR_SETTING, "MASTER_ADDR");
    setenv("MASTER_ADDR", "fd00::1", 1);
    expect_refused(NULL, ROTA_ERR_SETTING, "MASTER_PORT");
    setenv("MASTER_PORT", "70000", 1);
    expect_refused(NULL, ROTA_ERR_SETTING, "MASTER_PORT");
    setenv("MASTER_PORT", "29500", 1);
    cr_assert_eq(locate(NULL, &place), ROTA_OK);
    cr_assert_str_eq(place.root_name, "[fd00::1]:29500");
    cr_assert_eq(place.root_offset, 0);
    setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
    cr_assert_eq(locate(NULL, &place), ROTA_OK);
    cr_assert_eq(place.root_offset, 1);
    cr_assert_eq(place.root_offset + place.root_candidates, 16);
    setenv("RANK", "4", 1);
    expect_refused(NULL, ROTA_ERR_SETTING, "RANK");
    setenv("RANK", "one", 1);
    expect_refused(NULL, ROTA_ERR_SETTING, "RANK");
    setenv("RANK", "99999999999999999999", 1);
    expect_refused(NULL, ROTA_ERR_SETTING, "RANK");
    unsetenv("RANK");
    expect_refused(NULL, ROTA_ERR_SETTING, "RANK");
}

static struct net_identity identity_now(void) {
    struct bootstrap_place place;
    cr_assert_eq(locate(NULL, &place), ROTA_OK, "%s", error_record()->message);
    return place.identity;
}

Test(locate, keys) {
    setenv("ROTA_RANK", "0", 1);
    setenv("ROTA_SIZE", "2", 1);
    setenv("ROTA_ROOT", "10.0.0.1:5000", 1);
    struct net_identity derived = identity_now();
    setenv("ROTA_ROOT", "10.0.0.1:5001", 1);
    struct net_identity elsewhere = identity_now();
    cr_assert_neq(memcmp(derived.key, elsewhere.key, NET_KEY_BYTES), 0);
    cr_assert_neq(memcmp(derived.job, elsewhere.job, 16), 0);
    setenv("TORCHELASTIC_RUN_ID", "run", 1);
    struct net_identity run = identity_now();
    cr_assert_neq(memcmp(run.key, elsewhere.key, NET_KEY_BYTES), 0);
    setenv("ROTA_JOB_KEY", "0123456789abcdef", 1);
    struct net_identity given = identity_now();
    cr_assert_neq(memcmp(run.key, given.key, NET_KEY_BYTES), 0);
    setenv("ROTA_RANK", "1", 1);
    struct net_identity other = identity_now();
    cr_assert_eq(memcmp(other.key, given.key, NET_KEY_BYTES), 0);
    cr_assert_eq(memcmp(other.job, given.job, 16), 0);
    /* The same secret by file, with the newline that editors add. */
    char path[] = "/tmp/rota-key-XXXXXX";
    int fd = mkstemp(path);
    cr_assert_eq(write(fd, "0123456789abcdef\n", 17), 17);
    unsetenv("ROTA_JOB_KEY");
    setenv("ROTA_KEY_FILE", path, 1);
    other = identity_now();
    cr_assert_eq(memcmp(other.key, given.key, NET_KEY_BYTES), 0);
    cr_assert_eq(ftruncate(fd, 3), 0);
    expect_refused(NULL, ROTA_ERR_SETTING, "ROTA_KEY_FILE");
    close(fd);
    unlink(path);
    expect_refused(NULL, ROTA_ERR_SYSTEM, "ROTA_KEY_FILE");
    cr_assert_eq(mkfifo(path, 0600), 0);
    expect_refused(NULL, ROTA_ERR_SETTING, "ROTA_KEY_FILE");
    unlink(path);
}

Test(locate, unique_ids_are_checked) {
    rota_unique_id id;
    struct bootstrap_place place;
    rota_config config = ROTA_CONFIG_INIT;
    cr_assert_eq(bootstrap_unique_id(&id), ROTA_OK);
    config.nranks = 2;
    config.rank = 1;
    config.id = &id;
    cr_assert_eq(locate(&config, &place), ROTA_OK);
    cr_assert_eq(place.way, BOOTSTRAP_ID);
    struct unique_id inside;
    memcpy(&inside, &id, sizeof inside);
    cr_assert_eq(memcmp(place.identity.key, inside.key, NET_KEY_BYTES), 0);
    inside.inet[0].family = 99;
    memcpy(&id, &inside, sizeof inside);
    expect_refused(&config, ROTA_ERR_ARGUMENT, "damaged");
    inside.version++;
    memcpy(&id, &inside, sizeof inside);
    expect_refused(&config, ROTA_ERR_ARGUMENT, "version");
}

static void machine(const char *host_id, uint8_t hash[16]) {
    struct settings *settings;
    struct bootstrap_record record = {0};
    if (host_id != NULL)
        setenv("ROTA_HOST_ID", host_id, 1);
    cr_assert_eq(settings_load(&settings), ROTA_OK);
    cr_assert_eq(bootstrap_describe(settings, &record), ROTA_OK);
    settings_free(settings);
    cr_assert_eq(record.pid, getpid());
    cr_assert_geq(record.cores, 1);
    memcpy(hash, record.machine, 16);
}

Test(locate, C68_hosts_differ_by_their_whole_name) {
    uint8_t plain[16], a[16], b[16];
    char long_name[256];
    machine(NULL, plain);
    machine("gpu.rack1", a);
    cr_assert_neq(memcmp(plain, a, 16), 0);
    machine("gpu.rack2", b);
    cr_assert_neq(memcmp(a, b, 16), 0);
    machine("gpu.rack1", b);
    cr_assert_eq(memcmp(a, b, 16), 0);
    memset(long_name, 'x', sizeof long_name);
    long_name[255] = 0;
    machine(long_name, a);
    long_name[254] = 'y';
    machine(long_name, b);
    cr_assert_neq(memcmp(a, b, 16), 0);
}
