/* What the functions of schedules refuse. */
#include "pair.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const rota_schedule *const untouched = (const rota_schedule *)&untouched;

static rota_schedule *built(void) {
    rota_schedule *schedule = NULL;
    cr_assert_eq(rota_schedule_build("ring", ROTA_KIND_ALL_REDUCE, 3, -1, 0, &schedule), ROTA_OK);
    return schedule;
}

Test(arguments, rota_schedule_build) {
    rota_schedule *schedule = (rota_schedule *)(uintptr_t)untouched;
    rota_kind kind = ROTA_KIND_ALL_REDUCE;
    REFUSED(rota_schedule_build(NULL, kind, 3, -1, 0, &schedule), ROTA_ERR_ARGUMENT, NULL, "name");
    REFUSED(rota_schedule_build("ring", kind, 3, -1, 0, NULL), ROTA_ERR_ARGUMENT, NULL, "schedule");
    REFUSED(rota_schedule_build("luck", kind, 3, -1, 0, &schedule), ROTA_ERR_ARGUMENT, NULL,
            "luck");
    REFUSED(rota_schedule_build("ring", kind, 0, -1, 0, &schedule), ROTA_ERR_ARGUMENT, NULL,
            "rank");
    REFUSED(rota_schedule_build("ring", kind, -4, -1, 0, &schedule), ROTA_ERR_ARGUMENT, NULL,
            "rank");
    REFUSED(rota_schedule_build("ring", kind, 3, -1, 3, &schedule), ROTA_ERR_ARGUMENT, NULL,
            "in_place");
    REFUSED(rota_schedule_build("ring", kind, 3, -1, -1, &schedule), ROTA_ERR_ARGUMENT, NULL,
            "in_place");
    REFUSED(rota_schedule_build("ring", kind, 3, 0, 0, &schedule), ROTA_ERR_ARGUMENT, NULL, "root");
    REFUSED(rota_schedule_build("ring", (rota_kind)55, 3, -1, 0, &schedule), ROTA_ERR_UNSUPPORTED,
            NULL, "ring");
    REFUSED(rota_schedule_build("ring", ROTA_KIND_SEND, 3, -1, 0, &schedule), ROTA_ERR_UNSUPPORTED,
            NULL, "ring");
    static const int roots[] = {-1, 3, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof(roots) / sizeof(roots[0]); i++)
        REFUSED(rota_schedule_build("binomial", ROTA_KIND_BROADCAST, 3, roots[i], 0, &schedule),
                ROTA_ERR_ARGUMENT, NULL, "root");
    cr_assert_eq(schedule, untouched);
}

Test(arguments, rota_schedule_read) {
    rota_schedule *schedule = (rota_schedule *)(uintptr_t)untouched;
    REFUSED(rota_schedule_read(NULL, 4, &schedule), ROTA_ERR_ARGUMENT, NULL, "bytes");
    REFUSED(rota_schedule_read("abcd", 4, NULL), ROTA_ERR_ARGUMENT, NULL, "schedule");
    REFUSED(rota_schedule_read("abcd\n", 5, &schedule), ROTA_ERR_FORMAT, NULL, "1");
    cr_assert_eq(rota_schedule_read("", 0, &schedule), ROTA_ERR_FORMAT);
    cr_assert_eq(rota_schedule_read("{\"a\":", 5, &schedule), ROTA_ERR_FORMAT);
    cr_assert_eq(rota_schedule_read("[]", 2, &schedule), ROTA_ERR_FORMAT);
    cr_assert_eq(schedule, untouched);
}

Test(arguments, rota_schedule_write) {
    rota_schedule *schedule = built();
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    REFUSED(rota_schedule_write(NULL, -1, ROTA_FORMAT_TEXT, out), ROTA_ERR_ARGUMENT, NULL,
            "schedule");
    REFUSED(rota_schedule_write(schedule, -1, ROTA_FORMAT_TEXT, NULL), ROTA_ERR_ARGUMENT, NULL,
            "file");
    REFUSED(rota_schedule_write(schedule, -1, (rota_format)7, out), ROTA_ERR_ARGUMENT, NULL,
            "format");
    REFUSED(rota_schedule_write(schedule, 3, ROTA_FORMAT_TEXT, out), ROTA_ERR_ARGUMENT, NULL,
            "rank 3");
    fflush(out);
    cr_assert_eq(size, 0, "a refused call wrote");
    FILE *full = fopen("/dev/full", "w");
    cr_assert_eq(rota_schedule_write(schedule, -1, ROTA_FORMAT_JSON, full), ROTA_ERR_SYSTEM);
    fclose(full);
    cr_assert_eq(rota_schedule_write(schedule, 1, ROTA_FORMAT_TEXT, out), ROTA_OK);
    fclose(out);
    cr_assert(size > 0);
    free(text);
    rota_schedule_free(schedule);
}

Test(arguments, rota_schedule_verify) {
    rota_schedule *schedule = built();
    rota_verdict verdict = ROTA_VERDICT_INIT;
    REFUSED(rota_schedule_verify(NULL, &verdict), ROTA_ERR_ARGUMENT, NULL, "schedule");
    REFUSED(rota_schedule_verify(schedule, NULL), ROTA_ERR_ARGUMENT, NULL, "verdict");
    size_t at_first = offsetof(rota_verdict, same_in_fast);
    verdict.size = at_first - 1;
    REFUSED(rota_schedule_verify(schedule, &verdict), ROTA_ERR_ARGUMENT, NULL, "verdict");
    cr_assert_not(verdict.proven);
    /* A program that was built when it ended earlier. */
    verdict.size = at_first;
    verdict.fast_roundings = 77;
    cr_assert_eq(rota_schedule_verify(schedule, &verdict), ROTA_OK);
    cr_assert(verdict.proven && verdict.fast_roundings == 77);
    verdict.size = sizeof(verdict);
    cr_assert_eq(rota_schedule_verify(schedule, &verdict), ROTA_OK);
    cr_assert(verdict.proven, "%s", verdict.text);
    rota_schedule_free(schedule);
    rota_schedule_free(NULL);
}
