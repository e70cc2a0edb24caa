/* The messages of the handshake and the proofs in them. Internal to net. */
#ifndef NET_PROOF_H
#define NET_PROOF_H

#include "net/handshake.h"

#define NET_NONCE_BYTES 32
#define NET_MAC_BYTES 32

struct net_challenge {
    uint32_t magic;
    uint16_t protocol_first, protocol_last;
    uint8_t nonce[NET_NONCE_BYTES];
};
_Static_assert(sizeof(struct net_challenge) == 40, "sent over the wire");

struct net_hello_message {
    struct net_hello hello;
    uint8_t nonce[NET_NONCE_BYTES];
    uint8_t mac[NET_MAC_BYTES];
};
_Static_assert(sizeof(struct net_hello_message) == 152, "sent over the wire");

struct net_answer_message {
    struct net_answer answer;
    uint8_t mac[NET_MAC_BYTES];
};
_Static_assert(sizeof(struct net_answer_message) == 64, "sent over the wire");

void net_proof_init(void);
void net_proof_hello(const uint8_t key[NET_KEY_BYTES], const struct net_challenge *challenge,
                     const struct net_hello_message *hello, uint8_t mac[NET_MAC_BYTES]);
void net_proof_answer(const uint8_t key[NET_KEY_BYTES], const struct net_challenge *challenge,
                      const struct net_hello_message *hello, const struct net_answer *answer,
                      uint8_t mac[NET_MAC_BYTES]);
/* In constant time. */
bool net_proof_equal(const uint8_t a[NET_MAC_BYTES], const uint8_t b[NET_MAC_BYTES]);
/* Highest protocol version that both ranges hold, 0 when there is none. */
uint16_t net_proof_protocol(uint16_t first_a, uint16_t last_a, uint16_t first_b, uint16_t last_b);

#endif
