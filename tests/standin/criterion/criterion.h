/* Stands in for Criterion under emulation, where that cannot start its own program a second time:
 * the part of it that our tests use. Each test runs in a forked child. */
#ifndef STANDIN_CRITERION_H
#define STANDIN_CRITERION_H

#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct standin_options {
    void (*init)(void), (*fini)(void);
    int signal, exit_code; /* how the test must end */
    double timeout;        /* seconds */
    bool disabled;
    const char *description;
};

struct standin_test {
    const char *suite, *name; /* name NULL: options for the whole suite */
    void (*run)(void);
    struct standin_options options;
    struct standin_test *next;
};

void standin_add(struct standin_test *test);
/* Prints and, unless it is only an expectation, ends the test when `holds` is false. */
void standin_check(bool fatal, bool holds, const char *file, int line, const char *what,
                   const char *format, ...);
_Noreturn void standin_skip(void);

#define STANDIN_ADD(record, ...)                                                                   \
    static struct standin_test record = __VA_ARGS__;                                               \
    __attribute__((constructor)) static void record##_add(void) {                                  \
        standin_add(&record);                                                                      \
    }
#define Test(suite_, name_, ...)                                                                   \
    static void suite_##_##name_##_run(void);                                                      \
    STANDIN_ADD(suite_##_##name_##_test, {.suite = #suite_,                                        \
                                          .name = #name_,                                          \
                                          .run = suite_##_##name_##_run,                           \
                                          .options = {__VA_ARGS__}})                               \
    static void suite_##_##name_##_run(void)
#define TestSuite(suite_, ...)                                                                     \
    STANDIN_ADD(suite_##_suite, {.suite = #suite_, .options = {__VA_ARGS__}})                      \
    struct standin_test

#define STANDIN(fatal, holds, what, ...)                                                           \
    standin_check(fatal, holds, __FILE__, __LINE__, what, "" __VA_ARGS__)

#define cr_assert(holds, ...) STANDIN(true, (holds), #holds, __VA_ARGS__)
#define cr_assert_not(holds, ...) STANDIN(true, !(holds), "not " #holds, __VA_ARGS__)
#define cr_assert_fail(...) STANDIN(true, false, "fail", __VA_ARGS__)
#define cr_assert_eq(a, b, ...) STANDIN(true, (a) == (b), #a " == " #b, __VA_ARGS__)
#define cr_assert_neq(a, b, ...) STANDIN(true, (a) != (b), #a " != " #b, __VA_ARGS__)
#define cr_assert_lt(a, b, ...) STANDIN(true, (a) < (b), #a " < " #b, __VA_ARGS__)
#define cr_assert_leq(a, b, ...) STANDIN(true, (a) <= (b), #a " <= " #b, __VA_ARGS__)
#define cr_assert_gt(a, b, ...) STANDIN(true, (a) > (b), #a " > " #b, __VA_ARGS__)
#define cr_assert_geq(a, b, ...) STANDIN(true, (a) >= (b), #a " >= " #b, __VA_ARGS__)
#define cr_assert_null(a, ...) STANDIN(true, (a) == NULL, #a " is null", __VA_ARGS__)
#define cr_assert_not_null(a, ...) STANDIN(true, (a) != NULL, #a " is not null", __VA_ARGS__)
#define cr_assert_str_eq(a, b, ...) STANDIN(true, strcmp(a, b) == 0, #a " equals " #b, __VA_ARGS__)
#define cr_assert_str_neq(a, b, ...)                                                               \
    STANDIN(true, strcmp(a, b) != 0, #a " differs from " #b, __VA_ARGS__)
#define cr_assert_arr_eq(a, b, size, ...)                                                          \
    STANDIN(true, memcmp(a, b, size) == 0, #a " equals " #b, __VA_ARGS__)
#define cr_assert_float_eq(a, b, epsilon, ...)                                                     \
    STANDIN(true, fabs((double)(a) - (double)(b)) <= (epsilon), #a " is near " #b, __VA_ARGS__)

#define cr_expect(holds, ...) STANDIN(false, (holds), #holds, __VA_ARGS__)
#define cr_expect_not(holds, ...) STANDIN(false, !(holds), "not " #holds, __VA_ARGS__)
#define cr_expect_eq(a, b, ...) STANDIN(false, (a) == (b), #a " == " #b, __VA_ARGS__)
#define cr_expect_lt(a, b, ...) STANDIN(false, (a) < (b), #a " < " #b, __VA_ARGS__)
#define cr_expect_leq(a, b, ...) STANDIN(false, (a) <= (b), #a " <= " #b, __VA_ARGS__)
#define cr_expect_geq(a, b, ...) STANDIN(false, (a) >= (b), #a " >= " #b, __VA_ARGS__)
#define cr_expect_null(a, ...) STANDIN(false, (a) == NULL, #a " is null", __VA_ARGS__)
#define cr_expect_str_eq(a, b, ...) STANDIN(false, strcmp(a, b) == 0, #a " equals " #b, __VA_ARGS__)
#define cr_expect_str_neq(a, b, ...)                                                               \
    STANDIN(false, strcmp(a, b) != 0, #a " differs from " #b, __VA_ARGS__)

#define cr_skip_test(...) standin_skip()

#endif
