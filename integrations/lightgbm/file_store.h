/* A key-value store of files for ranks on one machine. */
#ifndef ROTA_LIGHTGBM_FILE_STORE_H
#define ROTA_LIGHTGBM_FILE_STORE_H

#include <rota/rota.h>

struct file_store {
    char path[512]; /* what all files begin with */
};

/* Prepares the store of the job `id`. Returns 0, or 1 when the path is too long. */
int file_store_open(struct file_store *files, const char *id, rota_store *store);

/* Removes what rank 0 has set. */
void file_store_remove(const struct file_store *files);

#endif
