/* C94: every setting with values that nobody meant, by the environment and by a configuration file:
 * taken, or refused with an error that names it, and the same on all ranks. */
#include "kit.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LONGEST = 65536, INIT_MS = 5000 };

/* Filled in by make_values: text of 128, 4096, 65536 times "A", then these. */
static const char *const odd_values[] = {
    "",     "  ",    "-1", "0", "18446744073709551616", "1e9",    "0x", "4M",
    "4MB ", "1,2,,", ",",  "^", "\xff\xfe\x80",         "%n%s%s", "1 2"};
enum { NODD = sizeof(odd_values) / sizeof(odd_values[0]), NVALUES = NODD + 3 };

static char *values[NVALUES];

static void make_values(void) {
    static const size_t lengths[] = {128, 4096, LONGEST};
    for (int i = 0; i < NODD; i++)
        values[i] = strdup(odd_values[i]);
    for (int i = 0; i < 3; i++) {
        values[NODD + i] = malloc(lengths[i] + 1);
        memset(values[NODD + i], 'A', lengths[i]);
        values[NODD + i][lengths[i]] = 0;
    }
}

struct attempt {
    const char *name, *value;
    const char *file; /* NULL: by the environment */
};

static void take_value(const struct kit_job *job, int rank) {
    const struct attempt *attempt = job->arg;
    (void)rank;
    if (attempt->file != NULL)
        setenv("ROTA_CONF", attempt->file, 1);
    else
        setenv(attempt->name, attempt->value, 1);
}

static rota_status one_sum(struct kit_seat *seat) {
    return kit_sum(seat, 1000);
}

/* What the ranks made of it. */
static void judge(const struct kit_job *job, const struct attempt *attempt) {
    char what[128];
    int failed = kit_failures();
    snprintf(what, sizeof(what), "%s%s = \"%.40s\" (%zu bytes)",
             attempt->file != NULL ? "in a file: " : "", attempt->name, attempt->value,
             strlen(attempt->value));
    const struct kit_outcome *first = &job->outcomes[0], *second = &job->outcomes[1];
    /* Without a first rank there is no id, and the second one does not come so far. */
    bool same =
        first->init == second->init || (job->root == NULL && second->init == ROTA_ERR_STATE);
    CHECK(same, "%s: %s on rank 0, %s on rank 1", what, rota_status_name(first->init),
          rota_status_name(second->init));
    for (int r = 0; r < 2; r++) {
        const struct kit_outcome *outcome = &job->outcomes[r];
        CHECK(outcome->wait_status == 0 && outcome->wrong == 0 && outcome->init_ms < INIT_MS + 2000,
              "%s: rank %d: wait status %#x after %lld ms", what, r, (unsigned)outcome->wait_status,
              (long long)outcome->init_ms);
        CHECK(kit_lines(kit_said(job, r)) <= 1, "%s: rank %d said %s", what, r, kit_said(job, r));
        if (outcome->init != ROTA_OK && outcome->init != ROTA_ERR_STATE)
            CHECK(outcome->init != ROTA_ERR_TIMEOUT &&
                      (strstr(outcome->error.message, attempt->name) != NULL ||
                       strstr(outcome->error.message, attempt->value) != NULL),
                  "%s: rank %d: %s: %s", what, r, rota_status_name(outcome->init),
                  outcome->error.message);
        if (outcome->init == ROTA_OK)
            CHECK(outcome->body == ROTA_OK, "%s: rank %d: %s", what, r, outcome->error.message);
    }
    if (kit_failures() > failed)
        kit_tell(job);
}

/* Settings that say where and as what to join: with those the ranks meet by an id. */
static bool decides_meeting(const char *name) {
    static const char *const names[] = {"ROTA_RANK", "ROTA_SIZE", "ROTA_ROOT", "ROTA_JOB_KEY"};
    for (int i = 0; i < 4; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

static void try(const char *name, const char *value, const char *file) {
    struct attempt attempt = {.name = name, .value = value, .file = file};
    struct kit_job job = {.nranks = 2,
                          .root = decides_meeting(name) ? NULL : "@rota-test-settings",
                          .prepare = take_value,
                          .arg = &attempt,
                          .body = one_sum,
                          .init_timeout_ms = INIT_MS,
                          .timeout_ms = INIT_MS};
    kit_job_run(&job, 20000);
    judge(&job, &attempt);
    kit_job_end(&job);
}

/* For each setting and value. Those for the library's own tests are settings, too. */
static void try_all(bool by_file) {
    char file[] = "/tmp/rota-test-conf-XXXXXX";
    int descriptor = mkstemp(file);
    if (descriptor < 0)
        kit_skip("no temporary file");
    make_values();
    for (int i = 0; i < rota_setting_count(); i++) {
        rota_setting_info info = ROTA_SETTING_INFO_INIT;
        CHECK(rota_setting_describe(i, &info) == ROTA_OK, "setting %d", i);
        if (by_file && strcmp(info.name, "ROTA_CONF") == 0)
            continue;
        for (int v = 0; v < NVALUES; v++) {
            if (by_file) {
                FILE *text = fopen(file, "we");
                fprintf(text, "%s = %s\n", info.name, values[v]);
                fclose(text);
            }
            try(info.name, values[v], by_file ? file : NULL);
        }
    }
    close(descriptor);
    unlink(file);
}

static void C94_every_variable(void) {
    try_all(false);
}

static void C94_every_key_of_a_file(void) {
    try_all(true);
}

static void C94_files_that_are_none(void) {
    char folder[] = "/tmp/rota-test-conf-XXXXXX", path[64];
    if (mkdtemp(folder) == NULL)
        kit_skip("no temporary folder");
    snprintf(path, sizeof(path), "%s/fifo", folder);
    if (mkfifo(path, 0600) != 0)
        kit_skip("no FIFO");
    try("ROTA_CONF", path, NULL);
    unlink(path);
    snprintf(path, sizeof(path), "%s/long", folder);
    FILE *text = fopen(path, "we");
    for (int i = 0; i < 1 << 20; i++)
        fputc('A', text);
    fclose(text);
    try("ROTA_CONF", path, NULL);
    unlink(path);
    try("ROTA_CONF", folder, NULL);
    try("ROTA_CONF", "/dev/zero", NULL);
    try("ROTA_CONF", "/nowhere/rota.conf", NULL);
    try("ROTA_KEY_FILE", folder, NULL);
    try("ROTA_KEY_FILE", "/dev/zero", NULL);
    rmdir(folder);
}

int main(int argc, char **argv) {
    static const struct kit_case cases[] = {
        {"C94_every_variable", C94_every_variable, 300},
        {"C94_every_key_of_a_file", C94_every_key_of_a_file, 300},
        {"C94_files_that_are_none", C94_files_that_are_none, 60},
        {NULL, NULL, 0},
    };
    return kit_main(cases, argc, argv);
}
