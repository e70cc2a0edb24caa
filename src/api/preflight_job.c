/* What a job would find: interfaces, ports, launcher, key, place of recordings. */
#include "api/preflight.h"

#include "base/error.h"
#include "net/address.h"
#include "recording/recorder_file.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* -- network ------------------------------------------------------------------------------------
 */

static bool is_used(const struct net_address *address, const struct net_address *used, int count) {
    for (int i = 0; i < count; i++)
        if (used[i].family == address->family &&
            memcmp(used[i].bytes, address->bytes, sizeof(address->bytes)) == 0)
            return true;
    return false;
}

static void look_at_interfaces(const struct preflight *preflight) {
    struct net_address used[NET_MAX_ADDRESSES];
    struct ifaddrs *all = NULL;
    int count = 0;
    rota_status status = net_interfaces(preflight->settings, used, NET_MAX_ADDRESSES, &count);
    if (status != ROTA_OK)
        preflight_tell(preflight, ROTA_FINDING_PROBLEM, "interface",
                       "correct ROTA_INTERFACE: rota_init will refuse it too", "%s",
                       error_record()->message);
    if (getifaddrs(&all) != 0)
        return;
    bool remote = false;
    for (const struct ifaddrs *one = all; one != NULL; one = one->ifa_next) {
        char text[NET_ADDRESS_TEXT];
        struct net_address address;
        if (one->ifa_addr == NULL ||
            (one->ifa_addr->sa_family != AF_INET && one->ifa_addr->sa_family != AF_INET6))
            continue;
        net_address_from_socket(one->ifa_addr, &address);
        bool wanted = is_used(&address, used, count);
        bool up = (one->ifa_flags & IFF_UP) != 0 && (one->ifa_flags & IFF_RUNNING) != 0;
        remote |= wanted && !net_address_is_loopback(&address);
        net_address_text(&address, text);
        char *port = strrchr(text, ':');
        if (port != NULL)
            *port = '\0';
        preflight_tell(preflight, ROTA_FINDING_OK, "interface", NULL, "%s %s: %s%s", one->ifa_name,
                       text, wanted ? "announced to other hosts" : "not used", up ? "" : ", down");
    }
    freeifaddrs(all);
    if (status == ROTA_OK && !remote)
        preflight_tell(preflight, ROTA_FINDING_NOTE, "interface",
                       "for jobs of several hosts bring an interface up, or name it in "
                       "ROTA_INTERFACE",
                       "none but loopback: only ranks of this host can be reached");
}

static bool port_is_free(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool good = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
    if (fd >= 0)
        close(fd);
    return good;
}

static void look_at_ports(const struct preflight *preflight) {
    enum { MOST = 256 };
    int first, last, tried = 0, good = 0;
    const char *range = settings_text(preflight->settings, SETTING_PORT_RANGE);
    if (sscanf(range, "%d-%d", &first, &last) != 2) {
        FILE *file = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
        if (file == NULL || fscanf(file, "%d %d", &first, &last) != 2)
            first = last = 0;
        if (file != NULL)
            fclose(file);
        preflight_tell(preflight, ROTA_FINDING_OK, "ports", NULL,
                       "any that is free, %d to %d by the kernel (ROTA_PORT_RANGE is not set)",
                       first, last);
        return;
    }
    for (int port = first; port <= last && tried < MOST; port++, tried++)
        good += port_is_free(port);
    rota_finding_level level = good == 0  ? ROTA_FINDING_PROBLEM
                               : good < 2 ? ROTA_FINDING_NOTE
                                          : ROTA_FINDING_OK;
    preflight_tell(preflight, level, "ports",
                   good == 0  ? "give ROTA_PORT_RANGE a range that is not taken"
                   : good < 2 ? "each process of a job takes one: widen ROTA_PORT_RANGE"
                              : NULL,
                   "%d of %d ports looked at in %s are free", good, tried, range);
}

/* -- launcher and key ---------------------------------------------------------------------------
 */

/* Variables of one launcher, in the order in which rota_init looks. */
static const struct {
    const char *name, *rank, *size, *more;
} launchers[] = {
    {"rota run, or by hand", "ROTA_RANK", "ROTA_SIZE", "ROTA_ROOT"},
    {"torchrun or a Kubernetes operator", "RANK", "WORLD_SIZE", "MASTER_ADDR"},
    {"PMIx (Open MPI's mpirun, srun --mpi=pmix)", "PMIX_RANK", "PMIX_NAMESPACE", NULL},
    {"PMI (mpiexec of MPICH or Intel, srun --mpi=pmi2)", "PMI_RANK", "PMI_SIZE", "PMI_FD"},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST"},
    {"Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", NULL},
};

static const char *value_of(const char *name) {
    const char *value = name != NULL ? getenv(name) : NULL;
    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* Returns whether ranks come from a launcher that hands out a key by itself. */
static bool look_at_launcher(const struct preflight *preflight) {
    int found = 0;
    bool keyed = false;
    for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++) {
        const char *rank = value_of(launchers[i].rank), *size = value_of(launchers[i].size);
        if (rank == NULL && size == NULL)
            continue;
        if (rank == NULL || size == NULL) {
            preflight_tell(preflight, ROTA_FINDING_PROBLEM, "launcher",
                           "set both or neither: rota_init refuses or misreads the half",
                           "%s is set and %s is not",
                           rank != NULL ? launchers[i].rank : launchers[i].size,
                           rank != NULL ? launchers[i].size : launchers[i].rank);
            continue;
        }
        const char *more = value_of(launchers[i].more);
        preflight_tell(preflight, ROTA_FINDING_OK, "launcher", NULL,
                       "%s: %s=%.40s, %s=%.60s%s%s%s%.80s%s", launchers[i].name, launchers[i].rank,
                       rank, launchers[i].size, size, more != NULL ? ", " : "",
                       more != NULL ? launchers[i].more : "", more != NULL ? "=" : "",
                       more != NULL ? more : "", found == 0 ? ": rota_init takes this" : "");
        keyed |= found == 0 && i >= 2 && i <= 3;
        found++;
    }
    if (found == 0)
        preflight_tell(preflight, ROTA_FINDING_OK, "launcher", NULL,
                       "no launcher's variables: rota_init makes a job of one rank");
    return keyed;
}

static void look_at_key(const struct preflight *preflight, bool keyed) {
    const char *path = settings_text(preflight->settings, SETTING_KEY_FILE);
    if (!settings_is_default(preflight->settings, SETTING_JOB_KEY)) {
        preflight_tell(preflight, ROTA_FINDING_OK, "key", NULL, "ROTA_JOB_KEY is set");
    } else if (path[0] != '\0') {
        struct stat status;
        bool good = stat(path, &status) == 0;
        bool open = good && (status.st_mode & 077) != 0;
        preflight_tell(preflight,
                       !good  ? ROTA_FINDING_PROBLEM
                       : open ? ROTA_FINDING_NOTE
                              : ROTA_FINDING_OK,
                       "key",
                       !good  ? "make it, or unset ROTA_KEY_FILE"
                       : open ? "others can read it: chmod 600"
                              : NULL,
                       "ROTA_KEY_FILE is %.200s%s%s", path, good ? "" : ": ",
                       good ? "" : strerror(errno));
    } else if (keyed) {
        preflight_tell(preflight, ROTA_FINDING_OK, "key", NULL,
                       "rank 0 draws one, and the launcher's store hands it out");
    } else {
        preflight_tell(preflight, ROTA_FINDING_NOTE, "key",
                       "on machines that others use too set ROTA_JOB_KEY (16 characters or more) "
                       "for all ranks; rota run does it",
                       "none given: with a root alone the key is derived from it, which keeps "
                       "strays out, and attackers not");
    }
}

/* -- recordings ---------------------------------------------------------------------------------
 */

static void look_at_recordings(const struct preflight *preflight) {
    const char *way = settings_text(preflight->settings, SETTING_RECORD);
    if (strcmp(way, "off") == 0 || strcmp(way, "memory") == 0) {
        preflight_tell(preflight, ROTA_FINDING_NOTE, "recordings",
                       "unset ROTA_RECORD, so that rota doctor can tell what went wrong",
                       "ROTA_RECORD=%s: no file is written", way);
        return;
    }
    static const uint8_t job[16] = {0xd0, 0xc7, 0x04};
    const char *setting = settings_text(preflight->settings, SETTING_RECORD_DIR);
    struct recorder_file *file = calloc(1, sizeof(*file));
    char why[PATH_MAX + 128] = "no space";
    if (file == NULL)
        return;
    int fd = recorder_file_create(file, setting, job, (int)(getpid() % 1000000), why, sizeof(why));
    bool good = fd >= 0 && recorder_file_extend(fd, 16 * RECORD_PAGE);
    if (fd >= 0) {
        close(fd);
        recorder_file_remove(file);
        if (setting[0] == '\0')
            rmdir(file->root); /* only when nothing is in it */
    }
    if (good)
        preflight_tell(preflight, ROTA_FINDING_OK, "recordings", NULL, "written to %.400s",
                       file->root);
    else
        preflight_tell(preflight, ROTA_FINDING_PROBLEM, "recordings",
                       "name a folder of yours in ROTA_RECORD_DIR: without recordings rota doctor "
                       "cannot tell what a job that hangs or dies was doing",
                       "cannot be written: %.400s", why);
    free(file);
}

void preflight_job(const struct preflight *preflight) {
    look_at_interfaces(preflight);
    look_at_ports(preflight);
    look_at_key(preflight, look_at_launcher(preflight));
    look_at_recordings(preflight);
}
