/* MSCCL's XML as it stands in the file: thread blocks of steps, by GPU. */
#ifndef SCHEDULE_MSCCL_H
#define SCHEDULE_MSCCL_H

#include "schedule/text.h"

enum msccl_type {
    MSCCL_SEND,                  /* s */
    MSCCL_RECV,                  /* r */
    MSCCL_RECV_COPY_SEND,        /* rcs: to dst, and on */
    MSCCL_RECV_REDUCE_COPY,      /* rrc: message and src to dst */
    MSCCL_RECV_REDUCE_SEND,      /* rrs: message and src on, kept nowhere */
    MSCCL_RECV_REDUCE_COPY_SEND, /* rrcs */
    MSCCL_COPY,                  /* cpy */
    MSCCL_REDUCE,                /* re: dst and src to dst */
    MSCCL_NOP,                   /* nop: waits alone */
    MSCCL_TYPES
};

enum { MSCCL_INPUT = 0, MSCCL_OUTPUT = 1, MSCCL_SCRATCH = 2 };

struct msccl_step {
    enum msccl_type type;
    uint32_t line;
    int src_buffer, dst_buffer;
    int32_t src_offset, dst_offset; /* checked against the buffers by the translation */
    uint32_t count;
    int32_t dep_block, dep_step; /* of the same GPU, -1: none */
};

struct msccl_block {
    int32_t send, recv; /* peers, -1: none */
    uint32_t channel, gpu;
    uint32_t first_step, nsteps;
};

struct msccl_gpu {
    uint32_t scratch_chunks;
    uint32_t first_block, nblocks;
};

struct msccl {
    rota_kind kind;
    bool in_place;
    uint32_t ngpus, chunks_per_block;
    struct msccl_gpu *gpus;
    struct msccl_block *blocks;
    struct msccl_step *steps;
    uint32_t ngpus_read, nblocks, nsteps;
    uint32_t gpu_room, block_room, step_room;
    uint32_t widest; /* largest count of a step */
};

/* Both raise ROTA_ERR_FORMAT, naming the line, or ROTA_ERR_MEMORY. */
rota_status msccl_parse(const char *bytes, size_t length, struct msccl *file);
rota_status msccl_translate(const struct msccl *file, struct sched_set *set);
void msccl_free(struct msccl *file);

#endif
