/* Profiles: files of NAME = VALUE lines,
 *
 *   rota_profile = 1
 *   machine = AMD EPYC 9B45 96-Core Processor, 2 cores
 *   placement = ranks 4 hosts 1 crowding 2
 *   tcp = latency_us 6 overhead_us 2.5 us_per_mib 520 reduce_us_per_mib 50
 *
 * with prices behind the placement at which they were measured. `rota bench --calibrate` writes
 * them; whatever else such a file holds is refused with its line. */
#include "engine/profile.h"

#include "base/error.h"
#include "base/setting_file.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <xxhash.h>

#define PROFILE_PLACEMENTS 64
#define PROFILE_NUMBER_MAX 1e9
#define MACHINE_CHARS 100
#define MIB 1048576.0

/* Measured by `rota bench --calibrate` with 2, 4 and 8 ranks on 2 cores of an EPYC (Zen 5), TCP
 * over loopback; per MiB for the eye. Verbs: what the data sheets of 100 Gbit/s adapters promise.
 */
static const struct prices built_in = {
    .links = {[ROTA_LINK_SHM] = {0.5, 0.38, 20 / MIB, 10 / MIB},
              [ROTA_LINK_TCP] = {2.5, 2.8, 50 / MIB, 30 / MIB},
              [ROTA_LINK_VERBS] = {2, 0.3, 84 / MIB, 30 / MIB},
              [ROTA_LINK_NATIVE] = {0.1, 0.02, 18 / MIB, 5 / MIB}}};

/* What a round takes longer for each further rank on the core: its turn. From the same fits. */
#define TURN_US 1.5

struct placement {
    int ranks, hosts;
    double crowding;
    uint32_t measured; /* bit per link */
    struct prices prices;
};

struct profile {
    uint64_t hash;
    bool begun, keyed; /* the first line, and that of the machine were there */
    int count;
    struct placement placements[PROFILE_PLACEMENTS];
};

/* -- the machine -------------------------------------------------------------------------------
 */

static char machine[MACHINE_CHARS + 32];

static void find_machine(void) {
    char line[512], model[MACHINE_CHARS + 1] = "";
    struct utsname system = {0};
    FILE *file = fopen("/proc/cpuinfo", "re");
    while (file != NULL && model[0] == '\0' && fgets(line, sizeof(line), file) != NULL) {
        const char *colon = strchr(line, ':');
        if (colon != NULL && strncmp(line, "model name", 10) == 0)
            snprintf(model, sizeof(model), "%.*s", MACHINE_CHARS,
                     colon + 1 + strspn(colon + 1, " \t"));
    }
    if (file != NULL)
        fclose(file);
    model[strcspn(model, "\n")] = '\0';
    if (model[0] == '\0' && uname(&system) == 0)
        snprintf(model, sizeof(model), "%.64s", system.machine);
    for (char *at = model; *at != '\0'; at++)
        if (*at < 0x20 || *at > 0x7e)
            *at = '?';
    snprintf(machine, sizeof(machine), "%s, %ld cores", model, sysconf(_SC_NPROCESSORS_ONLN));
}

const char *rota_machine_name(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_machine);
    return machine;
}

const char *rota_link_name(int link) {
    static const char *const names[] = {"shm", "tcp", "verbs", "native"};
    _Static_assert(sizeof(names) / sizeof(names[0]) == ROTA_LINK_COUNT, "a name for each class");
    return link >= 0 && link < ROTA_LINK_COUNT ? names[link] : NULL;
}

/* -- reading -----------------------------------------------------------------------------------
 */

/* Digits with at most one point, whatever the locale: strtod would ask it. */
static bool parse_number(const char *text, double *number) {
    double value = 0, unit = 0;
    const char *at = text;
    for (; (*at >= '0' && *at <= '9') || (*at == '.' && unit == 0); at++) {
        if (*at == '.') {
            unit = 1;
            continue;
        }
        value = value * 10 + (*at - '0');
        unit *= 10;
    }
    if (at == text || *at != '\0' || at - text > 24 || (at - text == 1 && *text == '.'))
        return false;
    *number = unit > 1 ? value / unit : value;
    return *number <= PROFILE_NUMBER_MAX;
}

/* "NAME NUMBER NAME NUMBER ...", exactly the names that are asked for, in their order. */
static bool parse_pairs(const char *text, const char *const *names, int count, double *numbers) {
    char copy[256], *rest = NULL;
    if (strlen(text) >= sizeof(copy))
        return false;
    strcpy(copy, text);
    for (int i = 0; i < count; i++) {
        const char *name = strtok_r(i == 0 ? copy : NULL, " ", &rest);
        const char *number = strtok_r(NULL, " ", &rest);
        if (name == NULL || number == NULL || strcmp(name, names[i]) != 0 ||
            !parse_number(number, &numbers[i]))
            return false;
    }
    return strtok_r(NULL, " ", &rest) == NULL;
}

static bool take_placement(struct profile *profile, const char *value) {
    static const char *const names[] = {"ranks", "hosts", "crowding"};
    double numbers[3];
    if (profile->count == PROFILE_PLACEMENTS || !parse_pairs(value, names, 3, numbers) ||
        numbers[0] < 1 || numbers[0] > 1048576 || numbers[1] < 1 || numbers[1] > numbers[0] ||
        numbers[2] < 1 || numbers[2] > numbers[0])
        return false;
    profile->placements[profile->count++] = (struct placement){
        .ranks = (int)numbers[0], .hosts = (int)numbers[1], .crowding = numbers[2]};
    return true;
}

static bool take_prices(struct profile *profile, const char *name, const char *value) {
    static const char *const names[] = {"latency_us", "overhead_us", "us_per_mib",
                                        "reduce_us_per_mib"};
    double numbers[4];
    if (profile->count == 0)
        return false;
    struct placement *placement = &profile->placements[profile->count - 1];
    for (int link = 0; link < ROTA_LINK_COUNT; link++) {
        if (strcmp(name, rota_link_name(link)) != 0 || !parse_pairs(value, names, 4, numbers))
            continue;
        placement->prices.links[link] =
            (struct link_price){numbers[0], numbers[1], numbers[2] / MIB, numbers[3] / MIB};
        placement->measured |= 1u << link;
        return true;
    }
    return false;
}

static rota_status take_line(void *arg, const char *path, int line, const char *name,
                             const char *value) {
    struct profile *profile = arg;
    char place[SETTING_PLACE_SIZE];
    setting_file_place(path, line, place);
    if (!profile->begun) {
        profile->begun = strcmp(name, "rota_profile") == 0 && strcmp(value, "1") == 0;
        return profile->begun
                   ? ROTA_OK
                   : error_raise(ROTA_ERR_SETTING,
                                 "%s (ROTA_PROFILE): expected the line rota_profile = 1; `rota "
                                 "bench --calibrate` writes such a file for this version",
                                 place);
    }
    profile->hash = XXH64(name, strlen(name), profile->hash);
    profile->hash = XXH64(value, strlen(value), profile->hash);
    if (!profile->keyed) {
        profile->keyed = strcmp(name, "machine") == 0 && strcmp(value, rota_machine_name()) == 0;
        return profile->keyed
                   ? ROTA_OK
                   : error_raise(ROTA_ERR_SETTING,
                                 "%s (ROTA_PROFILE): not measured on this machine: expected "
                                 "machine = %s",
                                 place, rota_machine_name());
    }
    if (strcmp(name, "placement") == 0 ? take_placement(profile, value)
                                       : take_prices(profile, name, value))
        return ROTA_OK;
    return error_raise(ROTA_ERR_SETTING,
                       "%s (ROTA_PROFILE): expected placement = ranks N hosts N crowding N (at "
                       "most %d), and behind it LINK = latency_us N overhead_us N us_per_mib N "
                       "reduce_us_per_mib N",
                       place, PROFILE_PLACEMENTS);
}

rota_status profile_load(struct settings *settings, struct profile **out) {
    const char *path = settings_text(settings, SETTING_PROFILE);
    *out = NULL;
    if (strcmp(path, "none") == 0)
        return ROTA_OK;
    struct profile *profile = calloc(1, sizeof(*profile));
    if (profile == NULL)
        return error_raise(ROTA_ERR_MEMORY, "no memory for a profile");
    rota_status status = setting_file_read(path, "ROTA_PROFILE", take_line, profile);
    if (status == ROTA_OK && profile->count == 0) {
        char place[SETTING_PLACE_SIZE];
        setting_file_place(path, 0, place);
        status = error_raise(ROTA_ERR_SETTING, "%s (ROTA_PROFILE): holds no placement", place);
    }
    if (status != ROTA_OK) {
        free(profile);
        return status;
    }
    settings_agree_on(settings, SETTING_PROFILE, profile->hash);
    *out = profile;
    return ROTA_OK;
}

void profile_free(struct profile *profile) {
    free(profile);
}

uint64_t profile_fingerprint(const struct profile *profile) {
    return profile->hash;
}

int profile_placements(const struct profile *profile) {
    return profile->count;
}

/* -- choosing ----------------------------------------------------------------------------------
 */

/* From 1 on: how much larger the larger one is. */
static double ratio(double a, double b) {
    return a > b ? a / b : b / a;
}

static const struct placement *nearest(const struct profile *profile, int nranks, int hosts,
                                       double crowding, int link) {
    const struct placement *best = NULL;
    double least = 0;
    for (int i = 0; profile != NULL && i < profile->count; i++) {
        const struct placement *place = &profile->placements[i];
        double distance = ratio(place->ranks, nranks) * ratio(place->crowding, crowding) *
                          ((place->hosts > 1) != (hosts > 1) ? 4 : 1);
        if ((place->measured & 1u << link) == 0 || (best != NULL && distance >= least))
            continue;
        best = place;
        least = distance;
    }
    return best;
}

void prices_choose(const struct profile *profile, int nranks, int hosts, double crowding,
                   struct prices *prices) {
    prices->measured_ranks = 0;
    for (int link = 0; link < ROTA_LINK_COUNT; link++) {
        const struct placement *place = nearest(profile, nranks, hosts, crowding, link);
        struct link_price price = (place != NULL ? &place->prices : &built_in)->links[link];
        if (place != NULL)
            prices->measured_ranks = place->ranks;
        price.latency_us += (crowding - (place != NULL ? place->crowding : 1)) * TURN_US;
        price.latency_us = price.latency_us > 0 ? price.latency_us : 0;
        prices->links[link] = price;
    }
}
