/* The progress thread: one per process, started by the first request; serves all jobs that have
 * requests under way, and sleeps otherwise. */
#ifndef ENGINE_PROGRESS_H
#define ENGINE_PROGRESS_H

#include "engine/job.h"

/* Inside the domain: one more, or one fewer, request that must go on without its caller, or be
 * begun without it (`begin`). */
void progress_want(struct job *job, bool begin);
void progress_unwant(struct job *job);
/* Any thread, without a lock: there is new work for the progress thread, which the job has wanted.
 */
void progress_kick(struct job *job);
/* Outside the domain, before the job is freed: the thread will not touch it again. */
void progress_forget(struct job *job);
/* Called in the child of a fork. */
void progress_after_fork(void);

#endif
