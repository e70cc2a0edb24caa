/* Errors inside the library. Whoever detects an error describes it once, with error_raise; the
 * record travels in the calling thread until the engine copies it to a request or communicator.
 * Nobody above the detector logs or rewords it. */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <rota/status.h>
#include <stdarg.h>

/* Starts the calling thread's record afresh and returns `status`, so that
 * `return error_raise(ROTA_ERR_..., format, ...)` is the usual form. A macro, so that the compiler
 * sees that an error is returned, and not some status that might be ROTA_OK. */
#define error_raise(status, ...)                                                                   \
    __extension__({                                                                                \
        const rota_status error_raised_ __attribute__((unused)) = (status);                        \
        error_describe(error_raised_, __VA_ARGS__);                                                \
        error_raised_;                                                                             \
    })
/* As error_raise with ROTA_ERR_SYSTEM; appends the text of `system_error` (an errno value). */
#define error_raise_system(system_error, ...)                                                      \
    __extension__({                                                                                \
        const rota_status error_raised_ __attribute__((unused)) = ROTA_ERR_SYSTEM;                 \
        error_describe_system((system_error), __VA_ARGS__);                                        \
        error_raised_;                                                                             \
    })
/* What the two are made of. */
void error_describe(rota_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3), cold));
void error_describe_system(int system_error, const char *format, ...)
    __attribute__((format(printf, 2, 3), cold));
/* The calling thread's record, for adding fields (peer, culprits, sequence) after raising. */
rota_error *error_record(void);
/* Adds a rank to a record's culprits unless it is there or the list is full. */
void error_add_culprit(rota_error *record, int rank);
/* Copies a record into the caller's, up to the caller's size. */
rota_status error_copy(const rota_error *from, rota_error *to);
void error_clear(void);

#endif
