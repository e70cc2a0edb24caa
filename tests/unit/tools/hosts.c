/* Pretended hosts. */
#include "launch/launch.h"
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static void expect(const char *text, int nranks, const int *hosts) {
    char why[256];
    int count = 0;
    int *parsed = launch_hosts_parse(text, &count, why, sizeof why);
    cr_assert_not_null(parsed, "%s: %s", text, why);
    cr_assert_eq(count, nranks, "%s", text);
    cr_assert_arr_eq(parsed, hosts, (size_t)nranks * sizeof *hosts, "%s", text);
    free(parsed);
}

Test(hosts, by_count_and_by_rank) {
    expect("2+2", 4, (int[]){0, 0, 1, 1});
    expect("1+3", 4, (int[]){0, 1, 1, 1});
    expect("3", 3, (int[]){0, 0, 0});
    expect("0,1,1,0", 4, (int[]){0, 1, 1, 0});
    expect("7,7", 2, (int[]){7, 7});
    expect("0", 1, (int[]){0});
}

Test(hosts, garbage_is_refused) {
    static const char *const texts[] = {
        "",   "+",    "2+",   "+2",   "2+x",    "2+0",   "0+2", ",",       "0,",
        ",0", "0,,1", "0,-1", "1025", "1024+1", "2+2,1", "1.5", "65536,0", "99999999999999999999",
        "a"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char why[256] = "";
        int count = -5;
        cr_assert_null(launch_hosts_parse(texts[i], &count, why, sizeof why), "%s", texts[i]);
        cr_assert_not_null(strstr(why, "--hosts expects"), "%s: %s", texts[i], why);
        cr_assert_eq(count, -5);
    }
}

Test(hosts, list_that_is_too_long) {
    char text[2 * (LAUNCH_MAX_RANKS + 1) + 1], why[256];
    int count;
    for (int i = 0; i <= LAUNCH_MAX_RANKS; i++)
        memcpy(text + 2 * i, "0,", 2);
    text[2 * LAUNCH_MAX_RANKS - 1] = '\0';
    int *parsed = launch_hosts_parse(text, &count, why, sizeof why);
    cr_assert_not_null(parsed);
    cr_assert_eq(count, LAUNCH_MAX_RANKS);
    free(parsed);
    text[2 * LAUNCH_MAX_RANKS - 1] = ',';
    text[2 * LAUNCH_MAX_RANKS + 1] = '\0';
    cr_assert_null(launch_hosts_parse(text, &count, why, sizeof why));
}
