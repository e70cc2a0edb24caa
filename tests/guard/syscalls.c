/* System calls per operation, counted by ptrace: none for small calls over shared memory, and over
 * TCP one send per message, and no more receives that bring something than messages justify.
 *
 * The traced process has two ranks as threads. Blocks of operations lie between two calls of a
 * system call that nobody else makes, so what belongs to a block is known exactly. Waiting for a
 * rank that has lost its core may yield or sleep, so over shared memory the quietest block counts;
 * polls of sockets that bring nothing depend on who is late and are only printed. */
#include "pin.h"
#include <rota/rota.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef PTRACE_GET_SYSCALL_INFO
#define PTRACE_GET_SYSCALL_INFO 0x420e
#endif
/* What PTRACE_GET_SYSCALL_INFO tells, as the kernel lays it out; headers differ in its name. */
struct stop_info {
    uint8_t op; /* 1: entry, 2: exit */
    uint8_t pad[3];
    uint32_t arch;
    uint64_t instruction_pointer, stack_pointer;
    union {
        struct {
            uint64_t nr, args[6];
        } entry;
        struct {
            int64_t rval;
            uint8_t is_error;
        } exit;
    };
};

#define MARK SYS_sched_get_priority_max
#define MARK_BEGIN 1000 /* + rank; more than any policy, so the call itself only fails */
#define MARK_END 2000
#define BLOCKS 40
#define SKIP 77

enum { PER_BLOCK = 20, LARGE = 1 << 18 };

/* Which operation a program of the traced process measures. */
static const struct {
    const char *name, *transport;
    rota_kind kind;
    size_t count;
    bool silent;            /* no system calls at all in the quietest block */
    double sends, receives; /* most per operation; 0: not limited */
} parts[] = {
    {"shm all_reduce of 8 bytes", "shm", ROTA_KIND_ALL_REDUCE, 2, true, 0, 0},
    {"shm all_reduce of 4 KiB", "shm", ROTA_KIND_ALL_REDUCE, 1024, true, 0, 0},
    {"shm barrier", "shm", ROTA_KIND_BARRIER, 0, true, 0, 0},
    {"tcp all_reduce of 8 bytes", "tcp", ROTA_KIND_ALL_REDUCE, 2, false, 1.0, 2.0},
    {"tcp all_reduce of 1 MiB", "tcp", ROTA_KIND_ALL_REDUCE, LARGE, false, 40, 160},
    {"tcp barrier", "tcp", ROTA_KIND_BARRIER, 0, false, 1.0, 2.0},
};
#define PARTS ((int)(sizeof(parts) / sizeof(parts[0])))

/* -- the traced process ------------------------------------------------------------------------
 */

struct rank {
    rota_comm *comm;
    int rank, part;
    rota_status status;
};

static _Atomic int arrived;

/* Both ranks begin a block together, by spinning alone: a traced system call takes so long that the
 * other rank would have to wait, make one itself, and so on for ever. */
static void meet(int block) {
    atomic_fetch_add_explicit(&arrived, 1, memory_order_acq_rel);
    while (atomic_load_explicit(&arrived, memory_order_acquire) < 2 * (block + 1))
        ;
}

static void *rank_run(void *arg) {
    struct rank *rank = arg;
    guard_pin(rank->rank);
    float *in = calloc(LARGE, sizeof(*in)), *out = calloc(LARGE, sizeof(*out));
    if (in == NULL || out == NULL)
        _exit(1);
    for (int block = -2; block < BLOCKS && rank->status == ROTA_OK; block++) {
        if (block >= 0) {
            syscall(MARK, MARK_BEGIN + rank->rank);
            meet(block);
        }
        for (int i = 0; i < PER_BLOCK && rank->status == ROTA_OK; i++)
            rank->status = parts[rank->part].kind == ROTA_KIND_BARRIER
                               ? rota_barrier(rank->comm, NULL)
                               : rota_all_reduce(in, out, parts[rank->part].count, ROTA_FLOAT32,
                                                 ROTA_SUM, rank->comm, NULL);
        if (block >= 0)
            syscall(MARK, MARK_END + rank->rank);
    }
    free(in);
    free(out);
    return NULL;
}

static int traced_main(int part) {
    rota_comm *comms[2];
    struct rank ranks[2];
    setenv("ROTA_TRANSPORT", parts[part].transport, 1);
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
        return SKIP;
    raise(SIGSTOP);
    if (rota_init_threads(2, comms, NULL) != ROTA_OK)
        return 1;
    for (int r = 0; r < 2; r++)
        ranks[r] = (struct rank){.comm = comms[r], .rank = r, .part = part};
    if (!guard_run_both(rank_run, &ranks[0], &ranks[1]))
        return 1;
    for (int r = 0; r < 2; r++)
        rota_comm_destroy(comms[r]);
    return ranks[0].status != ROTA_OK || ranks[1].status != ROTA_OK;
}

/* -- the tracer --------------------------------------------------------------------------------
 */

struct count {
    long calls, sends, receives;
};

struct traced {
    pid_t tid;
    int rank; /* inside a block: whose; else -1 */
    long nr;  /* of the call that it is in */
    struct count now;
};

struct tally {
    struct traced threads[64];
    int nthreads, blocks;
    struct count least, sum;
};

static struct traced *thread_of(struct tally *tally, pid_t tid) {
    for (int i = 0; i < tally->nthreads; i++)
        if (tally->threads[i].tid == tid)
            return &tally->threads[i];
    if (tally->nthreads == (int)(sizeof(tally->threads) / sizeof(tally->threads[0])))
        return NULL;
    struct traced *thread = &tally->threads[tally->nthreads++];
    *thread = (struct traced){.tid = tid, .rank = -1, .nr = -1};
    return thread;
}

static void block_end(struct tally *tally, struct traced *thread) {
    thread->rank = -1;
    thread->now.calls--; /* the mark */
    if (tally->blocks++ == 0 || thread->now.calls < tally->least.calls)
        tally->least = thread->now;
    tally->sum.calls += thread->now.calls;
    tally->sum.sends += thread->now.sends;
    tally->sum.receives += thread->now.receives;
}

static void note_entry(struct tally *tally, struct traced *thread, const struct stop_info *info) {
    thread->nr = (long)info->entry.nr;
    thread->now.calls++;
    if (thread->nr != MARK)
        return;
    if (info->entry.args[0] >= MARK_END && thread->rank >= 0) {
        block_end(tally, thread);
    } else if (info->entry.args[0] >= MARK_BEGIN) {
        thread->now = (struct count){0};
        thread->rank = (int)info->entry.args[0] - MARK_BEGIN;
    }
}

static void note_exit(struct traced *thread, const struct stop_info *info) {
    if (info->exit.is_error || info->exit.rval <= 0)
        return;
    thread->now.sends += thread->nr == SYS_sendmsg || thread->nr == SYS_sendto;
    thread->now.receives += thread->nr == SYS_recvmsg || thread->nr == SYS_recvfrom;
}

/* One stop of a traced thread; the signal to pass on. */
static int note_stop(struct tally *tally, pid_t tid, int status) {
    struct traced *thread = thread_of(tally, tid);
    struct stop_info info;
    if (WSTOPSIG(status) != (SIGTRAP | 0x80)) {
        /* Events of ptrace, and the stop in which a new thread begins, are no signals. */
        bool ours = status >> 16 != 0 || WSTOPSIG(status) == SIGSTOP;
        return ours ? 0 : WSTOPSIG(status);
    }
    if (thread == NULL || ptrace(PTRACE_GET_SYSCALL_INFO, tid, (void *)sizeof(info), &info) <= 0)
        return 0;
    if (info.op == 1)
        note_entry(tally, thread, &info);
    else if (info.op == 2)
        note_exit(thread, &info);
    return 0;
}

static int trace(pid_t child, struct tally *tally) {
    int status = 0;
    if (waitpid(child, &status, 0) != child)
        return 1;
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    if (ptrace(PTRACE_SETOPTIONS, child, NULL,
               (void *)(PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL)) != 0)
        return SKIP;
    ptrace(PTRACE_SYSCALL, child, NULL, NULL);
    for (;;) {
        pid_t tid = waitpid(-1, &status, __WALL);
        if (tid < 0 && errno == EINTR)
            continue;
        if (tid < 0)
            return 1;
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            if (tid == child)
                return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
            continue;
        }
        int signal = note_stop(tally, tid, status);
        ptrace(PTRACE_SYSCALL, tid, NULL, (void *)(intptr_t)signal);
    }
}

static int part_check(int part) {
    struct tally tally = {.blocks = 0};
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(traced_main(part));
    int status = child > 0 ? trace(child, &tally) : 1;
    if (status == SKIP) {
        printf("%s: skipped: this process may not trace\n", parts[part].name);
        return SKIP;
    }
    double operations = (double)tally.blocks * PER_BLOCK;
    if (status != 0 || tally.blocks != 2 * BLOCKS) {
        printf("%s: FAILED: status %d, %d blocks\n", parts[part].name, status, tally.blocks);
        return 1;
    }
    double sends = (double)tally.sum.sends / operations;
    double receives = (double)tally.sum.receives / operations;
    /* Ranks that share a core give it to each other. */
    bool silent = parts[part].silent && rota_usable_cores() > 1;
    bool bad = (silent && tally.least.calls > 0) ||
               (parts[part].sends > 0 && sends > parts[part].sends) ||
               (parts[part].receives > 0 && receives > parts[part].receives);
    printf("%-28s per operation and rank: %.2f calls, %.2f sends, %.2f receives that brought "
           "something; quietest block of %d: %ld calls%s\n",
           parts[part].name, (double)tally.sum.calls / operations, sends, receives, PER_BLOCK,
           tally.least.calls, bad ? ": TOO MANY" : "");
    return bad;
}

int main(void) {
    int failed = 0, skipped = 0;
    for (int part = 0; part < PARTS; part++) {
        int status = part_check(part);
        skipped += status == SKIP;
        failed += status == 1;
    }
    return failed ? 1 : skipped ? SKIP : 0;
}
