/* Log lines on stderr, silent by default: level and file come from the setting ROTA_LOG. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

enum log_level { LOG_SILENT = 0, LOG_ERROR = 1, LOG_WARN = 2, LOG_INFO = 3, LOG_DEBUG = 4 };

void log_set_level(enum log_level level);
enum log_level log_get_level(void);
/* One line "rota[pid] level: text", written by a single write(2). */
void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
