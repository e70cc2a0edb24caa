/* What the functions that read recordings, and the preflight, refuse. */
#include "pair.h"
#include <rota/doctor.h>
#include <rota/recording.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The recording of a job of two threads that is under way, in a folder of its own. */
struct opened {
    char folder[64];
    struct pair pair;
    rota_recording *recording;
};

static void open_one(struct opened *opened) {
    strcpy(opened->folder, "/tmp/rota-test-XXXXXX");
    cr_assert_not_null(mkdtemp(opened->folder));
    setenv("ROTA_RECORD_DIR", opened->folder, 1);
    pair_open(&opened->pair);
    pair_works(&opened->pair);
    cr_assert_eq(rota_recording_open(opened->folder, &opened->recording), ROTA_OK);
}

static void close_one(struct opened *opened) {
    rota_recording_close(opened->recording);
    pair_close(&opened->pair);
    cr_assert_eq(rmdir(opened->folder), 0, "a clean end leaves something");
}

Test(arguments, rota_recording_open) {
    rota_recording *const untouched = (rota_recording *)&close_one;
    rota_recording *recording = untouched;
    REFUSED(rota_recording_open(NULL, &recording), ROTA_ERR_ARGUMENT, NULL, "folder");
    REFUSED(rota_recording_open("", &recording), ROTA_ERR_ARGUMENT, NULL, "folder");
    REFUSED(rota_recording_open("/tmp", NULL), ROTA_ERR_ARGUMENT, NULL, "recording");
    REFUSED(rota_recording_open("/no/such/folder", &recording), ROTA_ERR_SYSTEM, NULL,
            "/no/such/folder");
    REFUSED(rota_recording_open("/proc/self", &recording), ROTA_ERR_FORMAT, NULL, "recording");
    cr_assert_eq(recording, untouched);
    rota_recording_close(NULL);
}

Test(arguments, rota_recording_open_process) {
    rota_recording *const untouched = (rota_recording *)&close_one;
    rota_recording *recording = untouched;
    int rank = -7;
    REFUSED(rota_recording_open_process(0, &recording, &rank), ROTA_ERR_ARGUMENT, NULL, "pid");
    REFUSED(rota_recording_open_process(-4, &recording, &rank), ROTA_ERR_ARGUMENT, NULL, "pid");
    REFUSED(rota_recording_open_process(1, NULL, &rank), ROTA_ERR_ARGUMENT, NULL, "recording");
    REFUSED(rota_recording_open_process(1, &recording, NULL), ROTA_ERR_ARGUMENT, NULL, "rank");
    REFUSED(rota_recording_open_process(INT64_MAX, &recording, &rank), ROTA_ERR_SYSTEM, NULL,
            "process");
    REFUSED(rota_recording_open_process(getpid(), &recording, &rank), ROTA_ERR_STATE, NULL,
            "recording");
    cr_assert_eq(recording, untouched);
    cr_assert_eq(rank, -7);
}

Test(arguments, rota_recording_describe) {
    struct opened opened;
    open_one(&opened);
    rota_recording_info info = ROTA_RECORDING_INFO_INIT;
    REFUSED(rota_recording_describe(NULL, &info), ROTA_ERR_ARGUMENT, NULL, "recording");
    REFUSED(rota_recording_describe(opened.recording, NULL), ROTA_ERR_ARGUMENT, NULL, "info");
    info.size--;
    REFUSED(rota_recording_describe(opened.recording, &info), ROTA_ERR_ARGUMENT, NULL, "size");
    info.size++;
    cr_assert_eq(rota_recording_describe(opened.recording, &info), ROTA_OK);
    cr_assert_eq(info.nranks, 2);
    cr_assert_eq(info.rank_count, 2);
    cr_assert_eq(info.comm_count, 1);
    cr_assert_eq(info.wait_count, 0);
    cr_assert_eq(strlen(info.job), 32);
    close_one(&opened);
}

Test(arguments, rota_recording_rank) {
    struct opened opened;
    open_one(&opened);
    rota_recorded_rank rank = ROTA_RECORDED_RANK_INIT;
    REFUSED(rota_recording_rank(NULL, 0, &rank), ROTA_ERR_ARGUMENT, NULL, "recording");
    REFUSED(rota_recording_rank(opened.recording, 0, NULL), ROTA_ERR_ARGUMENT, NULL, "rank");
    REFUSED(rota_recording_rank(opened.recording, 2, &rank), ROTA_ERR_ARGUMENT, NULL, "index");
    REFUSED(rota_recording_rank(opened.recording, -1, &rank), ROTA_ERR_ARGUMENT, NULL, "index");
    cr_assert_eq(rota_recording_rank(opened.recording, 1, &rank), ROTA_OK);
    cr_assert_eq(rank.rank, 1);
    cr_assert_eq(rank.pid, getpid());
    cr_assert_eq(rank.life, ROTA_LIFE_RUNNING);
    cr_assert(rank.joined);
    close_one(&opened);
}

Test(arguments, rota_recording_page) {
    struct opened opened;
    open_one(&opened);
    rota_recorded_page page = ROTA_RECORDED_PAGE_INIT;
    REFUSED(rota_recording_page(NULL, 0, 0, &page), ROTA_ERR_ARGUMENT, NULL, "recording");
    REFUSED(rota_recording_page(opened.recording, 2, 0, &page), ROTA_ERR_ARGUMENT, NULL, "rank");
    REFUSED(rota_recording_page(opened.recording, 0, 9, &page), ROTA_ERR_ARGUMENT, NULL, "index");
    REFUSED(rota_recording_page(opened.recording, 0, 0, NULL), ROTA_ERR_ARGUMENT, NULL, "page");
    cr_assert_eq(rota_recording_page(opened.recording, 0, 0, &page), ROTA_OK);
    cr_assert_eq(page.nranks, 2);
    cr_assert_gt(page.call_count, 0);
    close_one(&opened);
}

Test(arguments, rota_recording_call) {
    struct opened opened;
    open_one(&opened);
    rota_recorded_call call = ROTA_RECORDED_CALL_INIT;
    REFUSED(rota_recording_call(NULL, 0, 0, 0, &call), ROTA_ERR_ARGUMENT, NULL, "recording");
    REFUSED(rota_recording_call(opened.recording, 2, 0, 0, &call), ROTA_ERR_ARGUMENT, NULL, "rank");
    REFUSED(rota_recording_call(opened.recording, 0, 9, 0, &call), ROTA_ERR_ARGUMENT, NULL, "page");
    REFUSED(rota_recording_call(opened.recording, 0, 0, 99, &call), ROTA_ERR_ARGUMENT, NULL,
            "index");
    REFUSED(rota_recording_call(opened.recording, 0, 0, 0, NULL), ROTA_ERR_ARGUMENT, NULL, "call");
    cr_assert_eq(rota_recording_call(opened.recording, 0, 0, 0, &call), ROTA_OK);
    cr_assert_gt(call.sequence, 0);
    cr_assert(!call.running);
    cr_assert_eq(call.status, ROTA_OK);
    close_one(&opened);
}

Test(arguments, rota_recording_comm) {
    struct opened opened;
    open_one(&opened);
    rota_recorded_comm comm = ROTA_RECORDED_COMM_INIT;
    REFUSED(rota_recording_comm(NULL, 0, &comm), ROTA_ERR_ARGUMENT, NULL, "recording");
    REFUSED(rota_recording_comm(opened.recording, 1, &comm), ROTA_ERR_ARGUMENT, NULL, "index");
    REFUSED(rota_recording_comm(opened.recording, 0, NULL), ROTA_ERR_ARGUMENT, NULL, "comm");
    cr_assert_eq(rota_recording_comm(opened.recording, 0, &comm), ROTA_OK);
    cr_assert_str_eq(comm.name, "world");
    cr_assert_eq(comm.state, ROTA_RECORDED_QUIET);
    cr_assert_eq(comm.seen, 2);
    close_one(&opened);
}

Test(arguments, rota_recording_camp) {
    struct opened opened;
    open_one(&opened);
    rota_recorded_camp camp = ROTA_RECORDED_CAMP_INIT;
    int ranks[2] = {-1, -1};
    REFUSED(rota_recording_camp(NULL, 0, 0, &camp, ranks, 2), ROTA_ERR_ARGUMENT, NULL, "recording");
    REFUSED(rota_recording_camp(opened.recording, 1, 0, &camp, ranks, 2), ROTA_ERR_ARGUMENT, NULL,
            "comm_index");
    REFUSED(rota_recording_camp(opened.recording, 0, 5, &camp, ranks, 2), ROTA_ERR_ARGUMENT, NULL,
            "index");
    REFUSED(rota_recording_camp(opened.recording, 0, 0, NULL, ranks, 2), ROTA_ERR_ARGUMENT, NULL,
            "camp");
    REFUSED(rota_recording_camp(opened.recording, 0, 0, &camp, NULL, 2), ROTA_ERR_ARGUMENT, NULL,
            "ranks");
    REFUSED(rota_recording_camp(opened.recording, 0, 0, &camp, ranks, -1), ROTA_ERR_ARGUMENT, NULL,
            "capacity");
    cr_assert_eq(rota_recording_camp(opened.recording, 0, 0, &camp, ranks, 1), ROTA_OK);
    cr_assert_eq(camp.rank_count, 2);
    cr_assert_eq(ranks[0], 0);
    cr_assert_eq(ranks[1], -1);
    close_one(&opened);
}

Test(arguments, rota_recording_wait) {
    struct opened opened;
    open_one(&opened);
    rota_recorded_wait wait = ROTA_RECORDED_WAIT_INIT;
    REFUSED(rota_recording_wait(NULL, 0, &wait), ROTA_ERR_ARGUMENT, NULL, "recording");
    REFUSED(rota_recording_wait(opened.recording, 0, NULL), ROTA_ERR_ARGUMENT, NULL, "wait");
    REFUSED(rota_recording_wait(opened.recording, 0, &wait), ROTA_ERR_ARGUMENT, NULL, "index");
    close_one(&opened);
}

Test(arguments, rota_recording_skew) {
    struct opened opened;
    open_one(&opened);
    rota_recorded_skew skew = ROTA_RECORDED_SKEW_INIT;
    REFUSED(rota_recording_skew(NULL, 0, 0, &skew), ROTA_ERR_ARGUMENT, NULL, "recording");
    REFUSED(rota_recording_skew(opened.recording, 3, 0, &skew), ROTA_ERR_ARGUMENT, NULL,
            "comm_index");
    REFUSED(rota_recording_skew(opened.recording, 0, 2, &skew), ROTA_ERR_ARGUMENT, NULL, "index");
    REFUSED(rota_recording_skew(opened.recording, 0, 0, NULL), ROTA_ERR_ARGUMENT, NULL, "skew");
    cr_assert_eq(rota_recording_skew(opened.recording, 0, 1, &skew), ROTA_OK);
    cr_assert_eq(skew.rank, 1);
    close_one(&opened);
}

struct told {
    int findings, problems;
};

static void count(const rota_finding *finding, void *arg) {
    struct told *told = arg;
    cr_assert_eq(finding->size, sizeof(*finding));
    cr_assert_not_null(finding->topic);
    cr_assert_gt(strlen(finding->text), 0);
    cr_assert(finding->level == ROTA_FINDING_OK || finding->advice != NULL ||
              strcmp(finding->topic, "setting") == 0);
    told->findings++;
    told->problems += finding->level == ROTA_FINDING_PROBLEM;
}

Test(arguments, rota_transport_survey) {
    struct told told = {0};
    REFUSED(rota_transport_survey(0, NULL, NULL), ROTA_ERR_ARGUMENT, NULL, "tell");
    REFUSED(rota_transport_survey(-1, count, &told), ROTA_ERR_ARGUMENT, NULL, "no transport -1");
    REFUSED(rota_transport_survey(99, count, &told), ROTA_ERR_ARGUMENT, NULL, "no transport 99");
    for (int i = 0; rota_transport_name(i) != NULL; i++)
        cr_assert_eq(rota_transport_survey(i, count, &told), ROTA_OK);
    setenv("ROTA_TIMEOUT_MS", "soon", 1);
    REFUSED(rota_transport_survey(0, count, &told), ROTA_ERR_SETTING, NULL, "ROTA_TIMEOUT_MS");
}

Test(arguments, rota_preflight) {
    struct told told = {0}, wrong = {0};
    REFUSED(rota_preflight(NULL, NULL), ROTA_ERR_ARGUMENT, NULL, "tell");
    cr_assert_eq(rota_preflight(count, &told), ROTA_OK);
    cr_assert_gt(told.findings, 10);
    setenv("ROTA_TIMEOUT_MS", "soon", 1);
    cr_assert_eq(rota_preflight(count, &wrong), ROTA_OK);
    cr_assert_gt(wrong.problems, told.problems);
}
