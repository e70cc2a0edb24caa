/* Error records: what raising sets, keeps and cuts. */
#include "base/error.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static rota_error last_error(void) {
    rota_error error = ROTA_ERROR_INIT;
    cr_assert_eq(rota_last_error(&error), ROTA_OK);
    return error;
}

Test(error, starts_empty) {
    rota_error error = last_error();
    cr_assert_eq(error.status, ROTA_OK);
    cr_assert_eq(error.peer, -1);
    cr_assert_eq(error.kind, -1);
    cr_assert_eq(error.culprit_count, 0);
    cr_assert_str_eq(error.message, "");
}

Test(error, raise_fills_and_starts_afresh) {
    errno = EBADF;
    cr_assert_eq(error_raise(ROTA_ERR_MISMATCH, "rank %d called %s", 3, "all_gather"),
                 ROTA_ERR_MISMATCH);
    cr_assert_eq(errno, EBADF);
    error_record()->peer = 3;
    error_record()->sequence = UINT64_C(1) << 40;
    error_add_culprit(error_record(), 3);
    rota_error error = last_error();
    cr_assert_eq(error.status, ROTA_ERR_MISMATCH);
    cr_assert_eq(error.peer, 3);
    cr_assert_eq(error.sequence, UINT64_C(1) << 40);
    cr_assert_eq(error.culprits[0], 3);
    cr_assert_str_eq(error.message, "rank 3 called all_gather");

    error_raise(ROTA_ERR_STATE, "second");
    error = last_error();
    cr_assert_eq(error.peer, -1);
    cr_assert_eq(error.sequence, 0);
    cr_assert_eq(error.culprit_count, 0);
    cr_assert_str_eq(error.message, "second");
    error_clear();
    cr_assert_eq(last_error().status, ROTA_OK);
}

Test(error, raise_may_quote_the_record_it_replaces) {
    error_raise(ROTA_ERR_SYSTEM, "inner");
    error_raise(ROTA_ERR_PEER, "outer: %s", error_record()->message);
    cr_assert_str_eq(last_error().message, "outer: inner");
}

Test(error, system_error_appends_the_reason) {
    errno = EINTR;
    cr_assert_eq(error_raise_system(ENOENT, "cannot open %s", "x"), ROTA_ERR_SYSTEM);
    cr_assert_eq(errno, EINTR);
    rota_error error = last_error();
    cr_assert_eq(error.status, ROTA_ERR_SYSTEM);
    cr_assert_eq(error.system_error, ENOENT);
    cr_assert_str_eq(error.message, "cannot open x: No such file or directory");
    error_raise_system(999999, "odd");
    cr_assert_eq(last_error().system_error, 999999);
    cr_assert(strncmp(last_error().message, "odd: ", 5) == 0);
}

Test(error, long_messages_are_cut_and_say_so) {
    char text[4096];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    error_raise(ROTA_ERR_FORMAT, "%s", text);
    rota_error error = last_error();
    cr_assert_eq(strlen(error.message), ROTA_ERROR_MAX_MESSAGE - 1);
    cr_assert_str_eq(error.message + ROTA_ERROR_MAX_MESSAGE - 5, "x...");
    /* The reason outlives a long text. */
    error_raise_system(EACCES, "%s", text);
    error = last_error();
    const char *tail = "x...: Permission denied";
    size_t length = strlen(error.message);
    cr_assert_lt(length, (size_t)ROTA_ERROR_MAX_MESSAGE);
    cr_assert_str_eq(error.message + length - strlen(tail), tail);
}

Test(error, exactly_fitting_message_is_whole) {
    char text[ROTA_ERROR_MAX_MESSAGE];
    memset(text, 'y', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    error_raise(ROTA_ERR_FORMAT, "%s", text);
    cr_assert_str_eq(last_error().message, text);
}

Test(error, culprits_are_distinct_and_bounded) {
    error_raise(ROTA_ERR_TIMEOUT, "late");
    for (int round = 0; round < 2; round++)
        for (int rank = 0; rank < 100; rank++)
            error_add_culprit(error_record(), rank);
    rota_error error = last_error();
    cr_assert_eq(error.culprit_count, ROTA_ERROR_MAX_CULPRITS);
    for (int i = 0; i < ROTA_ERROR_MAX_CULPRITS; i++)
        cr_assert_eq(error.culprits[i], i);
}

Test(error, copy_respects_the_callers_size) {
    error_raise(ROTA_ERR_PEER, "gone");
    error_record()->peer = 7;
    rota_error error;
    memset(&error, 0x5a, sizeof(error));
    error.size = offsetof(rota_error, culprit_count);
    cr_assert_eq(rota_last_error(&error), ROTA_OK);
    cr_assert_eq(error.status, ROTA_ERR_PEER);
    cr_assert_eq(error.peer, 7);
    cr_assert_eq(error.culprit_count, 0x5a5a5a5a, "written beyond the caller's size");
    cr_assert_eq(error.size, offsetof(rota_error, culprit_count), "the size is the caller's");

    const size_t refused[] = {0, 1, sizeof(size_t), offsetof(rota_error, peer) - 1};
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        error.size = refused[i];
        cr_assert_eq(rota_last_error(&error), ROTA_ERR_ARGUMENT);
    }
    cr_assert_eq(rota_last_error(NULL), ROTA_ERR_ARGUMENT);

    /* A caller built against a later version has a longer record. */
    struct {
        rota_error error;
        char later[64];
    } longer;
    memset(&longer, 0x5a, sizeof(longer));
    longer.error.size = sizeof(longer);
    cr_assert_eq(rota_last_error(&longer.error), ROTA_OK);
    cr_assert_str_eq(longer.error.message, "gone");
    cr_assert_eq(longer.later[0], 0x5a);
}

static void *raise_elsewhere(void *unused) {
    (void)unused;
    error_raise(ROTA_ERR_MEMORY, "other thread");
    return NULL;
}

Test(error, records_belong_to_threads) {
    error_raise(ROTA_ERR_BUSY, "this thread");
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, raise_elsewhere, NULL), 0);
    pthread_join(thread, NULL);
    cr_assert_eq(last_error().status, ROTA_ERR_BUSY);
    cr_assert_str_eq(last_error().message, "this thread");
}

Test(error, every_status_has_its_own_name) {
    for (int a = 0; a <= ROTA_ERR_REVOKED; a++) {
        cr_assert_str_neq(rota_status_name((rota_status)a), "unknown");
        for (int b = 0; b < a; b++)
            cr_assert_str_neq(rota_status_name((rota_status)a), rota_status_name((rota_status)b));
    }
    cr_assert_str_eq(rota_status_name(ROTA_ERR_TIMEOUT), "timeout");
    cr_assert_str_eq(rota_status_name((rota_status)(ROTA_ERR_REVOKED + 1)), "unknown");
    cr_assert_str_eq(rota_status_name((rota_status)-1), "unknown");
}

Test(error, version_is_three_numbers) {
    unsigned a, b, c;
    char end;
    cr_assert_eq(sscanf(rota_version(), "%u.%u.%u%c", &a, &b, &c, &end), 3);
}
