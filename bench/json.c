/* One JSON object per row, in the form that other libraries' benches write: the main fields are
 * those of the out-of-place call, the in-place one stands in an object of its own. */
#include "bench/session.h"

#include <jansson.h>
#include <string.h>
#include <time.h>

#define JSON_DIGITS 6

/* The transport that carried most between two looks at the counters; "self" when none did. */
static const char *transport_of(const rota_counters *before, const rota_counters *after) {
    const char *name = "self";
    uint64_t most = 0;
    for (int i = 0; i < after->transport_count && i < ROTA_COUNTERS_MAX_TRANSPORTS; i++) {
        const rota_transport_counters *t = &after->transports[i], *b = NULL;
        for (int k = 0; k < before->transport_count && k < ROTA_COUNTERS_MAX_TRANSPORTS; k++)
            if (strcmp(before->transports[k].name, t->name) == 0)
                b = &before->transports[k];
        uint64_t moved = t->bytes_sent + t->bytes_received + t->messages_sent +
                         t->messages_received + t->native_calls;
        if (b)
            moved -= b->bytes_sent + b->bytes_received + b->messages_sent + b->messages_received +
                     b->native_calls;
        if (moved > most && strcmp(t->name, "self") != 0) {
            most = moved;
            name = t->name;
        }
    }
    return name;
}

static void times_set(json_t *object, const struct bench_case *row, const struct bench_half *half) {
    const struct bench_times *times = &half->times;
    double algbw = times->median > 0 ? (double)row->size / times->median * 1e-3 : 0;
    json_object_set_new(object, "t_min_us", json_real(times->minimum));
    json_object_set_new(object, "t_med_us", json_real(times->median));
    json_object_set_new(object, "t_p95_us", json_real(times->p95));
    json_object_set_new(object, "t_mean_us", json_real(times->mean));
    json_object_set_new(object, "algbw_GBps", json_real(algbw));
    json_object_set_new(object, "busbw_GBps", json_real(algbw * bench_case_factor(row)));
    json_object_set_new(object, "samples", json_integer((json_int_t)times->samples));
    json_object_set_new(object, "batch", json_integer((json_int_t)times->batch));
    if (half->checked)
        json_object_set_new(object, "wrong", json_integer((json_int_t)half->wrong));
}

static json_t *hash_text(uint64_t hash) {
    char text[17];
    snprintf(text, sizeof(text), "%016llx", (unsigned long long)hash);
    return json_string(text);
}

static json_t *row_describe(const struct bench_case *row, const char *transport,
                            const char *algorithm) {
    bool barrier = row->operation->shape == BENCH_BARRIER;
    char mode[32] = "", origin[64];
    rota_setting_value("ROTA_MODE", mode, sizeof(mode), origin, sizeof(origin));
    return json_pack("{s:s, s:s, s:s, s:s, s:i, s:s, s:s, s:i, s:I, s:I, s:I, s:s, s:s}", "peer",
                     "rota", "version", rota_version(), "transport", transport, "op",
                     row->operation->name, "ranks", row->nranks, "dtype",
                     barrier ? "float32" : rota_dtype_name(row->dtype), "redop",
                     bench_case_op_name(row), "root", row->root, "bytes", (json_int_t)row->bytes,
                     "actual_bytes", (json_int_t)row->size, "count", (json_int_t)row->count,
                     "algorithm", algorithm, "mode", mode);
}

void bench_json_row(struct bench_session *session, const struct bench_case *row,
                    const struct bench_half halves[2], const rota_counters *before,
                    const rota_counters *after) {
    if (!session->json)
        return;
    json_t *object = row_describe(row, transport_of(before, after), after->last_algorithm);
    if (!object) {
        fprintf(stderr, BENCH_COMMAND ": no memory for a line of JSON\n");
        return;
    }
    times_set(object, row, &halves[0]);
    if (halves[1].timed) {
        json_t *in_place = json_object();
        times_set(in_place, row, &halves[1]);
        if (session->options->hash)
            json_object_set_new(in_place, "hash", hash_text(halves[1].hash));
        json_object_set_new(object, "in_place", in_place);
    }
    if (session->options->hash)
        json_object_set_new(object, "hash", hash_text(halves[0].hash));
    if (halves[0].checked)
        json_object_set_new(object, "correct",
                            json_boolean(halves[0].wrong == 0 && halves[1].wrong == 0));
    else
        json_object_set_new(object, "correct", json_null());
    json_object_set_new(object, "time", json_integer((json_int_t)time(NULL)));
    json_dumpf(object, session->json, JSON_COMPACT | JSON_REAL_PRECISION(JSON_DIGITS));
    fputc('\n', session->json);
    fflush(session->json);
    json_decref(object);
}
