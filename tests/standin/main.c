/* Runs the registered tests one after the other, each in a forked child, and ends with 1 when one
 * failed or when there were none. STANDIN_EXCEPT is an extended regular expression of suite/test:
 * what an emulator cannot run. */
#include <criterion/criterion.h>
#include <regex.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define FAILED 99
#define SKIPPED 98
#define DEFAULT_TIMEOUT_S 120

static struct standin_test *tests, *suites;
static bool expectation_failed;

void standin_add(struct standin_test *test) {
    struct standin_test **list = test->name ? &tests : &suites;
    test->next = *list;
    *list = test;
}

void standin_check(bool fatal, bool holds, const char *file, int line, const char *what,
                   const char *format, ...) {
    if (holds)
        return;
    fprintf(stderr, "%s:%d: does not hold: %s ", file, line, what);
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    expectation_failed = true;
    if (fatal)
        _exit(FAILED);
}

_Noreturn void standin_skip(void) {
    _exit(SKIPPED);
}

static void run(const struct standin_test *test, const struct standin_options *suite) {
    double timeout = test->options.timeout > 0 ? test->options.timeout : suite->timeout;
    alarm(timeout > 0 ? (unsigned)timeout + 1 : DEFAULT_TIMEOUT_S);
    void (*init)(void) = test->options.init ? test->options.init : suite->init;
    void (*fini)(void) = test->options.fini ? test->options.fini : suite->fini;
    if (init)
        init();
    test->run();
    if (fini)
        fini();
    fflush(NULL);
    _exit(expectation_failed ? FAILED : 0);
}

/* Whether the child ended as the test wants it. */
static bool as_wanted(const struct standin_options *options, int status) {
    if (options->signal)
        return WIFSIGNALED(status) && WTERMSIG(status) == options->signal;
    return WIFEXITED(status) && WEXITSTATUS(status) == options->exit_code;
}

static bool is_excepted(const struct standin_test *test) {
    const char *pattern = getenv("STANDIN_EXCEPT");
    regex_t regex;
    char name[256];
    snprintf(name, sizeof(name), "%s/%s", test->suite, test->name);
    if (!pattern || !*pattern || regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB))
        return false;
    bool matches = regexec(&regex, name, 0, NULL, 0) == 0;
    regfree(&regex);
    return matches;
}

int main(void) {
    int count = 0, failed = 0, skipped = 0;
    for (struct standin_test *test = tests; test; test = test->next) {
        static const struct standin_options none;
        const struct standin_options *suite = &none;
        for (struct standin_test *other = suites; other; other = other->next)
            if (strcmp(other->suite, test->suite) == 0)
                suite = &other->options;
        if (test->options.disabled || suite->disabled)
            continue;
        if (is_excepted(test)) {
            skipped++;
            continue;
        }
        fflush(NULL);
        pid_t child = fork();
        if (child == 0)
            run(test, suite);
        int status = -1;
        if (child < 0 || waitpid(child, &status, 0) != child)
            return EXIT_FAILURE;
        count++;
        if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) {
            skipped++;
        } else if (!as_wanted(&test->options, status)) {
            printf("FAILED: %s/%s (status %#x)\n", test->suite, test->name, (unsigned)status);
            failed++;
        }
    }
    printf("%d tests, %d failed, %d skipped\n", count, failed, skipped);
    return count > 0 && failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
