/* MSCCL's XML: what it becomes, what is refused and where, and that no bytes do harm. */
#include "base/error.h"
#include "schedule/text.h"
#include "schedule/verify.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *read_file(const char *name, size_t *length) {
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", SCHEDULE_FILES, name);
    FILE *file = fopen(path, "r");
    char *bytes = calloc(1, 1 << 17);
    cr_assert(file != NULL && bytes != NULL, "%s", path);
    *length = fread(bytes, 1, (1 << 17) - 1, file);
    fclose(file);
    return bytes;
}

/* In a block of exactly that size, so that reading past it is seen. */
static rota_status read_exact(const char *bytes, size_t length, struct sched_set *set) {
    char *exact = malloc(length + 1);
    cr_assert_not_null(exact);
    memmove(exact + 1, bytes, length);
    rota_status status = sched_read(exact + 1, length, set);
    free(exact);
    return status;
}

/* The file with the first `from` replaced. */
static char *replaced(const char *bytes, const char *from, const char *to) {
    const char *at = strstr(bytes, from);
    cr_assert_not_null(at, "%s", from);
    char *text = malloc(strlen(bytes) + strlen(to) + 1);
    cr_assert_not_null(text);
    sprintf(text, "%.*s%s%s", (int)(at - bytes), bytes, to, at + strlen(from));
    return text;
}

static enum sched_fault fault_of(const char *bytes) {
    struct sched_set set;
    struct sched_verdict verdict;
    cr_assert_eq(read_exact(bytes, strlen(bytes), &set), ROTA_OK, "%s", error_record()->message);
    cr_assert_eq(sched_verify(set.schedules, set.count, NULL, &verdict), ROTA_OK);
    sched_set_free(&set);
    return verdict.fault;
}

Test(msccl, files_are_proven) {
    static const char *const names[] = {"dgx1_allgather.xml", "dgx1_allreduce.xml",
                                        "pairs_alltoall.xml", "pairs_reduce_scatter.xml"};
    for (int i = 0; i < 4; i++) {
        size_t length;
        char *bytes = read_file(names[i], &length);
        cr_expect_eq(fault_of(bytes), SCHED_FAULT_NONE, "%s", names[i]);
        free(bytes);
    }
}

/* Where the file forgets what orders two steps, no order is made up for it. */
Test(msccl, missing_dependency_is_a_race) {
    size_t length;
    char *bytes = read_file("dgx1_allgather.xml", &length);
    char *wrong = replaced(bytes, "depid=\"3\" deps=\"1\"", "depid=\"3\" deps=\"0\"");
    struct sched_set set;
    rota_status status = read_exact(wrong, strlen(wrong), &set);
    /* Either way of looking at it: the chunk is not there yet, or nothing says that it is. */
    if (status == ROTA_OK) {
        struct sched_verdict verdict;
        cr_assert_eq(sched_verify(set.schedules, set.count, NULL, &verdict), ROTA_OK);
        cr_expect_eq(verdict.fault, SCHED_FAULT_RACE);
        sched_set_free(&set);
    } else {
        cr_expect_eq(status, ROTA_ERR_FORMAT);
        cr_expect(strstr(error_record()->message, "nothing was written"));
    }
    free(wrong);
    free(bytes);

    bytes = read_file("pairs_reduce_scatter.xml", &length);
    wrong = replaced(bytes, "depid=\"0\" deps=\"1\"", "depid=\"1\" deps=\"1\"");
    status = read_exact(wrong, strlen(wrong), &set);
    if (status == ROTA_OK) {
        struct sched_verdict verdict;
        cr_assert_eq(sched_verify(set.schedules, set.count, NULL, &verdict), ROTA_OK);
        cr_expect_eq(verdict.fault, SCHED_FAULT_RACE);
        sched_set_free(&set);
    } else {
        cr_expect(strstr(error_record()->message, "nothing was written"));
    }
    free(wrong);
    free(bytes);
}

Test(msccl, wrong_algorithms_are_refuted) {
    size_t length;
    char *bytes = read_file("pairs_alltoall.xml", &length);
    char *wrong = replaced(bytes, "srcoff=\"2\" dstbuf=\"o\" dstoff=\"0\"",
                           "srcoff=\"4\" dstbuf=\"o\" dstoff=\"0\""); /* another's block */
    cr_expect_eq(fault_of(wrong), SCHED_FAULT_CONTRIBUTION);
    free(wrong);
    wrong = replaced(bytes, "type=\"cpy\" srcbuf=\"i\"", "type=\"nop\" srcbuf=\"i\"");
    cr_expect_eq(fault_of(wrong), SCHED_FAULT_OUTPUT_MISSING);
    free(wrong);
    free(bytes);
}

Test(msccl, refusals_name_the_line) {
    static const struct {
        const char *from, *to, *expected;
    } cases[] = {
        {"ngpus=\"4\"", "ngpus=\"0\"", "ngpus"},
        {"ngpus=\"4\"", "ngpus=\"3\"", "nchunksperloop"},
        {"ngpus=\"4\"", "ngpus=\"2\"", "send"},
        {"ngpus=\"4\"", "ngpus=\"8\"", "expected 8 gpus"},
        {"ngpus=\"4\"", "ngpus=\"99999999999999999999\"", "ngpus"},
        {"ngpus=\"4\"", "", "ngpus"},
        {"coll=\"alltoall\"", "coll=\"broadcast\"", "coll"},
        {"inplace=\"0\"", "inplace=\"2\"", "inplace"},
        {"<gpu id=\"1\"", "<gpu id=\"2\"", "expected gpu 1"},
        {"s_chunks=\"0\"", "s_chunks=\"-1\"", "s_chunks"},
        {"<tb id=\"1\"", "<tb id=\"7\"", "expected tb 1"},
        {"send=\"1\"", "send=\"0\"", "other gpus"},
        {"send=\"1\"", "send=\"4\"", "send"},
        {"send=\"1\"", "send=\"-1\"", "without send"},
        {"recv=\"1\"", "recv=\"-1\"", "no tb receives"},
        {"chan=\"0\"", "chan=\"1\"", "no tb receives"},
        {"<step s=\"1\"", "<step s=\"3\"", "expected step 1"},
        {"type=\"s\"", "type=\"x\"", "type"},
        {"srcbuf=\"i\"", "srcbuf=\"input\"", "srcbuf"},
        {"srcoff=\"2\"", "srcoff=\"7\"", "outside"},
        {"srcoff=\"2\"", "srcoff=\"-1\"", "outside"},
        {"srcoff=\"2\"", "srcoff=\"2x\"", "srcoff"},
        {"cnt=\"2\"", "cnt=\"0\"", "cnt"},
        {"depid=\"-1\"", "depid=\"9\"", "does not exist"},
        {"depid=\"-1\" deps=\"-1\"", "depid=\"0\" deps=\"1\"", "deadlock"},
        {"type=\"s\" srcbuf=\"i\"", "type=\"s\" srcbuf=\"o\"", "nothing was written"},
        {"type=\"r\"", "type=\"rrc\"", "only moves"},
        {"<step s=\"0\"", "<stop s=\"0\"", "expected step"},
        {"<algo", "<!DOCTYPE algo [<!ENTITY a \"b\">]><algo", "document type"},
        {"</algo>", "", "line"},
    };
    size_t length;
    char *bytes = read_file("pairs_alltoall.xml", &length);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct sched_set set;
        char *wrong = replaced(bytes, cases[i].from, cases[i].to);
        cr_expect_eq(read_exact(wrong, strlen(wrong), &set), ROTA_ERR_FORMAT, "case %zu: %s", i,
                     cases[i].to);
        cr_expect(strstr(error_record()->message, cases[i].expected) &&
                      strstr(error_record()->message, "line "),
                  "case %zu (%s): %s", i, cases[i].to, error_record()->message);
        free(wrong);
    }
    free(bytes);
}

/* Cut anywhere, or with any digit or letter changed: read or refused, and what is read verified. */
Test(msccl, no_bytes_do_harm) {
    size_t length;
    char *bytes = read_file("pairs_reduce_scatter.xml", &length);
    struct sched_set set;
    for (size_t cut = 1; cut < length - 2; cut += 7)
        cr_assert_eq(read_exact(bytes, cut, &set), ROTA_ERR_FORMAT, "cut at %zu", cut);
    uint32_t seed = 12345;
    int proven = 0, refuted = 0, refused = 0;
    for (int round = 0; round < 3000; round++) {
        static const char alphabet[] = "0123456789-ios";
        seed = seed * 1664525u + 1013904223u;
        size_t at = strcspn(bytes, "\n") + (seed >> 8) % (length - 400);
        while (at < length && (bytes[at] < '0' || bytes[at] > '9'))
            at++;
        char kept = bytes[at];
        bytes[at] = alphabet[seed % (sizeof(alphabet) - 1)];
        rota_status status = read_exact(bytes, length, &set);
        cr_assert(status == ROTA_OK || status == ROTA_ERR_FORMAT);
        refused += status != ROTA_OK;
        if (status == ROTA_OK) {
            struct sched_verdict verdict;
            cr_assert_eq(sched_verify(set.schedules, set.count, NULL, &verdict), ROTA_OK);
            *(verdict.fault == SCHED_FAULT_NONE ? &proven : &refuted) += 1;
            sched_set_free(&set);
        }
        bytes[at] = kept;
    }
    cr_expect(proven > 10 && refuted > 10 && refused > 10, "%d %d %d", proven, refuted, refused);
    free(bytes);
}
