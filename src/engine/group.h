/* Groups of operations that start together, and requests that stand for several. */
#ifndef ENGINE_GROUP_H
#define ENGINE_GROUP_H

#include "engine/comm.h"

/* Records a checked call (call->group is the group). Errors: ROTA_ERR_MEMORY. */
rota_status group_record(rota_comm *comm, const struct call_args *args, const rota_call *call);
/* Remembers that a call which was to be recorded was refused with the thread's error. */
void group_refuse(rota_group *group);
rota_status group_begin(rota_group **group);
rota_status group_add(rota_group *outer, rota_group *inner);
/* Frees it, and starts nothing. Errors: ROTA_ERR_STATE, as group_end. */
rota_status group_drop(rota_group *group);
rota_status group_end(rota_group *group, const rota_call *call);

#endif
