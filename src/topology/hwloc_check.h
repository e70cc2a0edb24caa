/* What is looked at in hwloc XML before hwloc reads it. */
#ifndef TOPOLOGY_HWLOC_CHECK_H
#define TOPOLOGY_HWLOC_CHECK_H

#include <rota/status.h>
#include <stddef.h>

/* Checks the bytes and copies them without comments; *text is the caller's to free, NUL-terminated,
 * *text_length without the NUL. *version is the one that the file states. Errors: ROTA_ERR_FORMAT
 * naming source, line and what is missing, ROTA_ERR_MEMORY. */
rota_status hwloc_check(const char *source, const char *bytes, size_t length, char **text,
                        size_t *text_length, int *version);

#endif
