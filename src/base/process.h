/* What /proc says of processes and of the machine's boot. */
#ifndef BASE_PROCESS_H
#define BASE_PROCESS_H

#include <stdint.h>
#include <sys/types.h>

/* Clock ticks from boot to the start of a process: with the pid they name it for good. 0: there is
 * no such process, or /proc does not tell. */
uint64_t process_started(pid_t pid);
/* Unchanged while the machine runs, the same in all its containers. "" when it cannot be read. */
void process_boot_id(char id[40]);

#endif
