/* rota_init by the caller's store, through the public interface: a store of files, ranks that are
 * processes, and callers that were compiled when the configuration was smaller. */
#include <rota/rota.h>

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define RANKS 3

static char folder[] = "/tmp/rota-store-XXXXXX";

static void path_of(const char *key, char path[200]) {
    snprintf(path, 200, "%s/%.100s", folder, key);
}

static int set(void *arg, const char *key, const void *value, size_t bytes) {
    char path[200], fresh[220];
    path_of(key, path);
    snprintf(fresh, sizeof fresh, "%s.new", path);
    int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int good = arg == folder && fd >= 0 && write(fd, value, bytes) == (ssize_t)bytes;
    if (fd >= 0)
        close(fd);
    return good && rename(fresh, path) == 0 ? 0 : 1;
}

static int get(void *arg, const char *key, void *value, size_t capacity, size_t *bytes,
               int64_t timeout_ms) {
    char path[200];
    path_of(key, path);
    for (int64_t waited_ms = 0; waited_ms <= timeout_ms && arg == folder; waited_ms++) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0) {
            ssize_t got = read(fd, value, capacity);
            close(fd);
            *bytes = got > 0 ? (size_t)got : 0;
            return got < 0;
        }
        usleep(1000);
    }
    return 2;
}

static int run_rank(int rank) {
    rota_config config = ROTA_CONFIG_INIT;
    rota_store store = ROTA_STORE_INIT;
    rota_comm *comm;
    int32_t mine = rank + 1, sum = 0;
    store.set = set;
    store.get = get;
    store.arg = folder;
    store.prefix = "test-";
    config.nranks = RANKS;
    config.rank = rank;
    config.store = &store;
    rota_status status = rota_init(&config, &comm, NULL);
    if (status != ROTA_OK) {
        rota_error error = ROTA_ERROR_INIT;
        rota_last_error(&error);
        fprintf(stderr, "rank %d: %s: %s\n", rank, rota_status_name(status), error.message);
        return 1;
    }
    status = rota_all_reduce(&mine, &sum, 1, ROTA_INT32, ROTA_SUM, comm, NULL);
    rota_comm_destroy(comm);
    return status != ROTA_OK || sum != RANKS * (RANKS + 1) / 2;
}

/* The configuration ends where `store` begins; what follows is not ours. */
static int old_caller(void) {
    rota_config config;
    rota_comm *comm;
    int nranks = 0;
    memset(&config, 0xff, sizeof config);
    memset(&config, 0, offsetof(rota_config, store));
    config.size = offsetof(rota_config, store);
    config.nranks = 1;
    if (rota_init(&config, &comm, NULL) != ROTA_OK)
        return 1;
    rota_comm_size(comm, &nranks);
    rota_comm_destroy(comm);
    config.size--;
    return nranks != 1 || rota_init(&config, &comm, NULL) != ROTA_ERR_ARGUMENT;
}

static int refused(void) {
    rota_config config = ROTA_CONFIG_INIT;
    rota_store store = {0};
    rota_comm *comm;
    rota_unique_id id = {{0}};
    config.nranks = 2;
    config.store = &store;
    if (rota_init(&config, &comm, NULL) != ROTA_ERR_ARGUMENT)
        return 1;
    config.id = &id;
    return rota_init(&config, &comm, NULL) != ROTA_ERR_ARGUMENT;
}

int main(void) {
    pid_t pids[RANKS];
    char path[200];
    int failed = 0, state;
    if (mkdtemp(folder) == NULL)
        return 2;
    for (int rank = 0; rank < RANKS; rank++) {
        pids[rank] = fork();
        if (pids[rank] == 0)
            return run_rank(rank);
    }
    for (int rank = 0; rank < RANKS; rank++)
        failed |= waitpid(pids[rank], &state, 0) != pids[rank] || state != 0;
    path_of("test-rota-id", path);
    failed |= unlink(path) != 0; /* one value, and nothing else */
    failed |= rmdir(folder) != 0;
    if (old_caller() != 0 || refused() != 0) {
        fprintf(stderr, "a configuration was not read as it should\n");
        failed = 1;
    }
    return failed;
}
