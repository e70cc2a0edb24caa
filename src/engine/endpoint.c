/* Endpoints: which transport reaches a peer, and the links that wait for the answer. */
#include "engine/endpoint.h"

#include "base/error.h"
#include "base/log.h"
#include "engine/job.h"
#include <stdio.h>

static void attach(struct link *link) {
    struct endpoint *endpoint = &link->job->endpoints[link->peer];
    struct transport *transport = endpoint->transport;
    if (transport->ops->stream_open(transport, link->peer, &link->key, link, &link->stream) ==
        ROTA_OK)
        link->transport = transport;
}

rota_status link_open(struct link *link, struct job *job, int peer, const struct transport_key *key,
                      const struct link_events *events, void *owner) {
    struct endpoint *endpoint = &job->endpoints[peer];
    *link = (struct link){.job = job,
                          .peer = peer,
                          .endpoint = endpoint,
                          .key = *key,
                          .events = events,
                          .owner = owner};
    link->next = endpoint->links;
    if (link->next != NULL)
        link->next->previous = &link->next;
    link->previous = &endpoint->links;
    endpoint->links = link;
    if (endpoint->state == ENDPOINT_READY) {
        attach(link);
        if (link->stream == NULL) {
            link_close(link);
            return error_raise(ROTA_ERR_MEMORY, "out of memory for a stream to rank %d", peer);
        }
    }
    return ROTA_OK;
}

void link_close(struct link *link) {
    if (link->previous == NULL)
        return;
    if (link->stream != NULL)
        link->transport->ops->stream_close(link->transport, link->stream);
    *link->previous = link->next;
    if (link->next != NULL)
        link->next->previous = link->previous;
    link->previous = NULL;
    link->next = NULL;
    link->stream = NULL;
    link->transport = NULL;
}

bool link_failed(const struct link *link) {
    return link->job->endpoints[link->peer].state == ENDPOINT_FAILED;
}

/* Tells every link of the peer. A call-back may close any link, so the walk starts again after
 * each; `seen` links are those whose stream state says that they were told. */
static void tell_failed(struct endpoint *endpoint) {
    struct link *next;
    for (struct link *link = endpoint->links; link != NULL; link = next) {
        next = link->next;
        link->events->failed(link);
    }
}

static void fail(struct job *job, int peer, int system_error, const char *evidence) {
    struct endpoint *endpoint = &job->endpoints[peer];
    if (endpoint->state == ENDPOINT_FAILED)
        return;
    endpoint->state = ENDPOINT_FAILED;
    endpoint->system_error = system_error;
    snprintf(endpoint->evidence, sizeof(endpoint->evidence), "%s", evidence);
    tell_failed(endpoint);
}

void endpoint_gone(struct job *job, int peer, bool left, const char *text) {
    struct endpoint *endpoint = &job->endpoints[peer];
    bool final = true;
    if (endpoint->gone)
        return;
    endpoint->gone = true;
    enum endpoint_state before = endpoint->state;
    /* First, so that a transport which gives up a connection does not have the next one tried. */
    endpoint->state = ENDPOINT_FAILED;
    for (int i = 0; i < job->nactive; i++) {
        const struct transport_ops *ops = job->active[i]->ops;
        if (ops->peer_gone != NULL && !ops->peer_gone(job->active[i], peer, left, text) &&
            endpoint->transport == job->active[i])
            final = false;
    }
    if (!final && before == ENDPOINT_READY) {
        endpoint->state = before;
        return;
    }
    snprintf(endpoint->evidence, sizeof(endpoint->evidence), "%s", text);
    tell_failed(endpoint);
}

/* The next transport that may reach the peer; JOB_MAX_TRANSPORTS: none. */
static int next_candidate(struct job *job, int peer, int candidate) {
    while (++candidate < JOB_MAX_TRANSPORTS) {
        struct transport *transport = job->transports[candidate];
        if (transport != NULL && transport->ops->reaches(transport, peer))
            break;
    }
    return candidate;
}

bool endpoint_has_other(void *context, struct transport *transport, int peer) {
    struct job *job = context;
    int candidate = job->endpoints[peer].candidate;
    return candidate >= 0 && job->transports[candidate] == transport &&
           next_candidate(job, peer, candidate) < JOB_MAX_TRANSPORTS;
}

static void try_next(struct job *job, int peer, const char *why, int system_error) {
    struct endpoint *endpoint = &job->endpoints[peer];
    while ((endpoint->candidate = next_candidate(job, peer, endpoint->candidate)) <
           JOB_MAX_TRANSPORTS) {
        struct transport *transport = job->transports[endpoint->candidate];
        int tried = endpoint->candidate;
        transport->ops->connect(transport, peer);
        /* connect may have failed at once and moved on by itself */
        if (endpoint->state != ENDPOINT_CONNECTING || endpoint->candidate >= tried)
            return;
    }
    char evidence[256];
    snprintf(evidence, sizeof(evidence), "no transport reaches rank %d (last: %s)", peer, why);
    fail(job, peer, system_error, evidence);
}

void link_connect(struct link *link) {
    struct endpoint *endpoint = &link->job->endpoints[link->peer];
    if (endpoint->state != ENDPOINT_IDLE)
        return;
    endpoint->state = ENDPOINT_CONNECTING;
    endpoint->candidate = -1;
    try_next(link->job, link->peer, "none is usable", 0);
}

void endpoint_connected(void *context, struct transport *transport, int peer) {
    struct job *job = context;
    struct endpoint *endpoint = &job->endpoints[peer];
    if (endpoint->state == ENDPOINT_READY || endpoint->state == ENDPOINT_FAILED)
        return;
    endpoint->state = ENDPOINT_READY;
    endpoint->transport = transport;
    log_write(LOG_DEBUG, "rank %d reaches rank %d by %s", job->rank, peer, transport->ops->name);
    struct link *next;
    for (struct link *link = endpoint->links; link != NULL; link = next) {
        next = link->next;
        if (link->stream != NULL)
            continue;
        attach(link);
        if (link->stream != NULL)
            link->events->attached(link);
        else
            link->events->failed(link);
    }
}

void endpoint_unreachable(void *context, struct transport *transport, int peer, int system_error,
                          const char *text) {
    struct job *job = context;
    struct endpoint *endpoint = &job->endpoints[peer];
    log_write(LOG_INFO, "rank %d cannot reach rank %d by %s: %s", job->rank, peer,
              transport->ops->name, text);
    if (endpoint->state == ENDPOINT_CONNECTING && job->transports[endpoint->candidate] == transport)
        try_next(job, peer, text, system_error);
}

void endpoint_broken(void *context, struct transport *transport, int peer, int system_error,
                     const char *evidence) {
    struct job *job = context;
    if (job->endpoints[peer].transport != transport)
        return;
    log_write(LOG_INFO, "rank %d lost rank %d over %s: %s", job->rank, peer, transport->ops->name,
              evidence);
    fail(job, peer, system_error, evidence);
}

void endpoint_arrived(void *owner) {
    struct link *link = owner;
    link->events->arrived(link);
}

void endpoint_writable(void *owner) {
    struct link *link = owner;
    link->events->writable(link);
}
