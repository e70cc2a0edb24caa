/* What a process knows of itself: its random identity, its host, its cores. */
#include "bootstrap/process.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/process.h"
#include "bootstrap/bootstrap.h"
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void process_random(uint8_t random[16]) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static uint8_t drawn[16];
    static pid_t drawn_by; /* 0: nobody yet */
    pthread_mutex_lock(&lock);
    if (drawn_by != getpid()) {
        net_random(drawn, sizeof drawn);
        drawn_by = getpid();
    }
    memcpy(random, drawn, sizeof drawn);
    pthread_mutex_unlock(&lock);
}

uint64_t process_incarnation(void) {
    uint8_t random[16];
    uint64_t incarnation;
    process_random(random);
    memcpy(&incarnation, random, sizeof incarnation);
    return incarnation;
}

void process_protocols(const struct settings *settings, uint16_t *first, uint16_t *last) {
    int64_t test = settings_integer(settings, SETTING_TEST_PROTOCOL);
    *first = test != 0 ? (uint16_t)test : NET_PROTOCOL_FIRST;
    *last = test != 0 ? (uint16_t)test : NET_PROTOCOL_LAST;
}

/* Being on one host is a hint only: whether memory can be shared is found out when connecting. */
static void machine_hash(const char *host_id, const char *host, uint8_t machine[16]) {
    crypto_generichash_state state;
    char boot_id[40];
    crypto_generichash_init(&state, NULL, 0, 16);
    const char *label = host_id[0] != 0 ? "host id" : "boot id";
    crypto_generichash_update(&state, (const unsigned char *)label, strlen(label) + 1);
    if (host_id[0] != 0) {
        crypto_generichash_update(&state, (const unsigned char *)host_id, strlen(host_id));
    } else {
        process_boot_id(boot_id);
        crypto_generichash_update(&state, (const unsigned char *)boot_id, strlen(boot_id) + 1);
        crypto_generichash_update(&state, (const unsigned char *)host, strlen(host));
    }
    crypto_generichash_final(&state, machine, 16);
}

/* Where pids mean the same: one boot of one machine, one pid namespace, one reckoning of start
 * times. 0: unknown. */
static uint64_t pid_space(void) {
    struct stat pids, times = {0};
    char boot_id[40];
    uint64_t space = 0;
    crypto_generichash_state state;
    char self[16] = "";
    process_boot_id(boot_id);
    /* /proc may be that of another pid namespace. */
    if (readlink("/proc/self", self, sizeof self - 1) < 0 || strtol(self, NULL, 10) != getpid() ||
        boot_id[0] == 0 || stat("/proc/self/ns/pid", &pids) != 0)
        return 0;
    (void)stat("/proc/self/ns/time", &times); /* older systems have none */
    uint64_t parts[] = {pids.st_dev, pids.st_ino, times.st_dev, times.st_ino};
    unsigned char hash[16];
    crypto_generichash_init(&state, NULL, 0, sizeof hash);
    crypto_generichash_update(&state, (const unsigned char *)boot_id, strlen(boot_id));
    crypto_generichash_update(&state, (const unsigned char *)parts, sizeof parts);
    crypto_generichash_final(&state, hash, sizeof hash);
    memcpy(&space, hash, sizeof space);
    return space;
}

static uint32_t first_core(void) {
    cpu_set_t usable;
    CPU_ZERO(&usable);
    if (sched_getaffinity(0, sizeof usable, &usable) != 0)
        return 0;
    for (uint32_t core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &usable))
            return core;
    return 0;
}

static bool share_cores(const struct bootstrap_record *a, const struct bootstrap_record *b) {
    return a->first_core == b->first_core && a->cores == b->cores &&
           memcmp(a->machine, b->machine, sizeof a->machine) == 0;
}

int bootstrap_host_cores(const struct bootstrap_record *records, int nranks, int rank) {
    int64_t sum = 0;
    for (int r = 0; r < nranks; r++) {
        int before = 0;
        if (memcmp(records[r].machine, records[rank].machine, sizeof records[r].machine) != 0)
            continue;
        while (before < r && !share_cores(&records[before], &records[r]))
            before++;
        sum += before == r ? records[r].cores : 0;
    }
    return sum < 1 ? 1 : sum > INT_MAX ? INT_MAX : (int)sum;
}

rota_status bootstrap_describe(const struct settings *settings, struct bootstrap_record *record) {
    const char *host_id = settings_text(settings, SETTING_HOST_ID);
    char host[256] = "";
    if (sodium_init() < 0)
        return error_raise(ROTA_ERR_SYSTEM, "libsodium cannot be initialised");
    if (gethostname(host, sizeof host - 1) != 0 || host[0] == 0)
        snprintf(host, sizeof host, "unknown");
    record->magic = NET_MAGIC;
    process_protocols(settings, &record->protocol_first, &record->protocol_last);
    record->incarnation = process_incarnation();
    record->agreement = settings_agreement(settings);
    record->pid = (int32_t)getpid();
    record->cores = (uint32_t)cpu_usable_cores();
    record->first_core = first_core();
    record->pid_space = pid_space();
    record->started = process_started(record->pid);
    process_random(record->process);
    machine_hash(host_id, host, record->machine);
    memset(record->host, 0, sizeof record->host);
    snprintf(record->host, sizeof record->host, "%.63s", host_id[0] != 0 ? host_id : host);
    return ROTA_OK;
}
