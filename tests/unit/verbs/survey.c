/* What people are told: `rota info` and `rota doctor` print these findings. */
#include "transports/verbs/survey.h"
#include "unit/verbs/machine.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static const struct machine_device rxe = {
    .name = "pretended0",
    .transport = IBV_TRANSPORT_IB,
    .ports = 1,
    .port = {{.state = IBV_PORT_ACTIVE,
              .layer = IBV_LINK_LAYER_ETHERNET,
              .width = 2,
              .speed = 32,
              .mtu = IBV_MTU_4096,
              .gids = {{"::ffff:10.77.0.1", IBV_GID_TYPE_ROCE_V2, 1}}}},
};

/* The findings, a line each: level, topic, text, advice. */
static char told[8192];
static int problems;

static void note(const rota_finding *finding, void *arg) {
    static const char *const levels[] = {"ok", "note", "problem"};
    size_t length = strlen(told);
    cr_assert_null(arg);
    cr_assert_geq(finding->size, sizeof(*finding));
    cr_assert(finding->level == ROTA_FINDING_OK || finding->advice != NULL, "no advice: %s",
              finding->text);
    snprintf(told + length, sizeof(told) - length, "%s|%s|%s|%s\n", levels[finding->level],
             finding->topic, finding->text, finding->advice != NULL ? finding->advice : "");
    problems += finding->level == ROTA_FINDING_PROBLEM;
}

static void survey(const struct machine_device *devices, int count) {
    struct settings *settings = NULL;
    cr_assert_eq(settings_load(&settings), ROTA_OK);
    told[0] = '\0';
    problems = 0;
    verbs_calls_replace(machine_make(devices, count, 0));
    verbs_survey(settings, note, NULL);
    verbs_calls_replace(NULL);
    settings_free(settings);
    cr_assert_eq(machine_open(), 0, "%d things are left open", machine_open());
}

#define TOLD(text) cr_expect_not_null(strstr(told, text), "\"%s\" is not in:\n%s", text, told)

Test(survey, all_is_well) {
    survey(&rxe, 1);
    cr_assert_eq(problems, 0);
    TOLD("ok|pretended0:1|used: RoCE v2 over lo, 100 Gb/s, GID 0, address 10.77.0.1, MTU 4096|\n");
    TOLD("ok|rdma memory|16 MiB can be registered with pretended0|\n");
    TOLD("ok|rdma_cm|connections can be made|\n");
    TOLD("ok|pretended0:1|its counters show no errors|\n");
}

Test(survey, C79_no_device) {
    survey(&rxe, 0);
    TOLD("note|rdma|no RDMA device|the kernel shows a device: load ib_uverbs");
    cr_assert_eq(problems, 0);
}

Test(survey, C79_little_memory_to_lock) {
    struct machine_device tight = rxe;
    struct rlimit limit = {65536, 65536};
    tight.registration_error = ENOMEM;
    cr_assert_eq(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
    survey(&tight, 1);
    cr_assert_eq(problems, 1);
    TOLD("problem|rdma memory|16 MiB cannot be registered with pretended0: ibv_reg_mr: Cannot "
         "allocate memory; this process may lock 64 KiB|raise it: ulimit -l unlimited");
    tight.registration_error = 0;
    tight.pd_error = ENOSPC;
    survey(&tight, 1);
    TOLD("ibv_alloc_pd: No space left on device");
}

Test(survey, what_fails_and_what_to_do) {
    struct machine_device devices[3] = {rxe, rxe, rxe};
    devices[0].channel_error = ENODEV;
    devices[1].name = "pretended1";
    devices[1].open_error = EACCES;
    devices[2].name = "pretended2";
    devices[2].open_error = ENOENT;
    survey(devices, 3);
    cr_assert_eq(problems, 3);
    TOLD("problem|pretended1:1|not used: ibv_open_device: Permission denied|let this user open");
    TOLD("problem|pretended2:1|not used: ibv_open_device: No such file or directory|its file in "
         "/dev/infiniband is missing");
    TOLD("problem|rdma_cm|no connection can be made: rdma_create_event_channel: No such device|"
         "load rdma_ucm");
}

Test(survey, narrow_and_down) {
    struct machine_device devices[2] = {rxe, rxe};
    devices[0].port[0].mtu = IBV_MTU_1024;
    devices[1].name = "pretended1";
    devices[1].port[0].state = IBV_PORT_DOWN;
    survey(devices, 2);
    cr_assert_eq(problems, 0);
    TOLD("note|pretended0:1|used: RoCE v2 over lo, 100 Gb/s, GID 0, address 10.77.0.1, MTU 1024|"
         "packets of 4096 bytes need an MTU of 4200 or more, of lo and of the switches\n");
    TOLD("note|pretended1:1|not used: the port is down");
    setenv("ROTA_RDMA_DEVICE", "^pretended1", 1);
    survey(devices, 2);
    TOLD("ok|pretended1:1|not used: left out by ROTA_RDMA_DEVICE|\n");
    setenv("ROTA_RDMA_PARTITION", "seven", 1);
    survey(devices, 2);
    cr_assert_eq(problems, 1);
    TOLD("problem|rdma|ROTA_RDMA_PARTITION=\"seven\" (from environment) is no partition key");
}
