/* What many ranks and many communicators cost. Started on every rank by `rota run`; what it prints
 * is read by scale.sh.
 *
 *   scale job               init, barrier, all_reduce, Pss, finalize
 *   scale communicators N   N communicators that are alive at once: Pss of each, descriptors
 *   scale cycles N          N times split and destroy: growth after cycle 1000, descriptors */
#include <dirent.h>
#include <rota/rota.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, nranks;

static void fail(const char *what) {
    rota_error error = ROTA_ERROR_INIT;
    rota_last_error(&error);
    fprintf(stderr, "rank %d: %s: %s\n", rank, what, error.message);
    exit(1);
}

static void check(rota_status status, const char *what) {
    if (status != ROTA_OK)
        fail(what);
}

/* Proportional set size of this process: shared pages count 1/n where n processes map them. */
static long pss_kib(void) {
    FILE *file = fopen("/proc/self/smaps_rollup", "re");
    char line[256];
    long kib = -1;
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, "Pss:", 4) == 0)
            kib = strtol(line + 4, NULL, 10);
    if (file != NULL)
        fclose(file);
    if (kib < 0)
        fail("no Pss in /proc/self/smaps_rollup");
    return kib;
}

static int descriptors(void) {
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    if (folder == NULL)
        fail("no /proc/self/fd");
    while (readdir(folder) != NULL)
        count++;
    closedir(folder);
    return count;
}

/* A collective with a known result, so that what is measured also works. */
static void use(rota_comm *comm) {
    int64_t in = rank + 1, sum = 0;
    check(rota_barrier(comm, NULL), "barrier");
    check(rota_all_reduce(&in, &sum, 1, ROTA_INT64, ROTA_SUM, comm, NULL), "all_reduce");
    if (sum != (int64_t)nranks * (nranks + 1) / 2)
        fail("the sum is wrong");
}

static void job(rota_comm *world) {
    use(world);
    printf("rank %d of %d: pss_kib %ld\n", rank, nranks, pss_kib());
    fflush(stdout);
    use(world); /* nobody leaves while others still measure */
}

static void communicators(rota_comm *world, int count) {
    rota_comm **comms = calloc((size_t)count, sizeof(*comms));
    if (comms == NULL)
        fail("out of memory");
    use(world);
    int open_before = descriptors();
    long before = pss_kib();
    for (int i = 0; i < count; i++)
        check(rota_comm_split(world, 0, rank, NULL, &comms[i], NULL), "split");
    use(world);
    long bytes_each = (pss_kib() - before) * 1024 / count;
    printf("rank %d of %d: bytes_each %ld descriptors %d\n", rank, nranks, bytes_each,
           descriptors() - open_before);
    fflush(stdout);
    use(comms[count / 2]);
    for (int i = 0; i < count; i++)
        check(rota_comm_destroy(comms[i]), "destroy");
    use(world);
    free(comms);
}

static void cycles(rota_comm *world, int count) {
    enum { SETTLED = 1000 };
    long before = 0;
    int open_before = 0;
    for (int i = 0; i < count; i++) {
        rota_comm *child = NULL;
        check(rota_comm_split(world, 0, -rank, NULL, &child, NULL), "split");
        check(rota_comm_destroy(child), "destroy");
        if (i == SETTLED) {
            before = pss_kib();
            open_before = descriptors();
        }
    }
    printf("rank %d of %d: growth_kib %ld descriptors %d\n", rank, nranks, pss_kib() - before,
           descriptors() - open_before);
    fflush(stdout);
    use(world);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    int count = argc > 2 ? atoi(argv[2]) : 0;
    rota_comm *world = NULL;
    check(rota_init(NULL, &world, NULL), "init");
    check(rota_comm_rank(world, &rank), "rank");
    check(rota_comm_size(world, &nranks), "size");
    if (strcmp(what, "job") == 0)
        job(world);
    else if (strcmp(what, "communicators") == 0 && count > 0)
        communicators(world, count);
    else if (strcmp(what, "cycles") == 0 && count > 0)
        cycles(world, count);
    else
        fail("usage: scale job | communicators N | cycles N");
    check(rota_comm_finalize(world, NULL), "finalize");
    check(rota_comm_destroy(world), "destroy");
    return 0;
}
