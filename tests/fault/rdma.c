/* RDMA that is not there, or whose memory may not be locked: jobs run over the other transports.
 * What failing verbs calls do is tested in tests/unit/verbs with a double, and with a real device
 * by script/test-rdma. */
#include "kit.h"
#include <rota/doctor.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { OTHER_USER = 65534, KIB = 1024 };

/* No device, whatever this machine has. */
static void take_devices_away(void) {
    if (access("/sys/class/infiniband", F_OK) == 0)
        kit_tmpfs("/sys/class/infiniband", NULL);
    if (access("/dev/infiniband", F_OK) == 0)
        kit_tmpfs("/dev/infiniband", NULL);
}

static void expect_silent_success(const struct kit_job *job, const char *what) {
    kit_expect_success(job, what);
    for (int r = 0; r < job->nranks; r++)
        CHECK(kit_quiet(job, r), "%s: rank %d said: %s", what, r, kit_said(job, r));
}

struct heard {
    int findings, problems;
    bool device, library; /* says that there is none; that it cannot be loaded */
};

static void hear(const rota_finding *finding, void *arg) {
    struct heard *heard = arg;
    heard->findings++;
    heard->problems += finding->level == ROTA_FINDING_PROBLEM;
    heard->library |= strstr(finding->text, "libibverbs") != NULL;
    heard->device |= strstr(finding->text, "no RDMA device") != NULL;
}

static int verbs_index(void) {
    for (int i = 0; rota_transport_name(i) != NULL; i++)
        if (strcmp(rota_transport_name(i), "verbs") == 0)
            return i;
    return -1;
}

/* Libraries that are installed, and no device. */
static void C79_no_device(void) {
    take_devices_away();
    struct kit_job job = {.nranks = 4};
    kit_job_run(&job, 20000);
    expect_silent_success(&job, "without a device");
    struct heard heard = {0};
    int index = verbs_index();
    if (index < 0)
        return;
    CHECK(rota_transport_survey(index, hear, &heard) == ROTA_OK, "the survey fails");
    CHECK(heard.findings == 1 && heard.device && heard.problems == 0,
          "the survey does not say, once and as no problem, that there is no device");
}

static void lock_nothing(const struct kit_job *job, int rank) {
    (void)rank;
    kit_limit(RLIMIT_MEMLOCK, *(const unsigned long long *)job->arg);
    kit_become(OTHER_USER); /* root may lock what it likes */
}

static void C79_small_memlock(void) {
    static unsigned long long limits[] = {64 * KIB, 0};
    take_devices_away();
    for (int i = 0; i < 2; i++) {
        struct kit_job job = {.nranks = 4, .prepare = lock_nothing, .arg = &limits[i]};
        kit_job_run(&job, 20000);
        expect_silent_success(&job, "with a limit of memory to lock");
        kit_job_end(&job);
    }
}

/* A device that the kernel shows, and libraries that cannot be loaded. */
static void C79_no_library(void) {
    int index = verbs_index();
    if (index < 0)
        kit_skip("this build has no verbs transport");
    FILE *list =
        popen("PATH=$PATH:/sbin ldconfig -p | sed -n 's/.*libibverbs.so.1 .*=> //p'", "re");
    char path[512] = "";
    if (list == NULL || fgets(path, sizeof(path), list) == NULL)
        path[0] = '\0';
    if (list != NULL)
        pclose(list);
    path[strcspn(path, "\n")] = '\0';
    if (path[0] != '\0')
        kit_replace_file(path, "no library");
    kit_tmpfs("/sys/class", NULL);
    kit_must("mkdir -p /sys/class/infiniband/pretended0");
    struct kit_job job = {.nranks = 4};
    kit_job_run(&job, 20000);
    expect_silent_success(&job, "without libibverbs");
    struct heard heard = {0};
    CHECK(rota_transport_survey(index, hear, &heard) == ROTA_OK, "the survey fails");
    CHECK(heard.findings == 1 && heard.library,
          "the survey does not say that libibverbs is missing");
}

/* Who asks for it by name is told once per rank; the others of the list carry the job. */
static void C79_asked_for(void) {
    take_devices_away();
    if (verbs_index() < 0)
        kit_skip("this build has no verbs transport");
    struct kit_job job = {.nranks = 4, .transport = "verbs,tcp"};
    kit_job_run(&job, 20000);
    kit_expect_success(&job, "verbs,tcp without a device");
    for (int r = 0; r < job.nranks; r++) {
        const char *said = kit_said(&job, r);
        CHECK(strstr(said, "transport verbs is not used: ") != NULL && kit_lines(said) == 1,
              "rank %d said: %s", r, said);
    }
}

int main(int argc, char **argv) {
    static const struct kit_case cases[] = {
        {"C79_no_device", C79_no_device, 60},
        {"C79_small_memlock", C79_small_memlock, 60},
        {"C79_no_library", C79_no_library, 60},
        {"C79_asked_for", C79_asked_for, 60},
        {NULL, NULL, 0},
    };
    return kit_main(cases, argc, argv);
}
