/* Folders of recordings for tests. */
#include "folder.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *folder_make(void) {
    static char folder[64];
    snprintf(folder, sizeof(folder), "/tmp/rota-test-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    setenv("ROTA_RECORD_DIR", folder, 1);
    return folder;
}

void folder_remove(const char *folder) {
    char command[256];
    snprintf(command, sizeof(command), "chmod -R u+rwX '%s' && rm -rf '%s'", folder, folder);
    cr_assert_eq(system(command), 0);
}

int folder_count(const char *folder) {
    DIR *dir = opendir(folder);
    if (dir == NULL)
        return -1;
    int count = 0;
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(dir);
    return count;
}

struct recorder *folder_recorder(unsigned char job, int rank, int nranks) {
    struct settings *settings;
    struct recorder *recorder = NULL;
    struct recorder_owner owner = {.rank = rank, .nranks = nranks, .host = "here"};
    memset(owner.job, job, sizeof(owner.job));
    cr_assert_eq(settings_load(&settings), ROTA_OK);
    cr_assert_eq(recorder_open(settings, &owner, &recorder), ROTA_OK);
    settings_free(settings);
    return recorder;
}

struct record_entry folder_entry(uint64_t sequence) {
    return (struct record_entry){.sequence = sequence,
                                 .fingerprint = 77,
                                 .count = 10,
                                 .dtype = ROTA_FLOAT32,
                                 .op = ROTA_SUM,
                                 .root = -1,
                                 .kind = ROTA_KIND_ALL_REDUCE};
}
