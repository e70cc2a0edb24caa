/* Small all-reduces of one group as a single one. */
#ifndef ENGINE_FUSION_H
#define ENGINE_FUSION_H

#include "engine/comm.h"

struct fusion {
    struct call_args args; /* of the call that stands for the parts: in place in `memory` */
    void *memory;
    int count;
    struct call_args parts[]; /* in order */
};

/* The largest result of a fusion in bytes, as the setting says: 0 where nothing is fused. */
size_t fusion_limit(const rota_comm *comm);
/* Whether a recorded call can be a part. Looks at nothing that ranks might see differently. */
bool fusion_takes(const rota_comm *comm, const struct call_args *args, const rota_call *call);
/* Whether two that can be parts can be of the same fusion. */
bool fusion_joins(const struct call_args *a, const rota_call *a_call, const struct call_args *b,
                  const rota_call *b_call);
/* An empty fusion for up to `capacity` parts like this one, NULL without memory. */
struct fusion *fusion_create(const struct call_args *like, int capacity);
void fusion_add(struct fusion *fusion, const struct call_args *part);
/* Copies the parts' inputs together and makes `args`. Waits for copies of foreign memory.
 * Errors: ROTA_ERR_MEMORY. */
rota_status fusion_pack(struct fusion *fusion, struct job *job);
/* Copies the results to the parts. As above. */
rota_status fusion_unpack(const struct fusion *fusion, struct job *job);
void fusion_free(struct fusion *fusion);

#endif
