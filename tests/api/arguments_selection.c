/* What the functions that tell about selection refuse, and that what they tell is what runs. */
#include "pair.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static rota_status ask(rota_comm *comm, rota_kind kind, size_t count, rota_dtype dtype, rota_op op,
                       int root, int index, rota_candidate *candidate) {
    return rota_comm_candidate(comm, kind, count, dtype, op, root, NULL, index, candidate);
}

Test(arguments, rota_comm_candidate) {
    rota_candidate found = ROTA_CANDIDATE_INIT, small = {.size = sizeof(found) - 1};
    rota_call wrong = ROTA_CALL_INIT, named = ROTA_CALL_INIT;
    struct pair pair;
    pair_open(&pair);
    rota_comm *comm = pair.comms[0];
    const rota_kind sum = ROTA_KIND_ALL_REDUCE;
    REFUSED(ask(NULL, sum, 1, ROTA_FLOAT32, ROTA_SUM, 0, 0, &found), ROTA_ERR_ARGUMENT, NULL,
            "comm");
    REFUSED(ask(comm, sum, 1, ROTA_FLOAT32, ROTA_SUM, 0, 0, NULL), ROTA_ERR_ARGUMENT, NULL,
            "candidate");
    REFUSED(ask(comm, sum, 1, ROTA_FLOAT32, ROTA_SUM, 0, 0, &small), ROTA_ERR_ARGUMENT, NULL,
            "size");
    static const int kinds[] = {-1, ROTA_KIND_SEND, ROTA_KIND_RECV, ROTA_KIND_COUNT};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        REFUSED(ask(comm, (rota_kind)kinds[i], 1, ROTA_FLOAT32, ROTA_SUM, 0, 0, &found),
                ROTA_ERR_ARGUMENT, NULL, "kind");
    REFUSED(ask(comm, sum, 1, 999, ROTA_SUM, 0, 0, &found), ROTA_ERR_ARGUMENT, NULL, "dtype");
    REFUSED(ask(comm, sum, 1, ROTA_FLOAT32, 999, 0, 0, &found), ROTA_ERR_ARGUMENT, NULL, "op");
    REFUSED(ask(comm, sum, 1, ROTA_FLOAT32, ROTA_BITWISE_AND, 0, 0, &found), ROTA_ERR_ARGUMENT,
            NULL, "bitwise_and");
    REFUSED(ask(comm, ROTA_KIND_BROADCAST, 1, ROTA_FLOAT32, 0, 2, 0, &found), ROTA_ERR_ARGUMENT,
            NULL, "root");
    REFUSED(ask(comm, sum, SIZE_MAX / 4, ROTA_FLOAT32, ROTA_SUM, 0, 0, &found), ROTA_ERR_ARGUMENT,
            NULL, "count");
    REFUSED(ask(comm, sum, 1, ROTA_FLOAT32, ROTA_SUM, 0, -1, &found), ROTA_ERR_ARGUMENT, NULL,
            "index");
    wrong.flags = 1;
    REFUSED(rota_comm_candidate(comm, sum, 1, ROTA_FLOAT32, ROTA_SUM, 0, &wrong, 0, &found),
            ROTA_ERR_ARGUMENT, NULL, "flags");
    cr_assert_eq(found.count, 0);

    /* Exactly one is chosen; all that are told of have a name. */
    cr_assert_eq(ask(comm, sum, 1, ROTA_FLOAT32, ROTA_SUM, 0, 0, &found), ROTA_OK);
    int count = found.count, chosen = 0;
    cr_assert(count >= 12);
    for (int i = 0; i < count; i++) {
        cr_assert_eq(ask(comm, sum, 1000, ROTA_FLOAT32, ROTA_SUM, 0, i, &found), ROTA_OK);
        cr_expect(found.name[0] != '\0' && found.count == count);
        cr_expect(found.able ? found.price_us > 0 : found.why[0] != '\0' && !found.chosen, "%s",
                  found.name);
        chosen += found.chosen;
    }
    cr_assert_eq(chosen, 1);
    REFUSED(ask(comm, sum, 1, ROTA_FLOAT32, ROTA_SUM, 0, count, &found), ROTA_ERR_ARGUMENT, NULL,
            "index");
    /* The call's own wish, and one that is refused. */
    for (int i = 0; i < count; i++) {
        named.algorithm = i % 2 ? "ring" : "none of that name";
        cr_assert_eq(
            rota_comm_candidate(comm, sum, 9, ROTA_FLOAT32, ROTA_SUM, 0, &named, i, &found),
            ROTA_OK);
        cr_expect_eq(found.chosen, i % 2 && strcmp(found.name, "ring") == 0, "%s", found.name);
    }
    pair_works(&pair);
    pair_close(&pair);
}

Test(arguments, rota_profile_describe) {
    char text[64], path[] = "/tmp/rota-test-XXXXXX";
    REFUSED(rota_profile_describe(NULL, 8), ROTA_ERR_ARGUMENT, NULL, "text");
    REFUSED(rota_profile_describe(text, 0), ROTA_ERR_ARGUMENT, NULL, "size");
    cr_assert_eq(rota_profile_describe(text, sizeof(text)), ROTA_OK);
    cr_assert_str_eq(text, "none");
    int fd = mkstemp(path);
    FILE *file = fdopen(fd, "w");
    cr_assert(fd >= 0 && file != NULL);
    fprintf(file, "# a comment\nrota_profile = 1\nmachine = %s\n", rota_machine_name());
    fprintf(file, "placement = ranks 2 hosts 1 crowding 1\n");
    fprintf(file, "tcp = latency_us 1 overhead_us 1.5 us_per_mib 2 reduce_us_per_mib .5\n");
    fclose(file);
    setenv("ROTA_PROFILE", path, 1);
    cr_assert_eq(rota_profile_describe(text, sizeof(text)), ROTA_OK);
    cr_expect(strstr(text, path) != NULL, "%s", text);
    setenv("ROTA_PROFILE", "/no/such/file", 1);
    REFUSED(rota_profile_describe(text, sizeof(text)), ROTA_ERR_SETTING, NULL, "ROTA_PROFILE");
    unsetenv("ROTA_PROFILE");
    remove(path);
    cr_assert(rota_link_name(ROTA_LINK_COUNT) == NULL && rota_link_name(-1) == NULL);
    cr_assert_str_eq(rota_link_name(ROTA_LINK_NATIVE), "native");
}
