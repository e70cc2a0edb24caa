/* `rota bench --calibrate FILE`: measures what links cost, for the ranks as they are placed, and
 * writes it into a profile.
 *
 * A call's price is a sum: rounds, messages, bytes and reduced bytes, each times an unknown. The
 * library tells the counts of every algorithm for a call (rota_comm_candidate), so each timed call
 * is an equation; the unknowns of a class of links are those that come nearest to all of its
 * equations, in relative terms, and are not negative. */
#include "bench/samples.h"
#include "bench/study.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What the probe may take, and what is kept of it for the last calls and the answer. */
#define PROBE_US 200e3
#define RESERVE_US 30e3
#define MAX_EQUATIONS 512
#define UNKNOWNS 4
#define SAMPLES 8
#define DESCENTS 2000
#define REWEIGHTINGS 12
#define OUTLIER 2.0
#define MIB 1048576.0
#define MAX_FILE 65536

struct equation {
    struct bench_case row;
    int link;
    double counts[UNKNOWNS], known_us; /* known: what nearer links cost, at present prices */
    double samples[SAMPLES];
    int taken;
};

struct probe {
    struct equation equations[MAX_EQUATIONS];
    int count;
    double prices[ROTA_LINK_COUNT][UNKNOWNS], error[ROTA_LINK_COUNT];
    int used[ROTA_LINK_COUNT];
    rota_candidate placement;
    double took_us;
};

static const char *const probed[] = {"all_reduce", "broadcast", "all_gather", "reduce_scatter",
                                     "all_to_all", "reduce",    "barrier"};
static const int64_t probed_bytes[] = {2048, 16384, 65536, 524288};

/* -- equations ---------------------------------------------------------------------------------
 */

static void equation_add(struct probe *probe, const struct bench_case *row,
                         const rota_candidate *found) {
    struct equation *equation = &probe->equations[probe->count];
    int link = found->native ? ROTA_LINK_NATIVE : ROTA_LINK_SHM;
    /* Of two classes the one between hosts is what is asked for. */
    for (int far = ROTA_LINK_TCP; far <= ROTA_LINK_VERBS; far++)
        link = found->messages[far] > 0 ? far : link;
    *equation = (struct equation){.row = *row, .link = link};
    /* What goes between the hosts is asked for, and what goes inside of them is known. */
    bool between = found->hosts > 1 && link != ROTA_LINK_SHM;
    double rounds = between ? found->far_rounds : found->rounds;
    double passed = found->rounds > 0 ? found->path_bytes / found->rounds : 0;
    equation->counts[0] = rounds;
    equation->counts[1] = found->messages[link];
    equation->counts[2] = found->bytes[link] + rounds * passed;
    equation->counts[3] = found->reduced_bytes;
    if (between)
        equation->known_us = (found->rounds - rounds) * found->latency_us[ROTA_LINK_SHM] +
                             found->messages[ROTA_LINK_SHM] * found->overhead_us[ROTA_LINK_SHM] +
                             (found->bytes[ROTA_LINK_SHM] + (found->rounds - rounds) * passed) *
                                 found->us_per_byte[ROTA_LINK_SHM];
    probe->placement = *found;
    probe->count++;
}

static rota_status equations_make(struct bench_session *session, struct probe *probe) {
    rota_status status = ROTA_OK;
    for (size_t s = 0; s < sizeof(probed_bytes) / sizeof(probed_bytes[0]); s++)
        for (size_t o = 0; o < sizeof(probed) / sizeof(probed[0]); o++) {
            struct bench_case row =
                study_row(session, bench_operation_find(probed[o]), probed_bytes[s]);
            rota_candidate found = ROTA_CANDIDATE_INIT;
            found.count = s > 0 && row.operation->shape == BENCH_BARRIER ? 0 : 1;
            for (int i = 0; i < found.count && status == ROTA_OK; i++) {
                status = rota_comm_candidate(session->comm, row.operation->kind, row.count,
                                             row.dtype, row.op, row.root, NULL, i, &found);
                if (status != ROTA_OK || !found.able || probe->count == MAX_EQUATIONS)
                    continue;
                row.algorithm = found.native ? NULL : rota_algorithm_name(0);
                for (int a = 0; row.algorithm && strcmp(row.algorithm, found.name) != 0; a++)
                    row.algorithm = rota_algorithm_name(a);
                equation_add(probe, &row, &found);
            }
        }
    return status;
}

/* Times all equations in turns until the time is over; rank 0 says when. Those are passed by that
 * would not fit into what is left. */
static rota_status equations_time(struct bench_session *session, struct probe *probe) {
    double began = study_now_us();
    /* So that what the time is enough for is of all sizes and operations. */
    int stride = probe->count % 37 ? 37 : 1;
    rota_status status = ROTA_OK;
    for (int turn = 0; turn < SAMPLES && status == ROTA_OK; turn++)
        for (int i = 0; i < probe->count && status == ROTA_OK; i++) {
            struct equation *equation = &probe->equations[(i * stride) % probe->count];
            double spent = study_now_us() - began, before = spent;
            if (i % 8 == 0 || equation->row.size > 16384)
                status = rota_broadcast(&before, &spent, 1, ROTA_FLOAT64, 0, session->comm, NULL);
            else
                spent = 0;
            if (status == ROTA_OK && spent > PROBE_US - RESERVE_US)
                return ROTA_OK;
            if (status == ROTA_OK)
                status =
                    bench_sample(session, &equation->row, 1, &equation->samples[equation->taken++]);
        }
    return status;
}

/* The median, without the first call where there are more: that made a plan and found its peers. */
static double equation_time(struct equation *equation) {
    int first = equation->taken > 1, count = equation->taken - first;
    bench_sort(equation->samples + first, count);
    return equation->samples[first + (count - 1) / 2] - equation->known_us;
}

/* -- solving -----------------------------------------------------------------------------------
 */

/* The normal equations of one weighted least-squares problem, solved over non-negative unknowns by
 * descent along one at a time. */
static void descend(const struct probe *probe, int link, const double *times, const double *weights,
                    double price[UNKNOWNS]) {
    double matrix[UNKNOWNS][UNKNOWNS] = {{0}}, right[UNKNOWNS] = {0};
    for (int i = 0; i < probe->count; i++) {
        const struct equation *equation = &probe->equations[i];
        for (int a = 0; a < UNKNOWNS && equation->link == link; a++) {
            right[a] += weights[i] * equation->counts[a] * times[i];
            for (int b = 0; b < UNKNOWNS; b++)
                matrix[a][b] += weights[i] * equation->counts[a] * equation->counts[b];
        }
    }
    for (int turn = 0; turn < DESCENTS; turn++)
        for (int a = 0; a < UNKNOWNS; a++) {
            double rest = right[a];
            for (int b = 0; b < UNKNOWNS; b++)
                rest -= b == a ? 0 : matrix[a][b] * price[b];
            price[a] = matrix[a][a] > 0 && rest > 0 ? rest / matrix[a][a] : 0;
        }
}

static double priced(const struct equation *equation, const double price[UNKNOWNS]) {
    double sum = 0;
    for (int a = 0; a < UNKNOWNS; a++)
        sum += equation->counts[a] * price[a];
    return sum;
}

/* Makes the squares of log(price / time) least, by weights 1 / (price * time) of the turn before:
 * twice too much is as wrong as half. What is wrong by more than OUTLIER counts as if by that. */
static void solve(struct probe *probe, int link, const double *times) {
    double weights[MAX_EQUATIONS] = {0}, *price = probe->prices[link];
    for (int turn = 0; turn < REWEIGHTINGS; turn++) {
        for (int i = 0; i < probe->count; i++) {
            double sum = turn == 0 ? times[i] : priced(&probe->equations[i], price);
            double off = sum > times[i] ? sum / times[i] : times[i] / sum;
            if (times[i] > 0)
                weights[i] = 1 / ((sum > 0 ? sum : times[i]) * times[i]) *
                             (off > OUTLIER ? OUTLIER / off : 1);
        }
        descend(probe, link, times, weights, price);
    }
    for (int i = 0; i < probe->count; i++) {
        double sum = priced(&probe->equations[i], price);
        if (probe->equations[i].link != link || times[i] <= 0 || sum <= 0)
            continue;
        probe->used[link]++;
        probe->error[link] += (sum > times[i] ? sum / times[i] : times[i] / sum) - 1;
    }
}

static rota_status probe_solve(struct bench_session *session, struct probe *probe) {
    double times[MAX_EQUATIONS] = {0};
    double *all = calloc((size_t)session->nranks * MAX_EQUATIONS, sizeof(*all));
    if (!all)
        return ROTA_ERR_MEMORY;
    for (int i = 0; i < probe->count; i++)
        times[i] = probe->equations[i].taken > 0 ? equation_time(&probe->equations[i]) : 0;
    rota_status status = bench_session_gather(session, times, all, sizeof(times));
    for (int i = 0; i < probe->count && status == ROTA_OK; i++) {
        for (int r = 0; r < session->nranks; r++)
            times[i] =
                all[r * MAX_EQUATIONS + i] > times[i] ? all[r * MAX_EQUATIONS + i] : times[i];
    }
    for (int link = 0; link < ROTA_LINK_COUNT && status == ROTA_OK; link++)
        solve(probe, link, times);
    free(all);
    return status;
}

/* -- the file ----------------------------------------------------------------------------------
 */

static void placement_text(const struct bench_session *session, const struct probe *probe,
                           char text[128]) {
    snprintf(text, 128, "placement = ranks %d hosts %d crowding %.4g\n", session->nranks,
             probe->placement.hosts, probe->placement.crowding);
}

static bool was_measured(const struct probe *probe, const char *line) {
    for (int link = 0; link < ROTA_LINK_COUNT; link++) {
        size_t length = strlen(rota_link_name(link));
        if (probe->used[link] > 0 && strncmp(line, rota_link_name(link), length) == 0 &&
            line[length] == ' ')
            return true;
    }
    return false;
}

static void measured_write(FILE *file, const struct probe *probe) {
    for (int link = 0; link < ROTA_LINK_COUNT; link++)
        if (probe->used[link] > 0)
            fprintf(file,
                    "%s = latency_us %.4f overhead_us %.4f us_per_mib %.3f reduce_us_per_mib "
                    "%.3f\n",
                    rota_link_name(link), probe->prices[link][0], probe->prices[link][1],
                    probe->prices[link][2] * MIB, probe->prices[link][3] * MIB);
}

/* Copies the profile that was there, with this placement's lines renewed. */
static void profile_write(FILE *file, const struct bench_session *session,
                          const struct probe *probe, char *before) {
    char placement[128], *rest = NULL, head[256];
    bool here = false, written = false;
    placement_text(session, probe, placement);
    snprintf(head, sizeof(head), "rota_profile = 1\nmachine = %s\n", rota_machine_name());
    fputs(head, file);
    if (strncmp(before, head, strlen(head)) == 0) {
        for (char *line = strtok_r(before + strlen(head), "\n", &rest); line;
             line = strtok_r(NULL, "\n", &rest)) {
            if (strncmp(line, "placement ", 10) == 0)
                here =
                    strncmp(line, placement, strlen(line)) == 0 && placement[strlen(line)] == '\n';
            if (!here || !was_measured(probe, line))
                fprintf(file, "%s\n", line);
            if (here && strncmp(line, "placement ", 10) == 0) {
                measured_write(file, probe);
                written = true;
            }
        }
    }
    if (!written) {
        fputs(placement, file);
        measured_write(file, probe);
    }
}

/* Written beside the file and moved over it: a reader sees the old one or the new one. */
static int profile_save(const struct bench_session *session, const struct probe *probe,
                        const char *path) {
    static char before[MAX_FILE + 1];
    char beside[4200];
    FILE *old = fopen(path, "re");
    size_t length = old ? fread(before, 1, MAX_FILE, old) : 0;
    if (old)
        fclose(old);
    before[length] = '\0';
    snprintf(beside, sizeof(beside), "%.4095s.%d", path, (int)getpid());
    FILE *file = fopen(beside, "wxe");
    if (file)
        profile_write(file, session, probe, before);
    bool failed = !file || ferror(file);
    failed |= file && fclose(file) != 0;
    if (!failed && rename(beside, path) == 0)
        return 0;
    fprintf(stderr, BENCH_COMMAND ": --calibrate: cannot write %s: %m\n", path);
    if (file)
        unlink(beside);
    return 1;
}

static void probe_print(const struct bench_session *session, const struct probe *probe) {
    char placement[128];
    placement_text(session, probe, placement);
    printf("# %s# %-8s %12s %14s %12s %17s %7s %9s\n", placement, "link", "us a round",
           "us a message", "us a MiB", "us a MiB reduced", "calls", "mean off");
    for (int link = 0; link < ROTA_LINK_COUNT; link++)
        if (probe->used[link] > 0)
            printf("  %-8s %12.3f %14.3f %12.2f %17.2f %7d %8.0f%%\n", rota_link_name(link),
                   probe->prices[link][0], probe->prices[link][1], probe->prices[link][2] * MIB,
                   probe->prices[link][3] * MIB, probe->used[link],
                   100 * probe->error[link] / probe->used[link]);
    printf("# probe: %.0f ms; written to %s\n", probe->took_us / 1000, session->options->calibrate);
}

rota_status study_calibrate(struct bench_session *session) {
    struct probe *probe = calloc(1, sizeof(*probe));
    if (!probe)
        return ROTA_ERR_MEMORY;
    /* Joining is over, and native forms are up. */
    rota_status status = rota_barrier(session->comm, NULL);
    double began = study_now_us();
    if (status == ROTA_OK)
        status = equations_make(session, probe);
    if (status == ROTA_OK)
        status = equations_time(session, probe);
    probe->took_us = study_now_us() - began;
    if (status == ROTA_OK)
        status = probe_solve(session, probe);
    if (status)
        bench_session_report(session, "calibrate", status);
    if (status == ROTA_OK && session->rank == 0) {
        int failed = profile_save(session, probe, session->options->calibrate);
        session->wrong += (uint64_t)failed;
        if (!failed && session->options->table)
            probe_print(session, probe);
    }
    free(probe);
    return status;
}
