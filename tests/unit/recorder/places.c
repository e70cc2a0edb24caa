/* Where recordings lie: who may write there, what is kept, what is refused. */
#include "folder.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Some calls go in and come out, wherever the pages lie. */
static void use(struct recorder *recorder) {
    struct record_page *page =
        recorder_page(recorder, RECORD_PAGE_COLLECTIVES, 4, 2, "c", 0, 1, NULL);
    struct record_call call;
    cr_assert_not_null(page);
    for (uint64_t i = 1; i <= 100; i++) {
        struct record_entry entry = folder_entry(i);
        record_end(record_begin(page, &entry, false), ROTA_OK);
    }
    cr_assert(recorder_find(recorder, RECORD_PAGE_COLLECTIVES, 4, 2, 0, &call));
    cr_assert_eq(call.sequence, 100);
    recorder_page_free(recorder, page);
}

Test(places, file_is_private_and_goes_with_a_clean_end) {
    const char *folder = folder_make();
    struct recorder *recorder = folder_recorder(1, 3, 4);
    char expected[256];
    snprintf(expected, sizeof(expected), "%s/01010101010101010101010101010101/rank-3.rota", folder);
    cr_assert_str_eq(recorder_path(recorder), expected);
    struct stat file, parent;
    cr_assert_eq(stat(expected, &file), 0);
    cr_assert_eq(file.st_mode & 0777, 0600);
    cr_assert_eq(file.st_size % RECORD_PAGE, 0);
    *strrchr(expected, '/') = '\0';
    cr_assert_eq(stat(expected, &parent), 0);
    cr_assert_eq(parent.st_mode & 0777, 0700);
    use(recorder);
    recorder_close(recorder, true);
    cr_assert_eq(folder_count(folder), 0);
    folder_remove(folder);
}

Test(places, ranks_share_the_folder_of_their_job) {
    const char *folder = folder_make();
    struct recorder *first = folder_recorder(1, 0, 2), *second = folder_recorder(1, 1, 2);
    cr_assert_eq(folder_count(folder), 1);
    recorder_close(first, true);
    cr_assert_eq(folder_count(folder), 1);
    recorder_close(second, true);
    cr_assert_eq(folder_count(folder), 0);
    folder_remove(folder);
}

Test(places, settings_choose) {
    const char *folder = folder_make();
    setenv("ROTA_RECORD", "memory", 1);
    struct recorder *recorder = folder_recorder(1, 0, 1);
    cr_assert_str_eq(recorder_path(recorder), "");
    use(recorder);
    recorder_close(recorder, false);
    setenv("ROTA_RECORD", "off", 1);
    cr_assert_null(folder_recorder(1, 0, 1));
    cr_assert_null(recorder_page(NULL, RECORD_PAGE_COLLECTIVES, 0, 0, "", 0, 1, NULL));
    cr_assert_eq(folder_count(folder), 0);
    folder_remove(folder);
}

Test(places, links_files_and_open_folders_are_refused) {
    const char *folder = folder_make();
    char path[256], target[256];
    snprintf(path, sizeof(path), "%s/link", folder);
    snprintf(target, sizeof(target), "%s/target", folder);
    cr_assert_eq(mkdir(target, 0700), 0);
    cr_assert_eq(symlink(target, path), 0);
    setenv("ROTA_RECORD_DIR", path, 1);
    struct recorder *recorder = folder_recorder(1, 0, 1);
    cr_assert_str_eq(recorder_path(recorder), "", "followed a link");
    use(recorder);
    recorder_close(recorder, false);
    cr_assert_eq(folder_count(target), 0);
    /* A link, a file, and a folder that others can write in place of the job's folder. */
    snprintf(path, sizeof(path), "%s/01010101010101010101010101010101", folder);
    setenv("ROTA_RECORD_DIR", folder, 1);
    cr_assert_eq(symlink(target, path), 0);
    recorder = folder_recorder(1, 0, 1);
    cr_assert_str_eq(recorder_path(recorder), "", "followed a link");
    recorder_close(recorder, false);
    cr_assert_eq(unlink(path), 0);
    cr_assert_geq(close(open(path, O_CREAT | O_WRONLY, 0600)), 0);
    recorder = folder_recorder(1, 0, 1);
    cr_assert_str_eq(recorder_path(recorder), "", "took a file for a folder");
    recorder_close(recorder, false);
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(mkdir(path, 0700), 0);
    cr_assert_eq(chmod(path, 0770), 0);
    recorder = folder_recorder(1, 0, 1);
    cr_assert_str_eq(recorder_path(recorder), "", "took a folder that is open to others");
    recorder_close(recorder, false);
    cr_assert_eq(folder_count(path), 0);
    folder_remove(folder);
}

Test(places, a_link_in_place_of_the_file_is_not_followed) {
    const char *folder = folder_make();
    char job[256], link[300], victim[256];
    snprintf(job, sizeof(job), "%s/01010101010101010101010101010101", folder);
    snprintf(link, sizeof(link), "%s/rank-0.rota", job);
    snprintf(victim, sizeof(victim), "%s/victim", folder);
    cr_assert_eq(mkdir(job, 0700), 0);
    cr_assert_geq(close(open(victim, O_CREAT | O_WRONLY, 0600)), 0);
    cr_assert_eq(symlink(victim, link), 0);
    struct recorder *recorder = folder_recorder(1, 0, 1);
    use(recorder);
    recorder_close(recorder, false);
    struct stat status;
    cr_assert_eq(stat(victim, &status), 0);
    cr_assert_eq(status.st_size, 0);
    folder_remove(folder);
}

Test(places, never_in_dev_shm) {
    struct stat shm, root;
    if (stat("/dev/shm", &shm) != 0 || stat("/", &root) != 0 || shm.st_dev == root.st_dev)
        cr_skip_test("there is no /dev/shm of its own");
    setenv("ROTA_RECORD_DIR", "/dev/shm/rota-test-recordings", 1);
    struct recorder *recorder = folder_recorder(1, 0, 1);
    cr_assert_str_eq(recorder_path(recorder), "");
    recorder_close(recorder, false);
    rmdir("/dev/shm/rota-test-recordings");
}

Test(places, read_only_and_missing_folders_cost_nothing) {
    const char *folder = folder_make();
    char path[256];
    snprintf(path, sizeof(path), "%s/no/such", folder);
    setenv("ROTA_RECORD_DIR", path, 1);
    struct recorder *recorder = folder_recorder(1, 0, 1);
    cr_assert_str_eq(recorder_path(recorder), "");
    use(recorder);
    recorder_close(recorder, false);
    setenv("ROTA_RECORD_DIR", "/proc/sys", 1); /* nobody can write there, not even root */
    recorder = folder_recorder(1, 0, 1);
    cr_assert_str_eq(recorder_path(recorder), "");
    use(recorder);
    recorder_close(recorder, true);
    folder_remove(folder);
}

/* A file that may not grow costs no signal. */
Test(places, limit_of_file_size) {
    const char *folder = folder_make();
    struct rlimit limit = {8 * RECORD_PAGE, RLIM_INFINITY};
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    struct recorder *recorder = folder_recorder(1, 0, 1);
    cr_assert_neq(recorder_path(recorder)[0], '\0');
    for (uint32_t i = 0; i < 40; i++) {
        struct record_page *page =
            recorder_page(recorder, RECORD_PAGE_COLLECTIVES, i, 0, "c", 0, 1, NULL);
        cr_assert_not_null(page);
        struct record_entry entry = folder_entry(1);
        record_begin(page, &entry, true);
    }
    recorder_close(recorder, true);
    limit.rlim_cur = RECORD_PAGE;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    recorder = folder_recorder(2, 0, 1);
    cr_assert_str_eq(recorder_path(recorder), "");
    use(recorder);
    recorder_close(recorder, true);
    limit.rlim_cur = RLIM_INFINITY;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_assert_eq(folder_count(folder), 0);
    folder_remove(folder);
}

/* A full disk costs no signal either. */
Test(places, full_disk) {
    const char *folder = folder_make();
    if (mount("rota-test", folder, "tmpfs", 0, "size=64k") != 0) {
        folder_remove(folder);
        cr_skip_test("only root may mount");
    }
    struct recorder *recorder = folder_recorder(1, 0, 1);
    cr_expect_neq(recorder_path(recorder)[0], '\0');
    for (uint32_t i = 0; i < 200; i++) {
        struct record_page *page =
            recorder_page(recorder, RECORD_PAGE_COLLECTIVES, i, 0, "c", 0, 1, NULL);
        struct record_entry entry = folder_entry(i + 1);
        cr_expect_not_null(page);
        record_begin(page, &entry, true);
    }
    struct record_call call;
    cr_expect(recorder_find(recorder, RECORD_PAGE_COLLECTIVES, 199, 0, 0, &call));
    cr_expect_eq(call.sequence, 200);
    struct recorder *more[16];
    for (int i = 0; i < 16; i++)
        more[i] = folder_recorder(2, i, 16);
    cr_expect_str_eq(recorder_path(more[15]), "", "there was room for all");
    for (int i = 0; i < 16; i++) {
        use(more[i]);
        recorder_close(more[i], true);
    }
    recorder_close(recorder, true);
    cr_expect_eq(folder_count(folder), 0);
    umount(folder);
    folder_remove(folder);
}

/* Of 20 jobs that failed 16 are kept, the last ones, and what is no recording stays. */
Test(places, last_failed_jobs_are_kept) {
    const char *folder = folder_make();
    char path[256];
    snprintf(path, sizeof(path), "%s/0f0f0f0f0f0f0f0f0f0f0f0f0f0f0fff", folder);
    cr_assert_eq(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/0f0f0f0f0f0f0f0f0f0f0f0f0f0f0fff/letter", folder);
    cr_assert_geq(close(open(path, O_CREAT | O_WRONLY, 0600)), 0);
    for (unsigned char job = 1; job <= 20; job++) {
        pid_t child = fork();
        if (child == 0) {
            struct recorder *recorder = folder_recorder(job, 0, 1);
            use(recorder);
            raise(SIGKILL);
        }
        int status;
        cr_assert_eq(waitpid(child, &status, 0), child);
        cr_assert(WIFSIGNALED(status));
        usleep(10000); /* so that their times differ */
    }
    cr_assert_eq(folder_count(folder), 17);
    cr_assert_eq(access(path, F_OK), 0);
    for (int job = 1; job <= 20; job++) {
        int n = snprintf(path, sizeof(path), "%s/", folder);
        for (int i = 0; i < 16; i++)
            n += snprintf(path + n, sizeof(path) - (size_t)n, "%02x", job);
        cr_assert_eq(access(path, F_OK) == 0, job > 4, "job %d", job);
    }
    folder_remove(folder);
}

/* The child of a fork writes neither into its parent's file nor takes it away. */
Test(places, fork_leaves_the_file_alone) {
    const char *folder = folder_make();
    struct recorder *recorder = folder_recorder(1, 0, 1);
    struct record_page *page =
        recorder_page(recorder, RECORD_PAGE_COLLECTIVES, 0, 0, "world", 0, 1, NULL);
    struct record_entry entry = folder_entry(1);
    struct record_call *line = record_begin(page, &entry, true), call;
    pid_t child = fork();
    if (child == 0) {
        entry.sequence = 9;
        record_begin(page, &entry, true);
        record_end(line, ROTA_ERR_PEER);
        cr_assert_null(recorder_page(recorder, RECORD_PAGE_COLLECTIVES, 1, 0, "", 0, 1, NULL));
        recorder_close(recorder, true);
        _exit(0);
    }
    int status;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
    cr_assert(recorder_find(recorder, RECORD_PAGE_COLLECTIVES, 0, 0, 0, &call));
    cr_assert_eq(call.sequence, 1);
    cr_assert_eq(call.state, RECORD_RUNNING);
    cr_assert_eq(access(recorder_path(recorder), F_OK), 0);
    recorder_close(recorder, true);
    folder_remove(folder);
}

/* A job with the id of one that died takes its file's place. */
Test(places, same_id_again) {
    const char *folder = folder_make();
    struct recorder *first = folder_recorder(1, 0, 1);
    recorder_close(first, false);
    cr_assert_eq(folder_count(folder), 1);
    struct recorder *second = folder_recorder(1, 0, 1);
    cr_assert_neq(recorder_path(second)[0], '\0');
    recorder_close(second, true);
    cr_assert_eq(folder_count(folder), 0);
    folder_remove(folder);
}
