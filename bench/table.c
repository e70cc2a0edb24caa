/* nccl-tests' table, which scripts read: every line that is no result begins with '#', a result
 * has 13 fields, and the two lines of the footer are grepped for. */
#include "bench/session.h"

#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HOST_NAME_BYTES 64
#define BOOT_ID_BYTES 40

struct device {
    int32_t pid, core;
    char host[HOST_NAME_BYTES];
    char boot[BOOT_ID_BYTES]; /* tells machines apart: their clocks do not compare */
};

static void device_find(struct device *device) {
    memset(device, 0, sizeof(*device));
    device->pid = (int32_t)getpid();
    device->core = (int32_t)sched_getcpu();
    if (gethostname(device->host, sizeof(device->host) - 1))
        strcpy(device->host, "?");
    FILE *boot = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (!boot)
        return;
    if (!fgets(device->boot, sizeof(device->boot), boot))
        device->boot[0] = '\0';
    fclose(boot);
}

rota_status bench_table_devices(struct bench_session *session) {
    struct device mine, *all = calloc((size_t)session->nranks, sizeof(*all));
    if (!all)
        return ROTA_ERR_MEMORY;
    device_find(&mine);
    rota_status status = bench_session_gather(session, &mine, all, sizeof(mine));
    session->one_machine = mine.boot[0] != '\0';
    bool printing = session->rank == 0 && session->options->table && status == ROTA_OK;
    if (printing)
        printf("#\n# Using devices\n");
    for (int r = 0; r < session->nranks && status == ROTA_OK; r++) {
        all[r].host[HOST_NAME_BYTES - 1] = '\0';
        session->one_machine &= memcmp(all[r].boot, mine.boot, sizeof(mine.boot)) == 0;
        if (printing)
            printf("#  Rank %2d Group  0 Pid %6d on %10s device %2d [cpu]\n", r, (int)all[r].pid,
                   all[r].host, (int)all[r].core);
    }
    free(all);
    return status;
}

void bench_table_head(const struct bench_session *session) {
    const struct bench_options *options = session->options;
    if (!options->table)
        return;
    printf("# rota %s\n", rota_version());
    printf("# nThread %d nGpus 1 minBytes %lld maxBytes %lld step: %lld(%s) warmup iters: %lld "
           "iters: %lld agg iters: 1 validation: %lld graph: 0\n",
           options->threads ? options->threads : 1, (long long)options->min_bytes,
           (long long)options->max_bytes,
           (long long)(options->factor ? options->factor : options->step_bytes),
           options->factor ? "factor" : "bytes", (long long)options->warmup,
           (long long)options->iterations, (long long)options->checks);
    char mode[32], origin[64];
    if (rota_setting_value("ROTA_MODE", mode, sizeof(mode), origin, sizeof(origin)) == ROTA_OK)
        printf("# mode %s\n", mode);
}

void bench_table_titles(struct bench_session *session, const struct bench_operation *operation,
                        const char *algorithm) {
    const struct bench_options *options = session->options;
    const char *hash_title = options->hash ? "              hash     in-place hash" : "";
    if (session->rank != 0 || !options->table)
        return;
    printf("#\n# Collective test starting: %s%s%s\n#\n", operation->name,
           algorithm ? ", algorithm " : "", algorithm ? algorithm : "");
    session->ran = NULL;
    printf("#%60s %28s\n", "out-of-place", "in-place");
    printf("#%11s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s%s\n", "size",
           "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw",
           "busbw", "#wrong", hash_title);
    printf("#%11s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s\n", "(B)",
           "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)",
           "");
    fflush(stdout);
}

/* A number of at most `width` characters: decimals go before digits do. */
static void number_print(double value, int width) {
    double limit = 1;
    for (int digit = 0; digit < width - 3; digit++)
        limit *= 10;
    int decimals = value < limit - 0.005 ? 2 : value < 10 * limit - 0.05 ? 1 : 0;
    if (decimals == 0 && value >= 1000 * limit - 0.5)
        printf("  %*.0e", width, value);
    else
        printf("  %*.*f", width, decimals, value);
}

static void half_print(struct bench_session *session, const struct bench_case *row,
                       const struct bench_half *half) {
    if (!half->timed) {
        if (session->options->table)
            printf("  %7s  %6s  %6s  %6s", "N/A", "N/A", "N/A", "N/A");
        return;
    }
    double us = half->times.mean;
    double algbw = us > 0 ? (double)row->size / us * 1e-3 : 0;
    double busbw = algbw * bench_case_factor(row);
    session->busbw_sum += busbw;
    session->halves++;
    if (!session->options->table)
        return;
    number_print(us, 7);
    number_print(algbw, 6);
    number_print(busbw, 6);
    if (half->checked)
        printf("  %6" PRIu64, half->wrong);
    else
        printf("  %6s", "N/A");
}

/* A line before the first of the rows that were run by something else than those before. */
static void ran_print(struct bench_session *session, const struct bench_case *row) {
    const char *ran = rota_comm_algorithm(session->comm, row->operation->kind);
    if (!ran || (session->ran && strcmp(ran, session->ran) == 0))
        return;
    printf("# run by %s:\n", ran);
    session->ran = ran;
}

void bench_table_row(struct bench_session *session, const struct bench_case *row,
                     const struct bench_half halves[2]) {
    const struct bench_options *options = session->options;
    cli_progress_clear(&session->progress);
    if (options->table)
        ran_print(session, row);
    if (options->table)
        printf("%12zu  %12zu  %8s  %6s  %6d", row->size, row->count, bench_case_dtype_name(row),
               bench_case_op_name(row), row->root);
    half_print(session, row, &halves[0]);
    half_print(session, row, &halves[1]);
    session->wrong += halves[0].wrong + halves[1].wrong;
    session->rows++;
    if (!options->table)
        return;
    if (options->hash) {
        printf("  %016" PRIx64, halves[0].hash);
        if (halves[1].timed)
            printf("  %016" PRIx64, halves[1].hash);
        else
            printf("  %16s", "N/A");
    }
    printf("\n");
    if (!halves[1].timed && halves[1].wrong > 0)
        printf("# in place: %" PRIu64 " wrong\n", halves[1].wrong);
    fflush(stdout);
}

void bench_table_foot(const struct bench_session *session) {
    if (!session->options->table)
        return;
    double average = session->halves ? session->busbw_sum / (double)session->halves : 0;
    printf("# Out of bounds values : %" PRIu64 " %s\n", session->wrong,
           session->wrong ? "FAILED" : "OK");
    printf("# Avg bus bandwidth    : %g\n#\n", average);
    fflush(stdout);
}
