/* Telling of RDMA devices, limits and counters. See survey.h. */
#include "survey.h"

#include "base/error.h"
#include "devices.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

/* What is registered as a trial: more than the rings of a few peers. */
#define TRIAL_BYTES (16u << 20)

struct survey {
    const struct verbs_calls *calls;
    rota_finding_fn tell;
    void *arg;
};

static void tell(const struct survey *survey, rota_finding_level level, const char *topic,
                 const char *advice, const char *format, ...) __attribute__((format(printf, 5, 6)));
static void tell(const struct survey *survey, rota_finding_level level, const char *topic,
                 const char *advice, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    rota_finding finding = {
        .size = sizeof(finding), .level = level, .topic = topic, .text = text, .advice = advice};
    survey->tell(&finding, survey->arg);
}

/* -- ports --------------------------------------------------------------------------------- */

static const char *advice_for(int error) {
    if (error == EACCES || error == EPERM)
        return "let this user open the files in /dev/infiniband (container: --device "
               "/dev/infiniband)";
    if (error == ENOENT || error == ENODEV || error == ENXIO)
        return "its file in /dev/infiniband is missing: load ib_uverbs, or pass the folder into "
               "the container";
    return "see what the kernel says of it: dmesg";
}

static void tell_of_port(const struct survey *survey, const struct verbs_device_port *port) {
    char topic[IBV_SYSFS_NAME_MAX + 8], advice[128] = "";
    snprintf(topic, sizeof(topic), "%s:%u", port->device, port->number);
    bool narrow = port->used && port->ethernet && !port->iwarp && port->link_mtu < 4096;
    if (narrow)
        snprintf(advice, sizeof(advice),
                 "packets of 4096 bytes need an MTU of 4200 or more, of %s and of the switches",
                 port->interface_name);
    if (port->system_error != 0)
        tell(survey, ROTA_FINDING_PROBLEM, topic, advice_for(port->system_error), "not used: %s",
             port->why);
    else if (port->used)
        tell(survey, narrow ? ROTA_FINDING_NOTE : ROTA_FINDING_OK, topic, narrow ? advice : NULL,
             "used: %s", port->why);
    else
        tell(survey, port->by_choice ? ROTA_FINDING_OK : ROTA_FINDING_NOTE, topic,
             port->by_choice ? NULL : "mend that, or leave it out by ROTA_RDMA_DEVICE",
             "not used: %s", port->why);
}

/* -- counters ------------------------------------------------------------------------------ */

/* Counters that stand still on a sound link, and what makes them count. */
static const struct {
    const char *name, *cause;
} counters[] = {
    {"counters/symbol_error", "bits are damaged: cable or transceiver"},
    {"counters/link_error_recovery", "the link retrains: cable or transceiver"},
    {"counters/link_downed", "the link went down"},
    {"counters/port_rcv_errors", "damaged packets came in"},
    {"counters/port_xmit_discards", "packets were dropped: congestion, or the peer is down"},
    {"counters/local_link_integrity_errors", "the link is damaged"},
    {"counters/excessive_buffer_overrun_errors", "flow control of the link fails"},
    {"hw_counters/packet_seq_err",
     "packets were lost: on Ethernet look at flow control (PFC, ECN)"},
    {"hw_counters/local_ack_timeout_err", "acknowledgements were lost"},
    {"hw_counters/rx_icrc_encapsulated", "damaged packets came in"},
    {"hw_counters/retry_exceeded_err", "a peer did not answer"},
    {"hw_counters/completer_retry_err", "a peer did not answer"},
};

static unsigned long long read_counter(const struct verbs_device_port *port, const char *name) {
    char path[256], text[32] = "0";
    snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/%u/%s", port->device, port->number,
             name);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    if (fgets(text, sizeof(text), file) == NULL)
        text[0] = '\0';
    fclose(file);
    return strtoull(text, NULL, 10);
}

static void look_at_counters(const struct survey *survey, const struct verbs_device_port *port) {
    char topic[IBV_SYSFS_NAME_MAX + 8];
    bool any = false;
    snprintf(topic, sizeof(topic), "%s:%u", port->device, port->number);
    for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++) {
        unsigned long long value = read_counter(port, counters[i].name);
        if (value == 0)
            continue;
        any = true;
        tell(survey, ROTA_FINDING_NOTE, topic, "see whether it grows during a job",
             "%s is %llu since the driver was loaded: %s", strchr(counters[i].name, '/') + 1, value,
             counters[i].cause);
    }
    if (!any)
        tell(survey, ROTA_FINDING_OK, topic, NULL, "its counters show no errors");
}

/* -- trials -------------------------------------------------------------------------------- */

static struct ibv_context *open_named(const struct survey *survey, const char *name) {
    int count = 0;
    struct ibv_context *context = NULL;
    struct ibv_device **devices = survey->calls->get_device_list(&count);
    if (devices == NULL)
        return NULL;
    for (int i = 0; i < count && context == NULL; i++)
        if (strcmp(survey->calls->get_device_name(devices[i]), name) == 0)
            context = survey->calls->open_device(devices[i]);
    survey->calls->free_device_list(devices);
    return context;
}

/* Whether TRIAL_BYTES can be registered; else the error, and in `call` which call had it. */
static int try_registering(const struct survey *survey, struct ibv_context *context,
                           const char **call) {
    int error = 0;
    void *memory =
        mmap(NULL, TRIAL_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *call = "mmap";
    if (memory == MAP_FAILED)
        return errno;
    *call = "ibv_alloc_pd";
    errno = 0;
    struct ibv_pd *domain = survey->calls->alloc_pd(context);
    struct ibv_mr *registration = NULL;
    if (domain != NULL) {
        *call = "ibv_reg_mr";
        registration = survey->calls->reg_mr(domain, memory, TRIAL_BYTES, IBV_ACCESS_LOCAL_WRITE);
    }
    if (registration == NULL)
        error = errno != 0 ? errno : EIO;
    if (registration != NULL)
        survey->calls->dereg_mr(registration);
    if (domain != NULL)
        survey->calls->dealloc_pd(domain);
    munmap(memory, TRIAL_BYTES);
    return error;
}

static void look_at_memory(const struct survey *survey, const struct verbs_device_port *port) {
    struct ibv_context *context = open_named(survey, port->device);
    struct rlimit limit = {0};
    const char *call = "";
    if (context == NULL)
        return;
    int error = try_registering(survey, context, &call);
    survey->calls->close_device(context);
    getrlimit(RLIMIT_MEMLOCK, &limit);
    if (error == 0)
        tell(survey, ROTA_FINDING_OK, "rdma memory", NULL, "%u MiB can be registered with %s",
             TRIAL_BYTES >> 20, port->device);
    else if (limit.rlim_cur != RLIM_INFINITY)
        tell(survey, ROTA_FINDING_PROBLEM, "rdma memory",
             "raise it: ulimit -l unlimited (limits.conf: memlock; systemd: LimitMEMLOCK=infinity; "
             "docker: --ulimit memlock=-1)",
             "%u MiB cannot be registered with %s: %s: %s; this process may lock %llu KiB",
             TRIAL_BYTES >> 20, port->device, call, strerror(error),
             (unsigned long long)limit.rlim_cur >> 10);
    else
        tell(survey, ROTA_FINDING_PROBLEM, "rdma memory", advice_for(error),
             "%u MiB cannot be registered with %s: %s: %s", TRIAL_BYTES >> 20, port->device, call,
             strerror(error));
}

static void look_at_connections(const struct survey *survey) {
    errno = 0;
    struct rdma_event_channel *channel = survey->calls->create_event_channel();
    if (channel != NULL) {
        survey->calls->destroy_event_channel(channel);
        tell(survey, ROTA_FINDING_OK, "rdma_cm", NULL, "connections can be made");
        return;
    }
    tell(survey, ROTA_FINDING_PROBLEM, "rdma_cm",
         "load rdma_ucm, and let this user open /dev/infiniband/rdma_cm (container: --device)",
         "no connection can be made: rdma_create_event_channel: %s", strerror(errno));
}

void verbs_survey(const struct settings *settings, rota_finding_fn function, void *arg) {
    struct survey survey = {.tell = function, .arg = arg};
    struct verbs_device_ports ports;
    if (verbs_device_exists() != ROTA_OK) {
        tell(&survey, ROTA_FINDING_OK, "rdma", NULL, "%s", error_record()->message);
        return;
    }
    if (verbs_calls_load(&survey.calls) != ROTA_OK) {
        tell(&survey, ROTA_FINDING_NOTE, "rdma",
             "install libibverbs, librdmacm and the providers (ibverbs-providers)",
             "there is a device, but %s", error_record()->message);
        return;
    }
    struct verbs_interface interfaces[VERBS_INTERFACES];
    int ninterfaces = verbs_interfaces(interfaces);
    if (verbs_ports_find(survey.calls, settings, interfaces, ninterfaces, &ports) != ROTA_OK) {
        tell(&survey, ROTA_FINDING_PROBLEM, "rdma", "correct it: rota_init will refuse it too",
             "%s", error_record()->message);
        return;
    }
    if (ports.count == 0)
        tell(&survey, ROTA_FINDING_NOTE, "rdma",
             "the kernel shows a device: load ib_uverbs and install the providers "
             "(ibverbs-providers)",
             "%s", ports.why);
    const struct verbs_device_port *first = NULL;
    for (int i = 0; i < ports.count; i++) {
        tell_of_port(&survey, &ports.ports[i]);
        if (ports.ports[i].used && first == NULL)
            first = &ports.ports[i];
    }
    if (first == NULL)
        return;
    look_at_memory(&survey, first);
    look_at_connections(&survey);
    for (int i = 0; i < ports.count; i++)
        if (ports.ports[i].used)
            look_at_counters(&survey, &ports.ports[i]);
}
