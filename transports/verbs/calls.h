/* What is used of libibverbs and librdmacm, as a table of functions: the libraries are loaded at
 * run time, and only where a device exists, and unit tests put a double with injected faults in
 * their place. A name is that of the library without its prefix; arguments, results and errno are
 * those of its manual page. */
#ifndef VERBS_CALLS_H
#define VERBS_CALLS_H

#include <rota/status.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

/* CALL(result, name, arguments): exported by librdmacm as rdma_<name>. */
#define VERBS_CM_CALLS(CALL)                                                                       \
    CALL(struct rdma_event_channel *, create_event_channel, (void))                                \
    CALL(void, destroy_event_channel, (struct rdma_event_channel *))                               \
    CALL(int, create_id,                                                                           \
         (struct rdma_event_channel *, struct rdma_cm_id **, void *, enum rdma_port_space))        \
    CALL(int, destroy_id, (struct rdma_cm_id *))                                                   \
    CALL(int, bind_addr, (struct rdma_cm_id *, struct sockaddr *))                                 \
    CALL(int, listen, (struct rdma_cm_id *, int))                                                  \
    CALL(uint16_t, get_src_port, (struct rdma_cm_id *))                                            \
    CALL(int, resolve_addr, (struct rdma_cm_id *, struct sockaddr *, struct sockaddr *, int))      \
    CALL(int, resolve_route, (struct rdma_cm_id *, int))                                           \
    CALL(int, set_option, (struct rdma_cm_id *, int, int, void *, size_t))                         \
    CALL(int, create_qp, (struct rdma_cm_id *, struct ibv_pd *, struct ibv_qp_init_attr *))        \
    CALL(void, destroy_qp, (struct rdma_cm_id *))                                                  \
    CALL(int, connect, (struct rdma_cm_id *, struct rdma_conn_param *))                            \
    CALL(int, accept, (struct rdma_cm_id *, struct rdma_conn_param *))                             \
    CALL(int, reject, (struct rdma_cm_id *, const void *, uint8_t))                                \
    CALL(int, disconnect, (struct rdma_cm_id *))                                                   \
    CALL(int, get_cm_event, (struct rdma_event_channel *, struct rdma_cm_event **))                \
    CALL(int, ack_cm_event, (struct rdma_cm_event *))                                              \
    CALL(struct ibv_context **, get_devices, (int *))                                              \
    CALL(void, free_devices, (struct ibv_context **))

/* The same, exported by libibverbs as ibv_<name>. */
#define VERBS_IB_CALLS(CALL)                                                                       \
    CALL(int, fork_init, (void))                                                                   \
    CALL(const char *, wc_status_str, (enum ibv_wc_status))                                        \
    CALL(struct ibv_device **, get_device_list, (int *))                                           \
    CALL(void, free_device_list, (struct ibv_device **))                                           \
    CALL(const char *, get_device_name, (struct ibv_device *))                                     \
    CALL(struct ibv_context *, open_device, (struct ibv_device *))                                 \
    CALL(int, close_device, (struct ibv_context *))                                                \
    CALL(int, query_device, (struct ibv_context *, struct ibv_device_attr *))                      \
    CALL(struct ibv_pd *, alloc_pd, (struct ibv_context *))                                        \
    CALL(int, dealloc_pd, (struct ibv_pd *))                                                       \
    CALL(struct ibv_mr *, reg_mr, (struct ibv_pd *, void *, size_t, int))                          \
    CALL(int, dereg_mr, (struct ibv_mr *))                                                         \
    CALL(struct ibv_comp_channel *, create_comp_channel, (struct ibv_context *))                   \
    CALL(int, destroy_comp_channel, (struct ibv_comp_channel *))                                   \
    CALL(struct ibv_cq *, create_cq,                                                               \
         (struct ibv_context *, int, void *, struct ibv_comp_channel *, int))                      \
    CALL(int, destroy_cq, (struct ibv_cq *))                                                       \
    CALL(int, get_cq_event, (struct ibv_comp_channel *, struct ibv_cq **, void **))                \
    CALL(void, ack_cq_events, (struct ibv_cq *, unsigned int))                                     \
    CALL(struct ibv_srq *, create_srq, (struct ibv_pd *, struct ibv_srq_init_attr *))              \
    CALL(int, destroy_srq, (struct ibv_srq *))                                                     \
    CALL(int, query_qp, (struct ibv_qp *, struct ibv_qp_attr *, int, struct ibv_qp_init_attr *))   \
    CALL(int, modify_qp, (struct ibv_qp *, struct ibv_qp_attr *, int))

/* The same of newer libraries: NULL where they lack it. */
#define VERBS_NEW_CALLS(CALL)                                                                      \
    CALL(struct ibv_mr *, reg_dmabuf_mr, (struct ibv_pd *, uint64_t, size_t, uint64_t, int, int))

/* Inline functions of <infiniband/verbs.h>, which the table wraps. */
#define VERBS_INLINE_CALLS(CALL)                                                                   \
    CALL(int, query_port, (struct ibv_context *, uint8_t, struct ibv_port_attr *))                 \
    CALL(ssize_t, query_gid_table,                                                                 \
         (struct ibv_context *, struct ibv_gid_entry *, size_t, uint32_t))                         \
    CALL(int, post_send, (struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **))           \
    CALL(int, post_recv, (struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **))           \
    CALL(int, post_srq_recv, (struct ibv_srq *, struct ibv_recv_wr *, struct ibv_recv_wr **))      \
    CALL(int, poll_cq, (struct ibv_cq *, int, struct ibv_wc *))                                    \
    CALL(int, req_notify_cq, (struct ibv_cq *, int))

struct verbs_calls {
#define VERBS_MEMBER(result, name, arguments) result(*name) arguments;
    VERBS_CM_CALLS(VERBS_MEMBER)
    VERBS_IB_CALLS(VERBS_MEMBER)
    VERBS_NEW_CALLS(VERBS_MEMBER)
    VERBS_INLINE_CALLS(VERBS_MEMBER)
#undef VERBS_MEMBER
};

/* Whether this machine has any RDMA device, without loading a library; false raises an error that
 * says so (ROTA_ERR_UNSUPPORTED). */
rota_status verbs_device_exists(void);
/* Loads the libraries, once per process, and hands out the table. ROTA_ERR_UNSUPPORTED: a library
 * or a function in it is missing; the message says which. */
rota_status verbs_calls_load(const struct verbs_calls **calls);
/* For tests: what verbs_calls_load hands out from now on, and with it a device exists; NULL: the
 * libraries again. */
void verbs_calls_replace(const struct verbs_calls *calls);

#endif
