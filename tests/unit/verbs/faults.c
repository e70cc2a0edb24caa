/* Calls of the double that fail when they are told to. See fake.h. */
#include "fake.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

static struct fault {
    const char *call;
    int after, times, error;
} faults[8];

bool fake_fails(const char *call) {
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        struct fault *fault = &faults[i];
        if (!fault->call || strcmp(fault->call, call) != 0 || --fault->after > 0)
            continue;
        errno = fault->error;
        if (--fault->times == 0)
            fault->call = NULL;
        return true;
    }
    return false;
}

void fake_fail(const char *call, int after, int times, int error) {
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        if (!faults[i].call) {
            faults[i] = (struct fault){call, after, times, error};
            return;
        }
    }
}

void fake_clear(void) {
    memset(faults, 0, sizeof faults);
}
