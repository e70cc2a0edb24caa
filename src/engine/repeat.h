/* Calls like one before. Programs repeat the same few calls, so what was checked and chosen for a
 * blocking call is kept, and the same call with other buffers looks only at these. */
#ifndef ENGINE_REPEAT_H
#define ENGINE_REPEAT_H

#include "engine/comm.h"

/* Runs a call without options, of checked communicator, as one like it was run before. False: do it
 * the long way; nothing has happened. The call's buffers have so many blocks of `count`. */
bool repeat_run(rota_comm *comm, struct call_args *args, size_t send_blocks, size_t recv_blocks,
                rota_status *status);
/* Keeps how a call was run: by a native form, or by an algorithm. Holding `busy`. */
void repeat_keep(rota_comm *comm, const struct call_args *args, const struct native_form *form,
                 const struct algorithm *algorithm, const struct reduce_spec *spec);

#endif
