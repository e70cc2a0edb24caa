/* Proofs of the handshake.
 *
 * Both nonces are fresh and enter both proofs, so a recorded conversation proves nothing later;
 * the labels differ, so a proof cannot be sent back to its maker; hello and challenge are under
 * the first proof and the answer under the second, so nobody in between can lower a version or
 * turn a verdict. */
#include "net/proof.h"
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the wire structs are sent as they lie in memory, which must be little endian"
#endif

void net_proof_init(void) {
    /* Picks implementations for this processor; idempotent and thread-safe. */
    if (sodium_init() < 0)
        abort(); /* without it no connection could be trusted */
}

static void hash_start(crypto_generichash_state *state, const uint8_t key[NET_KEY_BYTES],
                       const char *label) {
    crypto_generichash_init(state, key, NET_KEY_BYTES, NET_MAC_BYTES);
    crypto_generichash_update(state, (const unsigned char *)label, strlen(label) + 1);
}

static void hash_add(crypto_generichash_state *state, const void *data, size_t bytes) {
    crypto_generichash_update(state, data, bytes);
}

void net_proof_hello(const uint8_t key[NET_KEY_BYTES], const struct net_challenge *challenge,
                     const struct net_hello_message *hello, uint8_t mac[NET_MAC_BYTES]) {
    crypto_generichash_state state;
    hash_start(&state, key, "hello");
    hash_add(&state, challenge, sizeof *challenge);
    hash_add(&state, &hello->hello, sizeof hello->hello);
    hash_add(&state, hello->nonce, sizeof hello->nonce);
    crypto_generichash_final(&state, mac, NET_MAC_BYTES);
}

void net_proof_answer(const uint8_t key[NET_KEY_BYTES], const struct net_challenge *challenge,
                      const struct net_hello_message *hello, const struct net_answer *answer,
                      uint8_t mac[NET_MAC_BYTES]) {
    crypto_generichash_state state;
    hash_start(&state, key, "answer");
    hash_add(&state, hello->nonce, sizeof hello->nonce);
    hash_add(&state, challenge->nonce, sizeof challenge->nonce);
    hash_add(&state, answer, sizeof *answer);
    crypto_generichash_final(&state, mac, NET_MAC_BYTES);
}

bool net_proof_equal(const uint8_t a[NET_MAC_BYTES], const uint8_t b[NET_MAC_BYTES]) {
    return sodium_memcmp(a, b, NET_MAC_BYTES) == 0;
}

uint16_t net_proof_protocol(uint16_t first_a, uint16_t last_a, uint16_t first_b, uint16_t last_b) {
    uint16_t first = first_a > first_b ? first_a : first_b;
    uint16_t last = last_a < last_b ? last_a : last_b;
    return first <= last ? last : 0;
}
