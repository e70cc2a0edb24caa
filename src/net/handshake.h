/* The one authenticated accept and connect.
 *
 * Whoever connects proves that it holds the job's key before a byte of it is interpreted:
 *
 *   acceptor -> initiator   challenge: magic, protocol range, nonce A
 *   initiator -> acceptor   hello (struct net_hello), nonce I, MAC(key, "hello" A hello I)
 *   acceptor -> initiator   answer (struct net_answer), MAC(key, "answer" I A answer)
 *   then, when the hello says so, descriptors both ways (SCM_RIGHTS, Unix sockets only)
 *
 * MAC is keyed BLAKE2b-256 (libsodium crypto_generichash). All of it runs in state machines that
 * never block; the acceptor drops a connection that has not finished within 5 s, and holds at
 * most 64 unfinished ones (the oldest goes first). */
#ifndef NET_HANDSHAKE_H
#define NET_HANDSHAKE_H

#include "net/address.h"

#define NET_MAGIC 0x61746f72u /* "rota", little endian */
#define NET_PROTOCOL_FIRST 1
#define NET_PROTOCOL_LAST 1
#define NET_KEY_BYTES 32
#define NET_MAX_DESCRIPTORS 4

enum net_purpose {
    NET_PURPOSE_RENDEZVOUS = 1, /* register with the root */
    NET_PURPOSE_TABLE = 2,      /* a tree parent brings the table of ranks */
    NET_PURPOSE_CONTROL = 3,    /* control plane between two ranks (probes, verdicts) */
    NET_PURPOSE_DATA = 16       /* + index of the transport in transports.def */
};

/* All integers little endian. Fields not used yet are sent as zero and must be accepted. */
struct net_hello {
    uint32_t magic;
    uint16_t protocol_first, protocol_last; /* what the initiator speaks */
    uint64_t capabilities;
    uint8_t job[16];
    uint32_t rank;        /* of the initiator */
    uint32_t target_rank; /* whom it wants; several ranks may live behind one listener */
    uint64_t incarnation; /* random, per process */
    uint32_t epoch;
    uint16_t purpose;
    uint16_t descriptors; /* 1: descriptors follow both ways */
    uint16_t stripe, stripes;
    uint32_t unused;
    uint64_t session; /* resumable links */
    uint64_t next_frame;
    uint64_t agreement; /* hash of the settings that must agree */
};
_Static_assert(sizeof(struct net_hello) == 88, "net_hello is sent over the wire");

enum net_verdict {
    NET_GO = 0,
    NET_REFUSED_CROSSING = 1, /* the acceptor's own connection lives; wait for it */
    NET_REFUSED_TARGET = 2,   /* no such job or rank here (yet) */
    NET_REFUSED_PROTOCOL = 3, /* no common protocol version: see protocol_first, protocol_last */
    NET_REFUSED_SETTINGS = 4,
    NET_REFUSED_GIVEN_UP = 5 /* this transport was given up for this pair */
};
struct net_answer {
    uint32_t verdict;
    uint16_t protocol; /* chosen version */
    uint16_t protocol_first, protocol_last;
    uint16_t unused;
    uint32_t rank;
    uint64_t incarnation;
    uint64_t capabilities;
};
_Static_assert(sizeof(struct net_answer) == 32, "net_answer is sent over the wire");

/* This rank in its job. */
struct net_identity {
    uint8_t key[NET_KEY_BYTES];
    uint8_t job[16];
    int rank;
    uint64_t incarnation;
    uint64_t agreement;
    uint16_t protocol_first, protocol_last;
};

/* -- connecting ---------------------------------------------------------------------------------
 */
struct net_dial;
struct net_target {
    struct net_address inet; /* family 0: use local_name */
    const char *local_name;
};
/* Begins to connect and to shake hands. `offered` descriptors are passed after GO (they stay the
 * caller's). Errors: ROTA_ERR_SYSTEM (socket, connect). */
rota_status net_dial_start(const struct net_identity *identity, const struct net_target *target,
                           int target_rank, enum net_purpose purpose, const int *offered,
                           int noffered, int64_t deadline_ns, struct net_dial **dial);
/* Before the first step: it is a further connection of the pair, from 1. */
void net_dial_stripe(struct net_dial *dial, uint16_t stripe);
/* Descriptor and events (EPOLLIN/EPOLLOUT) to wait for. */
int net_dial_descriptor(const struct net_dial *dial, uint32_t *events);
/* Goes on. ROTA_OK with *finished false: not yet. Errors (dial is to be freed): ROTA_ERR_SYSTEM,
 * ROTA_ERR_TIMEOUT, ROTA_ERR_FORMAT (peer speaks something else), ROTA_ERR_MISMATCH (refused: the
 * verdict is in *answer). */
rota_status net_dial_step(struct net_dial *dial, bool *finished, struct net_answer *answer);
/* After it finished: hands out socket and received descriptors; then free the dial. */
int net_dial_take(struct net_dial *dial, int *descriptors, int *ndescriptors);
void net_dial_free(struct net_dial *dial);

/* -- accepting ----------------------------------------------------------------------------------
 */
/* What the listener asks its owner, on the thread that drives it. */
struct net_gate {
    void *context;
    /* The identity that the hello must prove, NULL when job or rank is unknown. */
    const struct net_identity *(*find)(void *context, const struct net_hello *hello);
    /* After the proof: the verdict, and the descriptors to offer when GO. */
    enum net_verdict (*judge)(void *context, const struct net_hello *hello, int *descriptors,
                              int *ndescriptors);
    /* A finished connection; socket and received descriptors are the gate's from now on. */
    void (*admit)(void *context, const struct net_hello *hello, int socket, const int *descriptors,
                  int ndescriptors);
};
struct net_listener;
/* Listens on an IP port (of the setting ROTA_PORT_RANGE, or any) on all addresses, and on a random
 * abstract Unix name; fills `addresses` (interfaces by setting). `inet` false: Unix only.
 * Errors: ROTA_ERR_SYSTEM ("no free port in the range ..."), ROTA_ERR_SETTING. */
rota_status net_listener_open(const struct settings *settings, const struct net_gate *gate,
                              struct net_addresses *addresses, struct net_listener **listener);
/* As above on a given address (rendezvous at a known port). */
rota_status net_listener_open_at(const struct net_address *address, const char *local_name,
                                 const struct net_gate *gate, struct net_listener **listener);
void net_listener_close(struct net_listener *listener);
/* In the child of a fork: closes the parent's descriptors here and leaves the memory alone. */
void net_listener_close_inherited(struct net_listener *listener);
/* One descriptor (an epoll set) that is readable when step has work. */
int net_listener_descriptor(const struct net_listener *listener);
/* Accepts, advances handshakes, drops late ones. Never blocks. Returns ms until it must be called
 * again because of deadlines, -1 when there is none. */
int net_listener_step(struct net_listener *listener);

/* -- sockets ------------------------------------------------------------------------------------
 */
/* Whole-message I/O with a deadline on a non-blocking socket (poll inside; for bootstrap only).
 * Errors: ROTA_ERR_TIMEOUT, ROTA_ERR_PEER (closed), ROTA_ERR_SYSTEM. */
rota_status net_write_all(int socket, const void *data, size_t bytes, int64_t deadline_ns);
rota_status net_read_all(int socket, void *data, size_t bytes, int64_t deadline_ns);
/* For a connection of much data to another host: gives it the congestion control that the
 * administrator chose. All sockets begin with one that does not pace. */
void net_far(int socket);
/* Random bytes that nobody can guess. */
void net_random(void *bytes, size_t count);

#endif
