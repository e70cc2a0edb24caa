/* Connecting by shared memory: what is refused, what is agreed, what is left behind. */
#include "cluster.h"

#include "base/clock.h"
#include "base/error.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int count_descriptors(void) {
    DIR *directory = opendir("/proc/self/fd");
    REQUIRE(directory);
    int count = 0;
    while (readdir(directory))
        count++;
    closedir(directory);
    return count;
}

/* Mappings of memfds. */
static int count_mappings(void) {
    FILE *maps = fopen("/proc/self/maps", "re");
    REQUIRE(maps);
    char line[512];
    int count = 0;
    while (fgets(line, sizeof line, maps))
        count += strstr(line, "memfd:rota") != NULL;
    fclose(maps);
    return count;
}

Test(shm_connect, nothing_is_left) {
    int descriptors = count_descriptors();
    for (int round = 0; round < 20; round++) {
        struct cluster cluster;
        cluster_open(&cluster, 4);
        cluster_connect_all(&cluster);
        /* Own arenas and heaps once, three peers' each; arenas, heaps, bells, epoll sets, and
         * peers' bells. */
        cr_assert_eq(count_mappings(), 32);
        cr_assert_leq(count_descriptors(), descriptors + 4 * (4 + 3));
        cluster_close(&cluster);
        cr_assert_eq(count_mappings(), 0);
        cr_assert_eq(count_descriptors(), descriptors);
    }
}

/* Connects rank 0 to a rank 1 that shows `arena`; both must give up, with this reason at rank 0. */
static void refused(struct cluster *cluster, int arena, const char *reason) {
    int event = fcntl(cluster->ranks[1].host.bell.event_fd, F_DUPFD_CLOEXEC, 0);
    int descriptors[2] = {arena, event};
    cluster_connect(cluster, 0, 1, descriptors);
    cr_assert_eq(cluster->ranks[0].connected + cluster->ranks[1].connected, 0);
    cr_assert_eq(cluster->ranks[0].unreachable, 1);
    cr_assert_eq(cluster->ranks[1].unreachable, 1);
    cr_assert(strstr(cluster->ranks[0].text, reason), "%s", cluster->ranks[0].text);
    cr_assert_str_eq(cluster->ranks[1].text, "the peer could not map this rank's memory");
    /* Given up for good, on both sides. */
    for (int r = 0; r < 2; r++) {
        struct transport *transport = cluster->ranks[r].transport;
        cr_assert_not(transport_shm.admit(transport, !r));
        cr_assert_not(transport_shm.reaches(transport, !r));
        transport_shm.connect(transport, !r);
        cr_assert_eq(cluster->ranks[r].unreachable, 2);
    }
    close(event);
    close(arena);
    cluster_close(cluster);
}

Test(shm_connect, what_is_no_memfd_is_refused) {
    struct cluster cluster;
    cluster_open(&cluster, 2);
    refused(&cluster, open("/dev/null", O_RDWR | O_CLOEXEC), "no memfd");
    cluster_open(&cluster, 2);
    FILE *file = tmpfile();
    refused(&cluster, fcntl(fileno(file), F_DUPFD_CLOEXEC, 0), "no");
    fclose(file);
}

Test(shm_connect, arena_that_could_shrink_is_refused) {
    struct cluster cluster;
    cluster_open(&cluster, 2);
    int arena = memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    cr_assert_eq(ftruncate(arena, 1 << 20), 0);
    refused(&cluster, arena, "not sealed");
}

Test(shm_connect, short_or_strange_memory_is_refused) {
    struct cluster cluster;
    cluster_open(&cluster, 2);
    int arena = memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    cr_assert_eq(ftruncate(arena, 100), 0);
    cr_assert_eq(fcntl(arena, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    refused(&cluster, arena, "wrong size");
    cluster_open(&cluster, 2);
    arena = memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    cr_assert_eq(ftruncate(arena, 1 << 20), 0);
    cr_assert_eq(fcntl(arena, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    refused(&cluster, arena, "no arena");
}

/* Head of rank 1's arena, changed by `change` before rank 0 sees it. */
static void refused_head(void (*change)(struct shm_identity *identity), const char *reason) {
    struct cluster cluster;
    cluster_open(&cluster, 2);
    struct shm *shm = (struct shm *)cluster.ranks[1].transport;
    change(&shm->arena.head->identity);
    refused(&cluster, fcntl(shm->arena.fd, F_DUPFD_CLOEXEC, 0), reason);
}
static void other_version(struct shm_identity *identity) {
    identity->version++;
}
static void other_rank(struct shm_identity *identity) {
    identity->rank = 0;
}
static void other_process(struct shm_identity *identity) {
    identity->incarnation++;
}
static void other_job(struct shm_identity *identity) {
    identity->job[15]++;
}
static void other_bytes(struct shm_identity *identity) {
    identity->bytes--;
}
static void outside(struct shm_identity *identity) {
    identity->large_slots = identity->bytes - 4096;
}
static void unaligned(struct shm_identity *identity) {
    identity->group_table += 8;
}

Test(shm_connect, wrong_heads_are_refused) {
    refused_head(other_version, "another layout");
    refused_head(other_rank, "another rank");
    refused_head(other_process, "another rank");
    refused_head(other_job, "another job");
    refused_head(other_bytes, "contradicts itself");
    refused_head(outside, "points outside");
    refused_head(unaligned, "points outside");
}

Test(shm_connect, peers_cannot_take_pages_away) {
    struct cluster cluster;
    cluster_open(&cluster, 2);
    const struct shm *shm = (const struct shm *)cluster.ranks[0].transport;
    int seals = fcntl(shm->arena.fd, F_GET_SEALS);
    cr_assert(seals & F_SEAL_SHRINK);
    cr_assert(seals & F_SEAL_GROW);
    cr_assert_neq(ftruncate(shm->arena.fd, 4096), 0);
    cluster_close(&cluster);
}

/* Users' memory: the system refuses to write there on a peer's behalf, as the processor does. */
Test(shm_heap, peers_can_only_read) {
    struct shm_heap heap;
    shm_heap_open(&heap, false);
    uint8_t *own = shm_heap_allocate(&heap, 1);
    const uint8_t *peers = shm_heap_map(heap.fd, heap.bytes);
    int zeros = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    cr_assert(own && peers && zeros >= 0);
    *own = 7;
    const uint8_t *seen = peers + (own - heap.base);
    cr_assert_eq(*seen, 7);
    cr_assert_eq(read(zeros, (void *)(uintptr_t)seen, 1), -1);
    cr_assert_eq(errno, EFAULT);
    cr_assert_eq(*own, 7);
    close(zeros);
    shm_heap_unmap(peers, heap.bytes);
    shm_heap_close(&heap);
}

Test(shm_connect, peer_that_closes_before_confirming_is_given_up) {
    struct cluster cluster;
    cluster_open(&cluster, 2);
    struct transport *transport = cluster.ranks[0].transport;
    int sockets[2], descriptors[NET_MAX_DESCRIPTORS];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets), 0);
    cr_assert(transport_shm.admit(transport, 1));
    cr_assert_eq(transport_shm.offer(cluster.ranks[1].transport, 0, descriptors), 3);
    for (int i = 0; i < 3; i++)
        descriptors[i] = fcntl(descriptors[i], F_DUPFD_CLOEXEC, 0);
    transport_shm.accept(transport, 1, sockets[0], descriptors, 3);
    transport_shm.progress(transport, 10);
    cr_assert_eq(cluster.ranks[0].unreachable, 0);
    close(sockets[1]);
    transport_shm.progress(transport, 10);
    cr_assert_eq(cluster.ranks[0].unreachable, 1);
    cr_assert_eq(cluster.ranks[0].connected, 0);
    cluster_close(&cluster);
}

Test(shm_connect, lower_rank_wins_a_crossing) {
    struct cluster cluster;
    cluster_open(&cluster, 2);
    struct shm *low = (struct shm *)cluster.ranks[0].transport;
    struct shm *high = (struct shm *)cluster.ranks[1].transport;
    atomic_store(&low->states[1], SHM_PEER_DIALLING);
    atomic_store(&high->states[0], SHM_PEER_DIALLING);
    cr_assert_not(transport_shm.admit(&low->transport, 1));
    cr_assert(transport_shm.admit(&high->transport, 0));
    cr_assert_not(transport_shm.admit(&high->transport, 0));
    cr_assert_not(transport_shm.admit(&high->transport, 1), "itself");
    cr_assert_not(transport_shm.admit(&high->transport, 2), "no rank");
    cluster_close(&cluster);
}

/* -- machines that refuse -------------------------------------------------------------------- */

/* From now on memfd_create fails with ENOSYS. */
static void deny_memfd(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    REQUIRE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    REQUIRE(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void limit_files(void) {
    struct rlimit limit = {1 << 20, 1 << 20};
    REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

/* Opens a rank after `refuse`: it must say that the transport cannot be used, and why, and leave
 * the doorbell where it was. */
static void unsupported(void (*refuse)(void), const char *reason) {
    struct doorbell_line *line = aligned_alloc(128, sizeof *line);
    REQUIRE(line);
    memset(line, 0, sizeof *line);
    struct net_identity identity = {.rank = 0};
    struct settings *settings = NULL;
    REQUIRE(settings_load(&settings) == ROTA_OK);
    struct transport_host host = {.nranks = 2, .identity = &identity, .settings = settings};
    REQUIRE(doorbell_open(&host.bell, line) == ROTA_OK);
    int descriptors = count_descriptors();
    refuse();
    struct transport *transport = NULL;
    cr_assert_eq(transport_shm.open(&host, &transport), ROTA_ERR_UNSUPPORTED);
    cr_assert(strstr(error_record()->message, reason), "%s", error_record()->message);
    cr_assert_eq(host.bell.line, line);
    cr_assert_eq(count_descriptors(), descriptors);
    doorbell_close(&host.bell);
    settings_free(settings);
    free(line);
}

Test(shm_connect, C72_memfd_denied) {
    unsupported(deny_memfd, "memfd_create: Function not implemented");
}
Test(shm_connect, C72_file_size_limited) {
    unsupported(limit_files, "RLIMIT_FSIZE");
}

/* -- a killed peer --------------------------------------------------------------------------- */

static void run_survivor(struct cluster *cluster, int rank, int shared_pid_fd) {
    struct native_group *group = cluster_group(cluster, rank, 1, 2);
    struct reduce_spec spec;
    REQUIRE(reduce_spec_init(&spec, ROTA_FLOAT32, ROTA_SUM, 2, cpu_isa_best()) == ROTA_OK);
    const size_t count = 100000;
    float *data = calloc(count, sizeof *data);
    REQUIRE(data);
    struct native_call call = {.kind = ROTA_KIND_ALL_REDUCE,
                               .count = count,
                               .bytes = count * 4,
                               .spec = &spec,
                               .send = data,
                               .recv = data};
    const struct native_form *form =
        shm_native.query(group, ROTA_KIND_ALL_REDUCE, call.bytes, &spec);
    for (;;) {
        struct cluster_wait wait;
        cluster_wait_init(&wait);
        wait.deadline_ns = clock_deadline(3000);
        call.sequence++;
        struct native_result result = shm_native.advance(group, form, &call, &wait.wait);
        if (result.outcome == NATIVE_DONE && call.sequence == 50)
            REQUIRE(write(shared_pid_fd, "x", 1) == 1);
        if (result.outcome == NATIVE_DONE)
            continue;
        REQUIRE(result.outcome == NATIVE_PAUSED && wait.stopped);
        REQUIRE(wait.wait.waiting_for == !rank);
        break;
    }
    free(data);
    shm_native.group_close(group);
}

Test(shm_connect, C46_survivor_of_a_killed_peer_stops_at_its_deadline) {
    for (int round = 0; round < 3; round++) {
        struct cluster cluster;
        cluster_open(&cluster, 2);
        cluster_connect_all(&cluster);
        int started[2];
        cr_assert_eq(pipe(started), 0);
        pid_t children[2];
        for (int r = 0; r < 2; r++) {
            children[r] = fork();
            if (children[r] == 0) {
                run_survivor(&cluster, r, started[1]);
                _exit(0);
            }
        }
        char byte;
        cr_assert_eq(read(started[0], &byte, 1), 1);
        usleep((useconds_t)round * 700);
        kill(children[1], SIGKILL);
        int status;
        cr_assert_eq(waitpid(children[1], &status, 0), children[1]);
        cr_assert(WIFSIGNALED(status));
        cr_assert_eq(waitpid(children[0], &status, 0), children[0]);
        cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        close(started[0]);
        close(started[1]);
        cluster_close(&cluster);
    }
}

/* -- the heap -------------------------------------------------------------------------------- */

/* Pages that the file of a heap holds. */
static long heap_pages(const struct shm_heap *heap) {
    struct stat file;
    REQUIRE(fstat(heap->fd, &file) == 0);
    return (long)(file.st_blocks * 512 / SHM_PAGE);
}

/* Whether the mapping that begins at `base` has asked for huge pages. */
static bool asks_for_huge_pages(const uint8_t *base) {
    FILE *maps = fopen("/proc/self/smaps", "re");
    char line[512];
    bool inside = false, asks = false;
    REQUIRE(maps != NULL);
    while (fgets(line, sizeof line, maps)) {
        if (strstr(line, "memfd:rota-heap"))
            inside = (uintptr_t)base == strtoull(line, NULL, 16);
        if (!inside || strncmp(line, "VmFlags:", 8) != 0)
            continue;
        asks = strstr(line, " hg") != NULL;
        inside = false;
    }
    fclose(maps);
    return asks;
}

Test(shm_heap, huge_pages_are_asked_for_unless_off) {
    for (int huge = 0; huge < 2; huge++) {
        struct shm_heap heap;
        shm_heap_open(&heap, huge);
        bool known = access("/sys/kernel/mm/transparent_hugepage", F_OK) == 0;
        cr_assert_eq(asks_for_huge_pages(heap.base), huge && known);
        shm_heap_close(&heap);
    }
}

Test(shm_heap, freed_pages_go_back_and_ranges_join) {
    struct shm_heap heap;
    shm_heap_open(&heap, true);
    cr_assert_eq(heap.bytes, SHM_HEAP_BYTES);
    uint8_t *blocks[50];
    for (int i = 0; i < 50; i++) {
        blocks[i] = shm_heap_allocate(&heap, (size_t)i * 5000 + 1);
        REQUIRE(blocks[i]);
        memset(blocks[i], i + 1, (size_t)i * 5000 + 1);
    }
    cr_assert_geq(heap_pages(&heap), 50);
    for (int i = 0; i < 50; i++)
        cr_assert(blocks[i][0] == i + 1 && blocks[i][i * 5000] == i + 1);
    for (int i = 0; i < 50; i++)
        cr_assert(shm_heap_free(&heap, blocks[i * 37 % 50]));
    cr_assert_eq(heap_pages(&heap), 0);
    cr_assert_eq(heap.free.count, 1);
    cr_assert_eq(heap.free.range[0].bytes, SHM_HEAP_BYTES);
    uint8_t *whole = shm_heap_allocate(&heap, SHM_HEAP_BYTES);
    cr_assert_eq(whole, heap.base);
    cr_assert_eq(whole[0], 0); /* nothing of what was there */
    cr_assert_null(shm_heap_allocate(&heap, 1));
    cr_assert_null(shm_heap_allocate(&heap, SHM_HEAP_BYTES + 1));
    cr_assert_not(shm_heap_free(&heap, whole + SHM_PAGE));
    cr_assert_not(shm_heap_free(&heap, blocks));
    cr_assert_eq(shm_heap_find(&heap, whole, SHM_HEAP_BYTES), 1);
    cr_assert_eq(shm_heap_find(&heap, whole + 8, SHM_HEAP_BYTES), 0);
    cr_assert_eq(shm_heap_find(&heap, blocks, 1), 0);
    shm_heap_close(&heap);
}

Test(shm_heap, a_peer_sees_what_is_there_now) {
    struct shm_heap heap;
    shm_heap_open(&heap, true);
    cr_assert_null(shm_heap_map(heap.fd, heap.bytes - SHM_PAGE)); /* not what it said */
    const uint8_t *seen = shm_heap_map(heap.fd, heap.bytes);
    REQUIRE(seen);
    uint8_t *first = shm_heap_allocate(&heap, 100);
    size_t offset = shm_heap_find(&heap, first, 100) - 1;
    first[50] = 7;
    cr_assert_eq(seen[offset + 50], 7);
    cr_assert(shm_heap_free(&heap, first));
    cr_assert_eq(seen[offset + 50], 0);
    uint8_t *second = shm_heap_allocate(&heap, 100);
    second[50] = 8;
    cr_assert_eq(seen[shm_heap_find(&heap, second, 100) - 1 + 50], 8);
    shm_heap_unmap(seen, heap.bytes);
    shm_heap_close(&heap);
}

Test(shm_heap, limited_address_space_has_none) {
    struct rlimit limit = {.rlim_cur = (rlim_t)1 << 50, .rlim_max = RLIM_INFINITY};
    cr_assert_eq(setrlimit(RLIMIT_AS, &limit), 0);
    struct shm_heap heap;
    shm_heap_open(&heap, true);
    cr_assert_eq(heap.fd, -1);
    cr_assert_null(shm_heap_allocate(&heap, 1));
    cr_assert_eq(shm_heap_find(&heap, &heap, 1), 0);
    shm_heap_close(&heap);
}
