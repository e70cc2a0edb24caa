/* Errors inside the library. Whoever detects an error describes it once, with error_raise; the
 * record travels in the calling thread until the engine copies it to a request or communicator.
 * Nobody above the detector logs or rewords it. */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <rota/status.h>
#include <stdarg.h>

/* Starts the calling thread's record afresh and returns `status`, so that
 * `return error_raise(...)` is the usual form. */
rota_status error_raise(rota_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3), cold));
/* As error_raise with ROTA_ERR_SYSTEM; appends the text of `system_error` (an errno value). */
rota_status error_raise_system(int system_error, const char *format, ...)
    __attribute__((format(printf, 2, 3), cold));
/* The calling thread's record, for adding fields (peer, culprits, sequence) after raising. */
rota_error *error_record(void);
/* Adds a rank to a record's culprits unless it is there or the list is full. */
void error_add_culprit(rota_error *record, int rank);
/* Copies a record into the caller's, up to the caller's size. */
rota_status error_copy(const rota_error *from, rota_error *to);
void error_clear(void);

#endif
