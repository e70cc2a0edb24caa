/* Pictures: bus bandwidth and time over size, one pair of panels per operation, as SVG by gnuplot.
 *
 * A series is what one peer measured over one transport; those of other files are taken where
 * operation, number of ranks and element type are ours. The floor is one memcpy of the buffer by
 * one core, measured when the picture is drawn: an operation whose ranks get new data writes at
 * least that. */
#include "bench/plot.h"

#include "bench/study.h"
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAME 40
#define MAX_POINTS 100000
#define COPIES 5
#define PANEL_HEIGHT 420

struct plot_point {
    char series[NAME], op[NAME];
    double bytes, us, busbw;
};

struct plot {
    struct plot_point *points;
    size_t count, room;
};

bool bench_plot_possible(void) {
    const char *path = getenv("PATH");
    char file[4096];
    for (const char *at = path; at && *at; at += strcspn(at, ":"), at += *at == ':') {
        int length = (int)strcspn(at, ":");
        snprintf(file, sizeof(file), "%.*s/gnuplot", length, at);
        if (access(file, X_OK) == 0)
            return true;
    }
    return false;
}

/* Names go into gnuplot's quotes: only harmless letters. */
static void name_copy(char name[NAME], const char *text) {
    static const char good[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 _.+-()";
    size_t i = 0;
    for (; text[i] && i + 1 < NAME; i++)
        name[i] = strchr(good, text[i]) ? text[i] : '-';
    name[i] = '\0';
}

static void point_add(struct plot *plot, const char *series, const char *op, double bytes,
                      double us, double busbw) {
    if (plot->count == plot->room) {
        size_t room = plot->room ? 2 * plot->room : 64;
        struct plot_point *points = realloc(plot->points, room * sizeof(*points));
        if (!points || room > 2 * MAX_POINTS)
            return;
        plot->points = points;
        plot->room = room;
    }
    struct plot_point *point = &plot->points[plot->count++];
    name_copy(point->series, series);
    name_copy(point->op, op);
    point->bytes = bytes;
    point->us = us;
    point->busbw = busbw;
}

static double floor_us(size_t bytes) {
    unsigned char *from = malloc(bytes + 1), *to = malloc(bytes + 1);
    double least = 0;
    for (int i = 0; from && to && i < COPIES; i++) {
        memset(from, i, bytes);
        double began = study_now_us();
        memcpy(to, from, bytes);
        __asm__ volatile("" : : "r"(to) : "memory");
        double us = study_now_us() - began;
        least = i == 0 || us < least ? us : least;
    }
    free(from);
    free(to);
    return least;
}

void bench_plot_add(struct bench_session *session, const struct bench_case *row,
                    const struct bench_half *half) {
    if (!session->options->plot || session->rank != 0 || !half->timed || row->size == 0)
        return;
    if (!session->plot)
        session->plot = calloc(1, sizeof(*session->plot));
    if (!session->plot)
        return;
    double us = half->times.median, size = (double)row->size, floor = floor_us(row->size);
    double factor = bench_case_factor(row) * size * 1e-3;
    char series[NAME];
    snprintf(series, sizeof(series), "rota %s", row->algorithm ? row->algorithm : "");
    if (us > 0)
        point_add(session->plot, series, row->operation->name, size, us, factor / us);
    if (floor > 0)
        point_add(session->plot, "floor (memcpy)", row->operation->name, size, floor,
                  factor / floor);
}

/* -- lines of others ---------------------------------------------------------------------------
 */

static bool same_type(const char *name, rota_dtype dtype) {
    rota_dtype theirs;
    return name && rota_dtype_parse(name, &theirs) == ROTA_OK && theirs == dtype;
}

static void line_take(struct bench_session *session, const json_t *line) {
    const char *peer = json_string_value(json_object_get(line, "peer"));
    const char *op = json_string_value(json_object_get(line, "op"));
    const char *transport = json_string_value(json_object_get(line, "transport"));
    const char *dtype = json_string_value(json_object_get(line, "dtype"));
    json_t *bytes = json_object_get(line, "bytes"), *us = json_object_get(line, "t_med_us");
    json_t *busbw = json_object_get(line, "busbw_GBps"), *ranks = json_object_get(line, "ranks");
    if (!peer || !op || !json_is_number(bytes) || !json_is_number(us) || !json_is_number(busbw) ||
        !json_is_number(ranks) || json_number_value(ranks) != session->nranks ||
        !same_type(dtype, session->options->dtypes[0]) || json_number_value(bytes) <= 0 ||
        json_number_value(us) <= 0)
        return;
    if (session->options->transport && transport &&
        strcmp(transport, session->options->transport) != 0)
        return;
    const struct bench_operation *operation = bench_operation_find(op);
    if (strcmp(op, "allreduce") == 0)
        operation = bench_operation_find("all_reduce");
    char series[NAME];
    snprintf(series, sizeof(series), "%.24s %.12s", peer, transport ? transport : "");
    bool measured = false;
    for (int i = 0; i < session->options->operation_count && operation; i++)
        measured |= session->options->operations[i] == operation;
    if (measured && session->plot->count < MAX_POINTS)
        point_add(session->plot, series, operation->name, json_number_value(bytes),
                  json_number_value(us), json_number_value(busbw));
}

static bool overlay_read(struct bench_session *session, const char *path) {
    char *line = NULL;
    size_t room = 0;
    FILE *file = fopen(path, "re");
    if (!file) {
        fprintf(stderr, BENCH_COMMAND ": --overlay: %s: %m\n", path);
        return false;
    }
    while (getline(&line, &room, file) >= 0) {
        json_t *object = json_loads(line, 0, NULL);
        if (json_is_object(object))
            line_take(session, object);
        json_decref(object);
    }
    free(line);
    fclose(file);
    return true;
}

/* -- drawing -----------------------------------------------------------------------------------
 */

static int by_place(const void *left, const void *right) {
    const struct plot_point *a = left, *b = right;
    int order = strcmp(a->op, b->op);
    order = order ? order : strcmp(a->series, b->series);
    order = order ? order : (a->bytes > b->bytes) - (a->bytes < b->bytes);
    return order ? order : (a->us > b->us) - (a->us < b->us);
}

static bool begins(const struct plot *plot, size_t i, bool op) {
    const struct plot_point *a = &plot->points[i], *b = a - 1;
    return i == 0 || strcmp(a->op, b->op) != 0 || (!op && strcmp(a->series, b->series) != 0);
}

/* The data of each series as a named block, $d0 and on. */
static int data_write(FILE *out, const struct plot *plot, int *ops) {
    int series = -1;
    *ops = 0;
    for (size_t i = 0; i < plot->count; i++) {
        const struct plot_point *point = &plot->points[i];
        if (begins(plot, i, false))
            fprintf(out, "%s$d%d << EOD\n", i ? "EOD\n" : "", ++series);
        *ops += begins(plot, i, true);
        /* Of several repetitions the fastest, which comes first. */
        if (begins(plot, i, false) || point->bytes != point[-1].bytes)
            fprintf(out, "%.0f %g %g\n", point->bytes, point->us, point->busbw);
    }
    fprintf(out, "EOD\n");
    return series + 1;
}

/* One panel of the operation whose points begin at `first` and whose first series is `series`. */
static void panel_write(FILE *out, const struct plot *plot, size_t first, int series,
                        const char *label, int column) {
    fprintf(out, "set title \"%s\"\nset ylabel \"%s\"\nplot ", plot->points[first].op, label);
    for (size_t i = first; i < plot->count && (i == first || !begins(plot, i, true)); i++) {
        if (!begins(plot, i, false))
            continue;
        bool ours = strncmp(plot->points[i].series, "rota", 4) == 0;
        bool floor = strncmp(plot->points[i].series, "floor", 5) == 0;
        fprintf(out, "%s$d%d using 1:%d with linespoints lw %d %s title \"%s\"",
                i == first ? "" : ", ", series++, column, ours ? 3 : 1,
                floor ? "dt 2 lc rgb \"gray\" pt 0" : "", plot->points[i].series);
    }
    fprintf(out, "\n");
}

static void script_write(FILE *out, struct bench_session *session) {
    const struct plot *plot = session->plot;
    int ops, series = 0;
    qsort(plot->points, plot->count, sizeof(plot->points[0]), by_place);
    data_write(out, plot, &ops);
    fprintf(out,
            "set terminal svg noenhanced size 1200,%d font \"sans,11\"\n"
            "set multiplot layout %d,2 title \"%d ranks, %s, median\"\n"
            "set logscale xy\nset grid\nset key left top font \",9\"\nset xlabel \"bytes\"\n"
            "set format x \"%%.0s%%c\"\n",
            PANEL_HEIGHT * ops, ops, session->nranks, rota_dtype_name(session->options->dtypes[0]));
    for (size_t i = 0; i < plot->count; i++) {
        if (begins(plot, i, true)) {
            panel_write(out, plot, i, series, "bus bandwidth, GB/s", 3);
            panel_write(out, plot, i, series, "time, us", 2);
        }
        series += begins(plot, i, false);
    }
    fprintf(out, "unset multiplot\n");
}

static bool gnuplot_run(const char *script, int svg) {
    pid_t child = fork();
    if (child == 0) {
        if (dup2(svg, STDOUT_FILENO) >= 0)
            execlp("gnuplot", "gnuplot", script, (char *)NULL);
        _exit(127);
    }
    int status = 1;
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return child > 0 && status == 0;
}

bool bench_plot_write(struct bench_session *session) {
    const struct bench_options *options = session->options;
    char script[] = "/tmp/rota-plot-XXXXXX";
    bool done = session->plot != NULL && session->plot->count > 0;
    for (int i = 0; i < options->overlay_count && done; i++)
        done = overlay_read(session, options->overlays[i]);
    int fd = done ? mkostemp(script, O_CLOEXEC) : -1;
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    int svg = file ? open(options->plot, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666) : -1;
    if (file)
        script_write(file, session);
    done = svg >= 0 && !ferror(file);
    done &= file && fclose(file) == 0;
    done = done && gnuplot_run(script, svg);
    if (svg >= 0)
        done &= close(svg) == 0;
    if (fd >= 0)
        unlink(script);
    if (!done)
        fprintf(stderr, BENCH_COMMAND ": --plot: the picture could not be drawn\n");
    return done;
}

void bench_plot_free(struct bench_session *session) {
    if (session->plot)
        free(session->plot->points);
    free(session->plot);
    session->plot = NULL;
}
