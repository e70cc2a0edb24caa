/* The libraries themselves, with what is asked of them counted as the double counts it. */
#include "fake.h"

#include "transports/verbs/calls.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static const struct verbs_calls *real;
static struct verbs_calls watched;

static uint64_t length_of(const struct ibv_send_wr *wr) {
    uint64_t length = 0;
    for (int i = 0; i < wr->num_sge; i++)
        length += wr->sg_list[i].length;
    return length;
}

static int post_send(struct ibv_qp *pair, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
    for (const struct ibv_send_wr *each = wr; each != NULL; each = each->next)
        fake_count(each, length_of(each));
    return real->post_send(pair, wr, bad);
}

static int poll_cq(struct ibv_cq *queue, int most, struct ibv_wc *completions) {
    int n = real->poll_cq(queue, most, completions);
    for (int i = 0; i < n; i++)
        fake_counts.not_ready += completions[i].status == IBV_WC_RNR_RETRY_EXC_ERR;
    return n;
}

static int create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr) {
    int result = real->create_qp(id, pd, attr);
    fake_counts.pairs += result == 0;
    return result;
}

static void destroy_qp(struct rdma_cm_id *id) {
    fake_counts.pairs--;
    real->destroy_qp(id);
}

void fake_watch(void) {
    verbs_calls_replace(NULL);
    if (verbs_calls_load(&real) != ROTA_OK) {
        fprintf(stderr, "the RDMA libraries cannot be loaded\n");
        abort();
    }
    watched = *real;
    watched.post_send = post_send;
    watched.poll_cq = poll_cq;
    watched.create_qp = create_qp;
    watched.destroy_qp = destroy_qp;
    verbs_calls_replace(&watched);
}

void fake_unwatch(void) {
    verbs_calls_replace(NULL);
}
