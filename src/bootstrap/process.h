/* What a process knows of itself. Internal to bootstrap. */
#ifndef BOOTSTRAP_PROCESS_H
#define BOOTSTRAP_PROCESS_H

#include "base/settings.h"
#include <stdint.h>

/* 16 random bytes, the same in all threads; others in the child of a fork. */
void process_random(uint8_t random[16]);
uint64_t process_incarnation(void);
/* The protocol range to announce, by setting for tests. */
void process_protocols(const struct settings *settings, uint16_t *first, uint16_t *last);

#endif
