/* Where the calling thread may run, and what is near: for memory and threads that go with it. */
#ifndef BASE_PLACE_H
#define BASE_PLACE_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>

/* The NUMA node with memory that has all CPUs of the set; -1: there is none, or it is not known.
 * `system` is the folder of the kernel's description, NULL: /sys/devices/system. */
int place_node(const char *system, const cpu_set_t *cpus);

/* The first CPU of the third-level cache (the kernel's index3) that all CPUs of the set share; -1:
 * there is none, or it is not known. */
int place_cache(const char *system, const cpu_set_t *cpus);

/* CPUs for a helper of a thread that may run on `cpus` and does on `cpu`: others of the same NUMA
 * node if there are any, else others, in both cases not those of its core. False when nothing is
 * left, when the thread may run everywhere (then it has no place of its own), or is not known. */
bool place_beside(const char *system, const cpu_set_t *cpus, int cpu, cpu_set_t *beside);
/* The same for the calling thread. */
bool place_beside_me(cpu_set_t *beside);

/* Lets pages of a mapping, whoever touches them first, come from the NUMA node of the calling
 * thread, if all CPUs that it may run on are of one. Where the system refuses, a line at info calls
 * the mapping `what`. */
void place_memory(const char *what, void *memory, size_t bytes);

#endif
