/* What a process knows of itself: its random identity, its host, its cores. */
#include "bootstrap/process.h"
#include "base/cpu.h"
#include "base/error.h"
#include "bootstrap/bootstrap.h"
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
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

/* Unchanged while the machine runs, the same in all its containers. "" when it cannot be read. */
static void read_boot_id(char id[64]) {
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, id, 63) : 0;
    id[got > 0 ? got : 0] = 0;
    if (fd >= 0)
        close(fd);
}

/* Being on one host is a hint only: whether memory can be shared is found out when connecting. */
static void machine_hash(const char *host_id, const char *host, uint8_t machine[16]) {
    crypto_generichash_state state;
    char boot_id[64];
    crypto_generichash_init(&state, NULL, 0, 16);
    const char *label = host_id[0] != 0 ? "host id" : "boot id";
    crypto_generichash_update(&state, (const unsigned char *)label, strlen(label) + 1);
    if (host_id[0] != 0) {
        crypto_generichash_update(&state, (const unsigned char *)host_id, strlen(host_id));
    } else {
        read_boot_id(boot_id);
        crypto_generichash_update(&state, (const unsigned char *)boot_id, strlen(boot_id) + 1);
        crypto_generichash_update(&state, (const unsigned char *)host, strlen(host));
    }
    crypto_generichash_final(&state, machine, 16);
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
    process_random(record->process);
    machine_hash(host_id, host, record->machine);
    memset(record->host, 0, sizeof record->host);
    snprintf(record->host, sizeof record->host, "%.63s", host_id[0] != 0 ? host_id : host);
    return ROTA_OK;
}
