/* What a process knows of itself: its random identity, its host, its cores. */
#include "bootstrap/process.h"
#include "base/cpu.h"
#include "base/error.h"
#include "bootstrap/bootstrap.h"
#include <fcntl.h>
#include <pthread.h>
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
    process_random(record->process);
    machine_hash(host_id, host, record->machine);
    memset(record->host, 0, sizeof record->host);
    snprintf(record->host, sizeof record->host, "%.63s", host_id[0] != 0 ? host_id : host);
    return ROTA_OK;
}
