/* Bare loops of an fp32 all-reduce of two ranks in shared memory: flags, copies and additions, no
 * library, no choice, no errors. What a call takes more than the fastest of them is overhead.
 * Copies into shared memory are vector stores, string moves, or string moves of 2 KiB (see
 * lines.c). Inputs are rewritten before each call, and that cost taken off. The least of 25
 * repetitions is printed. Run by hand. */
#include "base/clock.h"
#include "reduce/reduce.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST ((size_t)4 << 20)
#define SLICE ((size_t)256 * 1024)
#define REPETITIONS 25

enum copying { VECTORS, STRINGS, PIECES, COPYINGS };
enum loop { INLINE, ONE_SHOT, TWO_SHOT, MAPPED };

struct flag {
    _Alignas(128) _Atomic uint64_t number;
    float value[2];
};

struct rank {
    struct flag line[2], staged, reduced, done;
    _Alignas(4096) uint8_t slot[2][MOST], result[2][MOST], send[MOST], recv[MOST];
};

static struct rank *ranks;
static struct rank *own, *other;
static struct reduce_spec spec;
static uint64_t calls, slices, rounds;

static void show(struct flag *flag, uint64_t number) {
    atomic_store_explicit(&flag->number, number, memory_order_release); /* partner: await */
}

static void await(const struct flag *flag, uint64_t number) {
    while (atomic_load_explicit(&flag->number, memory_order_acquire) < number) /* partner: show */
        cpu_relax();
}

static void publish(enum copying copying, uint8_t *to, const uint8_t *from, size_t bytes) {
    if (copying == VECTORS) {
        reduce_copy(spec.isa, to, from, bytes);
        return;
    }
    for (size_t part; bytes > 0; bytes -= part, to += part, from += part) {
        part = copying == PIECES && bytes > 2048 ? 2048 : bytes;
        reduce_publish(spec.isa, to, from, part);
    }
}

static void add(uint8_t *to, const uint8_t *left, const uint8_t *right, size_t bytes) {
    reduce_pair(&spec, to, NULL, left, right, bytes / sizeof(float));
}

static void run_inline(const uint8_t *send, uint8_t *recv) {
    struct flag *line = &own->line[++calls & 1];
    const struct flag *theirs = &other->line[calls & 1];
    memcpy(line->value, send, 8);
    show(line, calls);
    await(theirs, calls);
    for (int i = 0; i < 2; i++)
        ((float *)(void *)recv)[i] = ((const float *)(const void *)send)[i] + theirs->value[i];
}

static void run_one_shot(enum copying copying, const uint8_t *send, uint8_t *recv, size_t bytes) {
    struct flag *line = &own->line[++calls & 1];
    publish(copying, own->slot[calls & 1], send, bytes);
    show(line, calls);
    await(&other->line[calls & 1], calls);
    add(recv, send, other->slot[calls & 1], bytes);
}

/* Rank 0 adds the first half of each slice. */
static void run_two_shot(enum copying copying, const uint8_t *send, uint8_t *recv, size_t bytes) {
    int turn = (int)(++calls & 1);
    size_t most = bytes < SLICE ? bytes : SLICE, count = bytes / most, half = most / 2;
    size_t mine = own == ranks ? 0 : half, theirs = half - mine;
    for (size_t t = 0; t < count + 2; t++) {
        if (t >= 2) {
            size_t at = (t - 2) * most + theirs;
            await(&other->reduced, slices + t - 1);
            reduce_copy(spec.isa, recv + at, other->result[turn] + at, half);
        }
        if (t < count) {
            publish(copying, own->slot[turn] + t * most + theirs, send + t * most + theirs, half);
            show(&own->staged, slices + t + 1);
        }
        if (t >= 1 && t <= count) {
            size_t at = (t - 1) * most + mine;
            await(&other->staged, slices + t);
            add(recv + at, send + at, other->slot[turn] + at, half);
            publish(copying, own->result[turn] + at, recv + at, half);
            show(&own->reduced, slices + t);
        }
    }
    slices += count;
}

static void run_mapped(size_t bytes) {
    size_t half = bytes / 2, mine = own == ranks ? 0 : half, theirs = half - mine;
    slices++;
    show(&own->staged, slices);
    await(&other->staged, slices);
    add(own->recv + mine, own->send + mine, other->send + mine, half);
    show(&own->reduced, slices);
    await(&other->reduced, slices);
    reduce_copy(spec.isa, own->recv + theirs, other->recv + theirs, half);
    show(&own->done, ++rounds);
    await(&other->done, rounds);
}

static void dirty(uint8_t *data, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 64)
        *(volatile int *)(void *)(data + i) = 0;
}

/* Microseconds of one call. */
static double measure(enum loop loop, enum copying copying, uint8_t *send, uint8_t *recv,
                      size_t bytes) {
    double least = 1e9;
    int turns = bytes <= 4096 ? 2000 : bytes <= 65536 ? 500 : bytes <= (1 << 20) ? 40 : 10;
    for (int repetition = 0; repetition < REPETITIONS; repetition++) {
        int64_t began = clock_now_ns();
        for (int i = 0; i < turns; i++)
            dirty(send, bytes);
        int64_t dirtied = clock_now_ns() - began;
        show(&own->done, ++rounds);
        await(&other->done, rounds);
        began = clock_now_ns();
        for (int i = 0; i < turns; i++) {
            dirty(send, bytes);
            if (loop == INLINE)
                run_inline(send, recv);
            else if (loop == ONE_SHOT)
                run_one_shot(copying, send, recv, bytes);
            else if (loop == TWO_SHOT)
                run_two_shot(copying, send, recv, bytes);
            else
                run_mapped(bytes);
        }
        double took = 1e-3 * (double)(clock_now_ns() - began - dirtied) / turns;
        least = took < least ? took : least;
        show(&own->done, ++rounds);
        await(&other->done, rounds);
    }
    return least;
}

static void run(int rank) {
    static const size_t sizes[] = {4096, 16384, 65536, 262144, 1048576, MOST};
    static const char *const names[] = {"vectors", "strings", "pieces"};
    uint8_t *send = aligned_alloc(4096, MOST), *recv = aligned_alloc(4096, MOST);
    cpu_set_t cpu;
    CPU_ZERO(&cpu);
    CPU_SET((size_t)rank, &cpu);
    (void)sched_setaffinity(0, sizeof cpu, &cpu);
    if (!send || !recv)
        abort();
    own = &ranks[rank];
    other = &ranks[!rank];
    memset(send, 0, MOST);
    memset(recv, 0, MOST);
    double took = measure(INLINE, VECTORS, send, recv, 8);
    if (rank == 0)
        printf("%8d B  inline %.3f\n", 8, took);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (rank == 0)
            printf("%8zu B ", sizes[i]);
        for (enum loop loop = ONE_SHOT; loop <= TWO_SHOT; loop++)
            for (enum copying copying = 0; copying < COPYINGS; copying++) {
                took = measure(loop, copying, send, recv, sizes[i]);
                if (rank == 0)
                    printf(" %s/%s %.2f", loop == ONE_SHOT ? "one-shot" : "two-shot",
                           names[copying], took);
            }
        took = measure(MAPPED, VECTORS, own->send, own->recv, sizes[i]);
        if (rank == 0)
            printf("  mapped %.2f us\n", took);
    }
}

int main(void) {
    size_t bytes = 2 * sizeof(struct rank);
    ranks =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (ranks == MAP_FAILED ||
        reduce_spec_init(&spec, ROTA_FLOAT32, ROTA_SUM, 2, cpu_isa_best()) != ROTA_OK)
        return 1;
    pid_t child = fork();
    if (child < 0)
        return 1;
    run(child == 0);
    if (child > 0)
        (void)waitpid(child, NULL, 0);
    return 0;
}
