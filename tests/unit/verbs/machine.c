#include "unit/verbs/machine.h"
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct double_device {
    struct ibv_device device;
    struct ibv_context context;
    const struct machine_device *table;
};

static struct double_device devices[MACHINE_DEVICES];
static int device_count, opened, error_of_list;

static struct ibv_device **list_devices(int *count) {
    if (error_of_list != 0) {
        errno = error_of_list;
        return NULL;
    }
    struct ibv_device **list = calloc((size_t)device_count + 1, sizeof(struct ibv_device *));
    for (int i = 0; i < device_count; i++)
        list[i] = &devices[i].device;
    *count = device_count;
    opened++;
    return list;
}

static void free_list(struct ibv_device **list) {
    free(list);
    opened--;
}

static const struct machine_device *table_of(const struct ibv_context *context) {
    return devices[context->cmd_fd].table;
}

static const char *device_name(struct ibv_device *device) {
    return device->name;
}

static struct ibv_context *open_one(struct ibv_device *device) {
    struct double_device *one = (struct double_device *)device;
    if (one->table->open_error != 0) {
        errno = one->table->open_error;
        return NULL;
    }
    opened++;
    return &one->context;
}

static int close_one(struct ibv_context *context) {
    (void)context;
    opened--;
    return 0;
}

static int query_device(struct ibv_context *context, struct ibv_device_attr *attributes) {
    const struct machine_device *table = table_of(context);
    attributes->phys_port_cnt = (uint8_t)table->ports;
    return table->device_error;
}

static int query_port(struct ibv_context *context, uint8_t number,
                      struct ibv_port_attr *attributes) {
    const struct machine_device *table = table_of(context);
    const struct machine_port *port = &table->port[number - 1];
    attributes->state = port->state;
    attributes->link_layer = port->layer;
    attributes->active_width = port->width;
    attributes->active_speed = port->speed;
    attributes->active_mtu = port->mtu;
    return table->port_error;
}

static ssize_t query_gids(struct ibv_context *context, struct ibv_gid_entry *entries, size_t most,
                          uint32_t flags) {
    const struct machine_device *table = table_of(context);
    size_t count = 0;
    (void)flags;
    if (table->gid_error != 0)
        return -table->gid_error;
    for (int p = 0; p < table->ports; p++)
        for (uint32_t g = 0; g < MACHINE_GIDS && count < most; g++) {
            const struct machine_gid *gid = &table->port[p].gids[g];
            if (gid->address == NULL)
                continue;
            struct ibv_gid_entry *entry = &entries[count++];
            *entry = (struct ibv_gid_entry){.gid_index = g,
                                            .port_num = (uint32_t)p + 1,
                                            .gid_type = gid->type,
                                            .ndev_ifindex = gid->interface};
            if (inet_pton(AF_INET6, gid->address, entry->gid.raw) != 1)
                abort();
        }
    return (ssize_t)count;
}

static struct ibv_context **cm_devices(int *count) {
    struct ibv_context **list = calloc((size_t)device_count + 1, sizeof(struct ibv_context *));
    *count = 0;
    for (int i = 0; i < device_count; i++) {
        if (devices[i].table->cm_error != 0) {
            errno = devices[i].table->cm_error;
            free(list);
            return NULL;
        }
        if (devices[i].table->open_error == 0)
            list[(*count)++] = &devices[i].context;
    }
    opened++;
    return list;
}

static void free_cm_devices(struct ibv_context **list) {
    free(list);
    opened--;
}

static struct ibv_pd *make_domain(struct ibv_context *context) {
    static struct ibv_pd domain;
    errno = table_of(context)->pd_error;
    domain.context = context;
    opened += errno == 0;
    return errno == 0 ? &domain : NULL;
}

static int free_domain(struct ibv_pd *domain) {
    (void)domain;
    opened--;
    return 0;
}

static struct ibv_mr *make_registration(struct ibv_pd *domain, void *memory, size_t bytes,
                                        int access) {
    static struct ibv_mr registration;
    (void)memory;
    (void)bytes;
    (void)access;
    errno = table_of(domain->context)->registration_error;
    opened += errno == 0;
    return errno == 0 ? &registration : NULL;
}

static int free_registration(struct ibv_mr *registration) {
    (void)registration;
    opened--;
    return 0;
}

static struct rdma_event_channel *make_channel(void) {
    static struct rdma_event_channel channel;
    errno = device_count > 0 ? devices[0].table->channel_error : 0;
    opened += errno == 0;
    return errno == 0 ? &channel : NULL;
}

static void free_channel(struct rdma_event_channel *channel) {
    (void)channel;
    opened--;
}

const struct verbs_calls *machine_make(const struct machine_device *table, int count,
                                       int list_error) {
    static const struct verbs_calls calls = {.get_device_list = list_devices,
                                             .free_device_list = free_list,
                                             .get_device_name = device_name,
                                             .open_device = open_one,
                                             .close_device = close_one,
                                             .query_device = query_device,
                                             .query_port = query_port,
                                             .query_gid_table = query_gids,
                                             .get_devices = cm_devices,
                                             .free_devices = free_cm_devices,
                                             .alloc_pd = make_domain,
                                             .dealloc_pd = free_domain,
                                             .reg_mr = make_registration,
                                             .dereg_mr = free_registration,
                                             .create_event_channel = make_channel,
                                             .destroy_event_channel = free_channel};
    memset(devices, 0, sizeof(devices));
    for (int i = 0; i < count; i++) {
        devices[i].table = &table[i];
        devices[i].device.transport_type = table[i].transport;
        strncpy(devices[i].device.name, table[i].name, sizeof(devices[i].device.name) - 1);
        devices[i].context.device = &devices[i].device;
        devices[i].context.cmd_fd = i;
    }
    device_count = count;
    error_of_list = list_error;
    opened = 0;
    return &calls;
}

int machine_open(void) {
    return opened;
}
