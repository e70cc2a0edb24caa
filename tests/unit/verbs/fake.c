/* The double of libibverbs and librdmacm. See fake.h. */
#include "fake.h"

#include "transports/verbs/calls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <unistd.h>

#define RETRIES 200 /* polls until a request that nobody answers fails */
#define RULE(holds)                                                                                \
    do {                                                                                           \
        if (!(holds)) {                                                                            \
            fprintf(stderr, "verbs rule broken in %s: %s\n", __func__, #holds);                    \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

struct fake_mr {
    struct ibv_mr base;
    int access;
    TAILQ_ENTRY(fake_mr) link;
};
struct fake_channel {
    struct ibv_comp_channel base;
    struct fake_cq *ready[64];
    unsigned first, count;
};
struct fake_cq {
    struct ibv_cq base;
    struct ibv_wc *entries;
    unsigned first, count;
    bool armed;
};
struct fake_srq {
    struct ibv_srq base;
    unsigned posted, most;
    uint64_t wr_id;
};
struct request {
    STAILQ_ENTRY(request) link;
    struct ibv_send_wr wr;
    struct ibv_sge sges[16];
    char data[512]; /* inline */
    size_t length;
    int waited, steps;
};
struct fake_qp {
    struct ibv_qp base;
    struct ibv_qp_cap cap;
    struct fake_qp *peer;
    bool connected, broken;
    unsigned receives, taken; /* taken: slots of the send queue */
    unsigned silent;          /* requests since the last that was signalled */
    STAILQ_HEAD(, request) queue;
    TAILQ_ENTRY(fake_qp) link;
};
struct event {
    STAILQ_ENTRY(event) link;
    struct rdma_cm_event base;
    uint8_t data[196];
};
struct fake_events {
    struct rdma_event_channel base;
    STAILQ_HEAD(, event) queue;
};
struct fake_id {
    struct rdma_cm_id base;
    struct fake_id *peer;
    bool listening, connected;
    uint16_t port, to_port;
    int device;
    TAILQ_ENTRY(fake_id) link;
};

struct fake_counts fake_counts;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ibv_device devices[2];
static struct ibv_context contexts[2];
static int ndevices;
static bool with_immediate, with_srq, cut, paused, scatter;
static uint32_t dice;
static uint32_t next_key, next_number;
static uint16_t next_port;
static uint32_t next_domain;
static TAILQ_HEAD(, fake_mr) mrs = TAILQ_HEAD_INITIALIZER(mrs);
static TAILQ_HEAD(, fake_qp) qps = TAILQ_HEAD_INITIALIZER(qps);
static TAILQ_HEAD(, fake_id) ids = TAILQ_HEAD_INITIALIZER(ids);

/* -- devices ------------------------------------------------------------------------------- */

static int fork_init(void) {
    return 0;
}
static const char *wc_status_str(enum ibv_wc_status status) {
    return status == IBV_WC_RETRY_EXC_ERR ? "transport retry counter exceeded" : "an error";
}
static struct ibv_device **get_device_list(int *count) {
    if (fake_fails("get_device_list"))
        return NULL;
    struct ibv_device **list = calloc((size_t)ndevices + 1, sizeof *list);
    for (int i = 0; i < ndevices; i++)
        list[i] = &devices[i];
    *count = ndevices;
    return list;
}
static void free_device_list(struct ibv_device **list) {
    free(list);
}
static const char *get_device_name(struct ibv_device *device) {
    return device->name;
}
static struct ibv_context *open_device(struct ibv_device *device) {
    return fake_fails("open_device") ? NULL : &contexts[device - devices];
}
static int close_device(struct ibv_context *context) {
    (void)context;
    return 0;
}
static struct ibv_context **get_devices(int *count) {
    if (fake_fails("get_devices"))
        return NULL;
    struct ibv_context **list = calloc((size_t)ndevices + 1, sizeof *list);
    for (int i = 0; i < ndevices; i++)
        list[i] = &contexts[i];
    *count = ndevices;
    return list;
}
static void free_devices(struct ibv_context **list) {
    free(list);
}
static int query_device(struct ibv_context *context, struct ibv_device_attr *attr) {
    (void)context;
    *attr = (struct ibv_device_attr){.phys_port_cnt = 1,
                                     .max_qp_wr = 4096,
                                     .max_cqe = 65536,
                                     .max_srq = with_srq ? 8 : 0,
                                     .max_srq_wr = 16384};
    return fake_fails("query_device") ? errno : 0;
}
static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr) {
    (void)context;
    (void)port;
    *attr = (struct ibv_port_attr){.state = IBV_PORT_ACTIVE,
                                   .active_mtu = IBV_MTU_4096,
                                   .link_layer = IBV_LINK_LAYER_ETHERNET,
                                   .active_speed = 4,
                                   .active_width = 1};
    return fake_fails("query_port") ? errno : 0;
}
static void address_of(int device, uint8_t ip[16]) {
    static const uint8_t first[16] = {[10] = 0xff, [11] = 0xff, 10, 77, 0, 1};
    memcpy(ip, first, 16);
    ip[15] = (uint8_t)(1 + device);
}
static ssize_t query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
                               size_t most, uint32_t flags) {
    (void)flags;
    if (fake_fails("query_gid_table") || most < 1)
        return -errno;
    entries[0] =
        (struct ibv_gid_entry){.port_num = 1, .gid_type = IBV_GID_TYPE_ROCE_V2, .ndev_ifindex = 1};
    address_of((int)(context - contexts), entries[0].gid.raw);
    return 1;
}

/* -- memory and queues --------------------------------------------------------------------- */

static struct ibv_pd *alloc_pd(struct ibv_context *context) {
    if (fake_fails("alloc_pd"))
        return NULL;
    struct ibv_pd *pd = calloc(1, sizeof *pd);
    pd->context = context;
    pd->handle = next_domain++;
    return pd;
}
static int dealloc_pd(struct ibv_pd *pd) {
    free(pd);
    return 0;
}
static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *data, size_t bytes, int access) {
    struct fake_mr *mr = NULL;
    pthread_mutex_lock(&lock);
    if (!fake_fails("reg_mr")) {
        mr = calloc(1, sizeof *mr);
        mr->base = (struct ibv_mr){.context = pd->context, .pd = pd, .addr = data, .length = bytes};
        mr->base.lkey = next_key++;
        mr->base.rkey = next_key++;
        mr->access = access;
        TAILQ_INSERT_TAIL(&mrs, mr, link);
        fake_counts.memory++;
    }
    pthread_mutex_unlock(&lock);
    return mr ? &mr->base : NULL;
}
static int dereg_mr(struct ibv_mr *base) {
    struct fake_mr *mr = (struct fake_mr *)base;
    pthread_mutex_lock(&lock);
    TAILQ_REMOVE(&mrs, mr, link);
    fake_counts.memory--;
    pthread_mutex_unlock(&lock);
    free(mr);
    return 0;
}
static struct ibv_comp_channel *create_comp_channel(struct ibv_context *context) {
    if (fake_fails("create_comp_channel"))
        return NULL;
    struct fake_channel *channel = calloc(1, sizeof *channel);
    channel->base.context = context;
    channel->base.fd = eventfd(0, EFD_SEMAPHORE);
    return &channel->base;
}
static int destroy_comp_channel(struct ibv_comp_channel *channel) {
    close(channel->fd);
    free(channel);
    return 0;
}
static struct ibv_cq *create_cq(struct ibv_context *context, int entries, void *cq_context,
                                struct ibv_comp_channel *channel, int vector) {
    (void)vector;
    if (fake_fails("create_cq"))
        return NULL;
    struct fake_cq *cq = calloc(1, sizeof *cq);
    cq->base = (struct ibv_cq){
        .context = context, .channel = channel, .cq_context = cq_context, .cqe = entries};
    cq->entries = calloc((size_t)entries, sizeof *cq->entries);
    fake_counts.queues++;
    return &cq->base;
}
static int destroy_cq(struct ibv_cq *base) {
    struct fake_cq *cq = (struct fake_cq *)base;
    fake_counts.queues--;
    free(cq->entries);
    free(cq);
    return 0;
}
static int get_cq_event(struct ibv_comp_channel *base, struct ibv_cq **cq, void **context) {
    struct fake_channel *channel = (struct fake_channel *)base;
    uint64_t one;
    if (read(base->fd, &one, sizeof one) != sizeof one)
        return -1;
    pthread_mutex_lock(&lock);
    *cq = &channel->ready[channel->first]->base;
    *context = (*cq)->cq_context;
    channel->first = (channel->first + 1) % 64;
    channel->count--;
    pthread_mutex_unlock(&lock);
    return 0;
}
static void ack_cq_events(struct ibv_cq *cq, unsigned count) {
    (void)cq;
    (void)count;
}
static int req_notify_cq(struct ibv_cq *base, int solicited) {
    (void)solicited;
    pthread_mutex_lock(&lock);
    ((struct fake_cq *)base)->armed = true;
    pthread_mutex_unlock(&lock);
    return 0;
}
static struct ibv_srq *create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr) {
    if (fake_fails("create_srq"))
        return NULL;
    struct fake_srq *srq = calloc(1, sizeof *srq);
    srq->base.pd = pd;
    srq->most = attr->attr.max_wr;
    return &srq->base;
}
static int destroy_srq(struct ibv_srq *srq) {
    free(srq);
    return 0;
}
static int query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
                    struct ibv_qp_init_attr *init) {
    (void)qp;
    (void)mask;
    memset(attr, 0, sizeof *attr);
    memset(init, 0, sizeof *init);
    return 0;
}
static int modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask) {
    if (mask & IBV_QP_STATE && attr->qp_state == IBV_QPS_ERR)
        ((struct fake_qp *)qp)->broken = true;
    return 0;
}

/* -- carrying out -------------------------------------------------------------------------- */

static void complete(struct ibv_cq *base, const struct ibv_wc *wc) {
    struct fake_cq *cq = (struct fake_cq *)base;
    struct fake_channel *channel = (struct fake_channel *)cq->base.channel;
    uint64_t one = 1;
    RULE(cq->count < (unsigned)cq->base.cqe);
    cq->entries[(cq->first + cq->count++) % (unsigned)cq->base.cqe] = *wc;
    if (!cq->armed)
        return;
    cq->armed = false;
    RULE(channel->count < 64);
    channel->ready[(channel->first + channel->count++) % 64] = cq;
    RULE(write(channel->base.fd, &one, sizeof one) == sizeof one);
}

static struct fake_mr *covers(const struct ibv_pd *pd, uint64_t address, uint64_t length,
                              uint32_t key, bool remote) {
    struct fake_mr *mr;
    TAILQ_FOREACH(mr, &mrs, link) {
        uint64_t begin = (uintptr_t)mr->base.addr;
        if ((remote ? mr->base.rkey : mr->base.lkey) == key && mr->base.pd == pd &&
            address >= begin && length <= mr->base.length &&
            address - begin <= mr->base.length - length)
            return mr;
    }
    return NULL;
}

static bool take_receive(struct fake_qp *qp, uint64_t *wr_id) {
    struct fake_srq *srq = (struct fake_srq *)qp->base.srq;
    unsigned *posted = srq ? &srq->posted : &qp->receives;
    if (*posted == 0) {
        fake_counts.not_ready++;
        return false;
    }
    --*posted;
    *wr_id = UINT64_C(1) << 63;
    return true;
}

/* What becomes of a request at the other side. */
static enum ibv_wc_status deliver(struct fake_qp *qp, struct request *request) {
    struct fake_qp *peer = qp->peer;
    const struct ibv_send_wr *wr = &request->wr;
    bool write = wr->opcode != IBV_WR_SEND, tells = wr->opcode != IBV_WR_RDMA_WRITE;
    struct ibv_wc wc = {.qp_num = peer->base.qp_num, .byte_len = (uint32_t)request->length};
    if (write) {
        struct fake_mr *mr =
            covers(peer->base.pd, wr->wr.rdma.remote_addr, request->length, wr->wr.rdma.rkey, true);
        if (!mr || !(mr->access & IBV_ACCESS_REMOTE_WRITE))
            return IBV_WC_REM_ACCESS_ERR;
    }
    if (tells && !take_receive(peer, &wc.wr_id))
        return IBV_WC_RNR_RETRY_EXC_ERR;
    char *to = write ? (char *)(uintptr_t)wr->wr.rdma.remote_addr : NULL;
    for (int i = 0; write && i < wr->num_sge; i++) {
        const char *from = wr->send_flags & IBV_SEND_INLINE
                               ? request->data
                               : (const char *)(uintptr_t)request->sges[i].addr;
        memcpy(to, from, request->sges[i].length);
        to += request->sges[i].length;
    }
    wc.opcode = write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
    if (tells)
        complete(peer->base.recv_cq, &wc);
    return IBV_WC_SUCCESS;
}

/* Places some words of a short write, then all; false: it is none, or they are. */
static bool place_some(struct fake_qp *qp, struct request *request) {
    const struct ibv_send_wr *wr = &request->wr;
    if (!scatter || wr->opcode == IBV_WR_SEND || wr->num_sge != 1 || request->length > 256 ||
        request->steps == 2 ||
        !covers(qp->peer->base.pd, wr->wr.rdma.remote_addr, request->length, wr->wr.rdma.rkey,
                true))
        return false;
    const char *from = wr->send_flags & IBV_SEND_INLINE
                           ? request->data
                           : (const char *)(uintptr_t)request->sges[0].addr;
    char *to = (char *)(uintptr_t)wr->wr.rdma.remote_addr;
    request->steps++;
    for (size_t at = 0; at < request->length; at += 8) {
        size_t n = request->length - at < 8 ? request->length - at : 8;
        dice = dice * 1664525u + 1013904223u; /* Numerical Recipes, 7.1 */
        if (request->steps == 2 || dice >> 30 != 0)
            memcpy(to + at, from + at, n);
    }
    return true;
}

/* One request of a queue pair. False: there is none, or it waits. */
static bool carry_out(struct fake_qp *qp) {
    struct request *request = STAILQ_FIRST(&qp->queue);
    enum ibv_wc_status status = IBV_WC_WR_FLUSH_ERR;
    if (!request)
        return false;
    if (!qp->broken) {
        if (cut || !qp->peer || qp->peer->broken) {
            if (++request->waited < RETRIES)
                return false;
            status = IBV_WC_RETRY_EXC_ERR;
        } else if (place_some(qp, request)) {
            return false;
        } else {
            status = deliver(qp, request);
        }
    }
    STAILQ_REMOVE_HEAD(&qp->queue, link);
    qp->silent++;
    if (status != IBV_WC_SUCCESS)
        qp->broken = true;
    if (status != IBV_WC_SUCCESS || request->wr.send_flags & IBV_SEND_SIGNALED) {
        /* vendor_err: how many places of the send queue are free when it is taken */
        struct ibv_wc wc = {.wr_id = request->wr.wr_id,
                            .status = status,
                            .qp_num = qp->base.qp_num,
                            .vendor_err = qp->silent};
        qp->silent = 0;
        complete(qp->base.send_cq, &wc);
    }
    free(request);
    return true;
}

static int poll_cq(struct ibv_cq *base, int most, struct ibv_wc *wcs) {
    struct fake_cq *cq = (struct fake_cq *)base;
    struct fake_qp *qp;
    int n = 0;
    pthread_mutex_lock(&lock);
    if (!paused)
        TAILQ_FOREACH(qp, &qps, link)(void) carry_out(qp);
    while (n < most && cq->count > 0) {
        struct ibv_wc *wc = &wcs[n++];
        *wc = cq->entries[cq->first];
        cq->first = (cq->first + 1) % (unsigned)cq->base.cqe;
        cq->count--;
        TAILQ_FOREACH(qp, &qps, link) {
            if (qp->base.qp_num == wc->qp_num && !(wc->wr_id >> 63))
                qp->taken -= wc->vendor_err;
        }
    }
    pthread_mutex_unlock(&lock);
    return n;
}

void fake_count(const struct ibv_send_wr *wr, uint64_t length) {
    fake_counts.requests++;
    fake_counts.inlined += (wr->send_flags & IBV_SEND_INLINE) != 0;
    fake_counts.signalled += (wr->send_flags & IBV_SEND_SIGNALED) != 0;
    fake_counts.writes += wr->opcode == IBV_WR_RDMA_WRITE;
    fake_counts.immediates += wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    fake_counts.sends += wr->opcode == IBV_WR_SEND;
    fake_counts.written += length;
}

static int post_one(struct fake_qp *qp, const struct ibv_send_wr *wr) {
    if (fake_fails("post_send"))
        return errno;
    RULE(qp->connected && wr->num_sge <= (int)qp->cap.max_send_sge);
    if (qp->taken == qp->cap.max_send_wr)
        return ENOMEM;
    struct request *request = calloc(1, sizeof *request);
    request->wr = *wr;
    RULE(with_immediate || wr->opcode != IBV_WR_RDMA_WRITE_WITH_IMM);
    for (int i = 0; i < wr->num_sge; i++) {
        const struct ibv_sge *sge = &wr->sg_list[i];
        request->sges[i] = *sge;
        if (wr->send_flags & IBV_SEND_INLINE) {
            RULE(request->length + sge->length <= qp->cap.max_inline_data);
            memcpy(request->data + request->length, (const void *)(uintptr_t)sge->addr,
                   sge->length);
        } else {
            RULE(covers(qp->base.pd, sge->addr, sge->length, sge->lkey, false));
        }
        request->length += sge->length;
    }
    qp->taken++;
    fake_count(wr, request->length);
    if (wr->opcode != IBV_WR_RDMA_WRITE) {
        fake_counts.controls[qp->base.pd->handle % 4]++;
    } else {
        fake_counts.from = wr->sg_list[0].addr;
        fake_counts.to = wr->wr.rdma.remote_addr;
    }
    STAILQ_INSERT_TAIL(&qp->queue, request, link);
    return 0;
}
static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
    int error = 0;
    pthread_mutex_lock(&lock);
    for (; wr && error == 0; wr = wr->next) {
        *bad = wr;
        error = post_one((struct fake_qp *)qp, wr);
    }
    pthread_mutex_unlock(&lock);
    return error;
}
/* Adds a chain of receive requests to those that are posted. */
static int add_receives(unsigned *posted, unsigned most, struct ibv_recv_wr *wr,
                        struct ibv_recv_wr **bad) {
    int error = 0;
    pthread_mutex_lock(&lock);
    for (; wr != NULL && error == 0; wr = wr->next) {
        *bad = wr;
        error = *posted == most ? ENOMEM : 0;
        *posted += error == 0;
    }
    pthread_mutex_unlock(&lock);
    return error;
}

static int post_recv(struct ibv_qp *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    struct fake_qp *qp = (struct fake_qp *)base;
    return add_receives(&qp->receives, qp->cap.max_recv_wr, wr, bad);
}
static int post_srq_recv(struct ibv_srq *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    struct fake_srq *srq = (struct fake_srq *)base;
    return add_receives(&srq->posted, srq->most, wr, bad);
}

/* -- connection manager -------------------------------------------------------------------- */

static struct rdma_event_channel *create_event_channel(void) {
    if (fake_fails("create_event_channel"))
        return NULL;
    struct fake_events *events = calloc(1, sizeof *events);
    STAILQ_INIT(&events->queue);
    events->base.fd = eventfd(0, EFD_SEMAPHORE);
    return &events->base;
}
static void destroy_event_channel(struct rdma_event_channel *base) {
    RULE(STAILQ_EMPTY(&((struct fake_events *)base)->queue));
    close(base->fd);
    free(base);
}

static void tell(struct fake_id *id, enum rdma_cm_event_type type, int status, const void *data,
                 size_t bytes) {
    struct fake_events *events = (struct fake_events *)id->base.channel;
    struct event *event = calloc(1, sizeof *event);
    uint64_t one = 1;
    event->base = (struct rdma_cm_event){.id = &id->base, .event = type, .status = status};
    if (bytes > 0) {
        memcpy(event->data, data, bytes);
        event->base.param.conn.private_data = event->data;
        event->base.param.conn.private_data_len = (uint8_t)bytes;
    }
    STAILQ_INSERT_TAIL(&events->queue, event, link);
    RULE(write(events->base.fd, &one, sizeof one) == sizeof one);
}
static int get_cm_event(struct rdma_event_channel *base, struct rdma_cm_event **out) {
    struct fake_events *events = (struct fake_events *)base;
    uint64_t one;
    if (read(base->fd, &one, sizeof one) != sizeof one)
        return -1;
    pthread_mutex_lock(&lock);
    struct event *event = STAILQ_FIRST(&events->queue);
    STAILQ_REMOVE_HEAD(&events->queue, link);
    /* The caller has taken the answer: now the called side may be told. */
    struct fake_id *id = (struct fake_id *)event->base.id;
    if (event->base.event == RDMA_CM_EVENT_ESTABLISHED && event->base.param.conn.private_data &&
        id->peer)
        tell(id->peer, RDMA_CM_EVENT_ESTABLISHED, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    *out = &event->base;
    return 0;
}
static int ack_cm_event(struct rdma_cm_event *base) {
    free((char *)base - offsetof(struct event, base));
    return 0;
}

static struct fake_id *id_new(struct rdma_event_channel *channel, void *context) {
    struct fake_id *id = calloc(1, sizeof *id);
    id->base.channel = channel;
    id->base.context = context;
    TAILQ_INSERT_TAIL(&ids, id, link);
    fake_counts.ids++;
    return id;
}
static int create_id(struct rdma_event_channel *channel, struct rdma_cm_id **out, void *context,
                     enum rdma_port_space space) {
    (void)space;
    pthread_mutex_lock(&lock);
    bool failed = fake_fails("create_id");
    if (!failed)
        *out = &id_new(channel, context)->base;
    pthread_mutex_unlock(&lock);
    return failed ? -1 : 0;
}

static void part(struct fake_id *id) {
    struct fake_id *peer = id->peer;
    if (!peer)
        return;
    id->peer = peer->peer = NULL;
    if (id->connected && !cut)
        tell(peer, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, 0);
    else if (!id->connected)
        tell(peer, RDMA_CM_EVENT_REJECTED, 8, NULL, 0);
}
static int destroy_id(struct rdma_cm_id *base) {
    struct fake_id *id = (struct fake_id *)base;
    struct fake_events *events = (struct fake_events *)base->channel;
    struct event *event, *next;
    uint64_t one;
    RULE(!base->qp);
    pthread_mutex_lock(&lock);
    part(id);
    for (event = STAILQ_FIRST(&events->queue); event; event = next) {
        next = STAILQ_NEXT(event, link);
        bool connecting = event->base.event == RDMA_CM_EVENT_CONNECT_REQUEST && id->listening;
        if (event->base.id != base && !connecting)
            continue;
        STAILQ_REMOVE(&events->queue, event, event, link);
        RULE(read(events->base.fd, &one, sizeof one) == sizeof one);
        if (connecting) {
            struct fake_id *caller = (struct fake_id *)event->base.id;
            TAILQ_REMOVE(&ids, caller, link);
            fake_counts.ids--;
            part(caller);
            free(caller);
        }
        free(event);
    }
    TAILQ_REMOVE(&ids, id, link);
    fake_counts.ids--;
    pthread_mutex_unlock(&lock);
    free(id);
    return 0;
}
static int bind_addr(struct rdma_cm_id *id, struct sockaddr *address) {
    (void)address;
    if (fake_fails("bind_addr"))
        return -1;
    ((struct fake_id *)id)->port = next_port++;
    return 0;
}
static int listen_(struct rdma_cm_id *id, int backlog) {
    (void)backlog;
    if (fake_fails("listen"))
        return -1;
    ((struct fake_id *)id)->listening = true;
    return 0;
}
static uint16_t get_src_port(struct rdma_cm_id *id) {
    return htons(((struct fake_id *)id)->port);
}
static int resolve_addr(struct rdma_cm_id *base, struct sockaddr *from, struct sockaddr *to,
                        int timeout_ms) {
    struct fake_id *id = (struct fake_id *)base;
    const struct sockaddr_in *in = (const struct sockaddr_in *)to;
    (void)timeout_ms;
    if (fake_fails("resolve_addr"))
        return -1;
    pthread_mutex_lock(&lock);
    id->to_port = ntohs(in->sin_port);
    id->device = (int)(ntohl(in->sin_addr.s_addr) & 0xff) - 1;
    base->verbs =
        &contexts[(ntohl(((const struct sockaddr_in *)from)->sin_addr.s_addr) & 0xff) - 1];
    if (fake_fails("address"))
        tell(id, RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT, NULL, 0);
    else
        tell(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    return 0;
}
static int resolve_route(struct rdma_cm_id *id, int timeout_ms) {
    (void)timeout_ms;
    if (fake_fails("resolve_route"))
        return -1;
    pthread_mutex_lock(&lock);
    bool lost = fake_fails("route");
    tell((struct fake_id *)id, lost ? RDMA_CM_EVENT_ROUTE_ERROR : RDMA_CM_EVENT_ROUTE_RESOLVED,
         lost ? -EHOSTUNREACH : 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    return 0;
}
static int set_option(struct rdma_cm_id *id, int level, int name, void *value, size_t bytes) {
    (void)id;
    (void)level;
    (void)name;
    (void)value;
    (void)bytes;
    return 0;
}
static int create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr) {
    pthread_mutex_lock(&lock);
    bool failed = fake_fails("create_qp");
    if (!failed) {
        struct fake_qp *qp = calloc(1, sizeof *qp);
        attr->cap.max_inline_data = attr->cap.max_inline_data ? 400 : 0;
        qp->base = (struct ibv_qp){.context = id->verbs,
                                   .pd = pd,
                                   .send_cq = attr->send_cq,
                                   .recv_cq = attr->recv_cq,
                                   .srq = attr->srq,
                                   .qp_num = next_number++};
        qp->cap = attr->cap;
        STAILQ_INIT(&qp->queue);
        TAILQ_INSERT_TAIL(&qps, qp, link);
        id->qp = &qp->base;
        fake_counts.pairs++;
    }
    pthread_mutex_unlock(&lock);
    return failed ? -1 : 0;
}
static void destroy_qp(struct rdma_cm_id *id) {
    struct fake_qp *qp = (struct fake_qp *)id->qp;
    struct request *request;
    pthread_mutex_lock(&lock);
    while ((request = STAILQ_FIRST(&qp->queue))) {
        STAILQ_REMOVE_HEAD(&qp->queue, link);
        free(request);
    }
    if (qp->peer)
        qp->peer->peer = NULL;
    TAILQ_REMOVE(&qps, qp, link);
    fake_counts.pairs--;
    pthread_mutex_unlock(&lock);
    free(qp);
    id->qp = NULL;
}
static int connect_(struct rdma_cm_id *base, struct rdma_conn_param *param) {
    struct fake_id *id = (struct fake_id *)base, *listener, *called;
    if (fake_fails("connect"))
        return -1;
    RULE(param->private_data_len <= 56 && param->retry_count < 7);
    pthread_mutex_lock(&lock);
    TAILQ_FOREACH(listener, &ids, link) {
        if (listener->listening && listener->port == id->to_port)
            break;
    }
    if (fake_fails("unreachable")) {
        tell(id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, NULL, 0);
    } else if (fake_fails("connection")) {
        tell(id, RDMA_CM_EVENT_CONNECT_ERROR, -EINVAL, NULL, 0);
    } else if (!listener || fake_fails("listener")) {
        tell(id, RDMA_CM_EVENT_REJECTED, 8, NULL, 0);
    } else if (!cut) {
        called = id_new(listener->base.channel, NULL);
        called->base.verbs = &contexts[id->device];
        called->peer = id;
        id->peer = called;
        tell(called, RDMA_CM_EVENT_CONNECT_REQUEST, 0, param->private_data,
             param->private_data_len);
    }
    pthread_mutex_unlock(&lock);
    return 0;
}
static int accept_(struct rdma_cm_id *base, struct rdma_conn_param *param) {
    struct fake_id *id = (struct fake_id *)base;
    bool failed = true;
    pthread_mutex_lock(&lock);
    if (!fake_fails("accept") && id->peer) {
        struct fake_qp *mine = (struct fake_qp *)base->qp;
        struct fake_qp *other = (struct fake_qp *)id->peer->base.qp;
        failed = false;
        mine->peer = other;
        other->peer = mine;
        mine->connected = other->connected = id->connected = id->peer->connected = true;
        tell(id->peer, RDMA_CM_EVENT_ESTABLISHED, 0, param->private_data, param->private_data_len);
    }
    pthread_mutex_unlock(&lock);
    if (failed)
        errno = EINVAL;
    return failed ? -1 : 0;
}
static int reject(struct rdma_cm_id *base, const void *data, uint8_t bytes) {
    struct fake_id *id = (struct fake_id *)base;
    pthread_mutex_lock(&lock);
    if (id->peer) {
        tell(id->peer, RDMA_CM_EVENT_REJECTED, 28, data, bytes);
        id->peer->peer = NULL;
        id->peer = NULL;
    }
    pthread_mutex_unlock(&lock);
    return 0;
}
static int disconnect(struct rdma_cm_id *base) {
    struct fake_id *id = (struct fake_id *)base;
    pthread_mutex_lock(&lock);
    if (base->qp)
        ((struct fake_qp *)base->qp)->broken = true;
    part(id);
    pthread_mutex_unlock(&lock);
    return 0;
}

/* -- the table ----------------------------------------------------------------------------- */

static const struct verbs_calls table = {
    .listen = listen_,
    .connect = connect_,
    .accept = accept_,
    .create_event_channel = create_event_channel,
    .destroy_event_channel = destroy_event_channel,
    .create_id = create_id,
    .destroy_id = destroy_id,
    .bind_addr = bind_addr,
    .get_src_port = get_src_port,
    .resolve_addr = resolve_addr,
    .resolve_route = resolve_route,
    .set_option = set_option,
    .create_qp = create_qp,
    .destroy_qp = destroy_qp,
    .reject = reject,
    .disconnect = disconnect,
    .get_cm_event = get_cm_event,
    .ack_cm_event = ack_cm_event,
    .get_devices = get_devices,
    .free_devices = free_devices,
    .fork_init = fork_init,
    .wc_status_str = wc_status_str,
    .get_device_list = get_device_list,
    .free_device_list = free_device_list,
    .get_device_name = get_device_name,
    .open_device = open_device,
    .close_device = close_device,
    .query_device = query_device,
    .query_port = query_port,
    .query_gid_table = query_gid_table,
    .alloc_pd = alloc_pd,
    .dealloc_pd = dealloc_pd,
    .reg_mr = reg_mr,
    .dereg_mr = dereg_mr,
    .create_comp_channel = create_comp_channel,
    .destroy_comp_channel = destroy_comp_channel,
    .create_cq = create_cq,
    .destroy_cq = destroy_cq,
    .get_cq_event = get_cq_event,
    .ack_cq_events = ack_cq_events,
    .create_srq = create_srq,
    .destroy_srq = destroy_srq,
    .query_qp = query_qp,
    .modify_qp = modify_qp,
    .post_send = post_send,
    .post_recv = post_recv,
    .post_srq_recv = post_srq_recv,
    .poll_cq = poll_cq,
    .req_notify_cq = req_notify_cq,
};

void fake_begin(int count, bool immediate, bool shared_receives) {
    memset(&fake_counts, 0, sizeof fake_counts);
    fake_clear();
    ndevices = count;
    with_immediate = immediate;
    with_srq = shared_receives;
    cut = paused = scatter = false;
    next_domain = 0;
    next_key = 1000;
    next_number = 17;
    next_port = 4000;
    for (int i = 0; i < 2; i++) {
        devices[i] = (struct ibv_device){.transport_type =
                                             immediate ? IBV_TRANSPORT_IB : IBV_TRANSPORT_IWARP};
        snprintf(devices[i].name, sizeof devices[i].name, "fake%d", i);
        contexts[i] = (struct ibv_context){.device = &devices[i]};
    }
    verbs_calls_replace(&table);
}

static void *adapter(void *unused) {
    struct fake_qp *qp;
    for (;;) {
        pthread_mutex_lock(&lock);
        if (!paused)
            TAILQ_FOREACH(qp, &qps, link) {
                while (carry_out(qp))
                    ;
            }
        pthread_mutex_unlock(&lock);
        usleep(100);
    }
    return unused;
}

void fake_run(void) {
    pthread_t thread;
    RULE(pthread_create(&thread, NULL, adapter, NULL) == 0);
    pthread_detach(thread);
}

void fake_end(void) {
    verbs_calls_replace(NULL);
    RULE(fake_counts.memory == 0 && fake_counts.pairs == 0);
    RULE(fake_counts.queues == 0 && fake_counts.ids == 0);
}

static void set(bool *flag, bool now) {
    pthread_mutex_lock(&lock);
    *flag = now;
    pthread_mutex_unlock(&lock);
}
void fake_cut(bool now) {
    set(&cut, now);
}
void fake_pause(bool now) {
    set(&paused, now);
}
void fake_scatter(bool now) {
    set(&scatter, now);
}
