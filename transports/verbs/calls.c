/* Loading libibverbs and librdmacm. */
#include "calls.h"

#include "base/error.h"

#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define DEVICES "/sys/class/infiniband"

static int call_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
    return ibv_post_send(qp, wr, bad);
}
static int call_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    return ibv_post_recv(qp, wr, bad);
}
static int call_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
                              struct ibv_recv_wr **bad) {
    return ibv_post_srq_recv(srq, wr, bad);
}
static int call_poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc) {
    return ibv_poll_cq(cq, count, wc);
}
static int call_req_notify_cq(struct ibv_cq *cq, int solicited) {
    return ibv_req_notify_cq(cq, solicited);
}

static struct verbs_calls loaded;
static const struct verbs_calls *replaced;
static char missing[128];
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int (*old_query_port)(struct ibv_context *, uint8_t, struct _compat_ibv_port_attr *);
static ssize_t (*gid_table)(struct ibv_context *, struct ibv_gid_entry *, size_t, uint32_t, size_t);

/* As the header's inline function, which would have the library linked. */
static int call_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr) {
    struct verbs_context *extended = verbs_get_ctx_op(context, query_port);
    if (extended != NULL)
        return extended->query_port(context, port, attr, sizeof(*attr));
    memset(attr, 0, sizeof(*attr));
    return old_query_port(context, port, (struct _compat_ibv_port_attr *)attr);
}

/* The same. */
static ssize_t call_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
                                    size_t most, uint32_t flags) {
    return gid_table(context, entries, most, flags, sizeof(*entries));
}

static void *find(void *library, const char *name) {
    void *symbol = dlsym(library, name);
    if (symbol == NULL && missing[0] == '\0')
        snprintf(missing, sizeof(missing), "the RDMA libraries have no %s", name);
    return symbol;
}

/* The libraries stay loaded: threads of theirs and of the providers may run. */
static void load(void) {
    void *verbs = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    void *cm = verbs != NULL ? dlopen("librdmacm.so.1", RTLD_NOW | RTLD_LOCAL) : NULL;
    if (cm == NULL) {
        snprintf(missing, sizeof(missing), "%s", dlerror());
        return;
    }
#define FIND_CM(result, name, arguments) loaded.name = (result(*) arguments)find(cm, "rdma_" #name);
#define FIND_IB(result, name, arguments)                                                           \
    loaded.name = (result(*) arguments)find(verbs, "ibv_" #name);
#define FIND_NEW(result, name, arguments)                                                          \
    loaded.name = (result(*) arguments)dlsym(verbs, "ibv_" #name);
#define WRAP(result, name, arguments) loaded.name = call_##name;
    VERBS_CM_CALLS(FIND_CM)
    VERBS_IB_CALLS(FIND_IB)
    VERBS_NEW_CALLS(FIND_NEW)
    VERBS_INLINE_CALLS(WRAP)
#undef FIND_CM
#undef FIND_IB
#undef FIND_NEW
#undef WRAP
    old_query_port = (int (*)(struct ibv_context *, uint8_t, struct _compat_ibv_port_attr *))find(
        verbs, "ibv_query_port");
    gid_table = (ssize_t(*)(struct ibv_context *, struct ibv_gid_entry *, size_t, uint32_t,
                            size_t))find(verbs, "_ibv_query_gid_table");
    /* A child of fork must not take pages from under the adapter; newer kernels see to it and this
     * does nothing there. */
    if (missing[0] == '\0')
        (void)loaded.fork_init();
}

rota_status verbs_device_exists(void) {
    if (replaced != NULL)
        return ROTA_OK;
    DIR *folder = opendir(DEVICES);
    bool any = false;
    for (struct dirent *entry; folder != NULL && !any && (entry = readdir(folder)) != NULL;)
        any = entry->d_name[0] != '.';
    if (folder != NULL)
        closedir(folder);
    return any ? ROTA_OK
               : error_raise(ROTA_ERR_UNSUPPORTED, "there is no RDMA device (none in " DEVICES ")");
}

rota_status verbs_calls_load(const struct verbs_calls **calls) {
    if (replaced != NULL) {
        *calls = replaced;
        return ROTA_OK;
    }
    pthread_once(&once, load);
    if (missing[0] != '\0')
        return error_raise(ROTA_ERR_UNSUPPORTED, "%s", missing);
    *calls = &loaded;
    return ROTA_OK;
}

void verbs_calls_replace(const struct verbs_calls *calls) {
    replaced = calls;
}
