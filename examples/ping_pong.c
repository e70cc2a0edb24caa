/* Ping-pong: ranks 0 and 1 send a message to and fro, and rank 0 prints how long one way takes.
 *
 *     rota run -n 2 -- ping_pong
 *
 * A receive says how much came: the buffer may be larger than the message. */
#include "check.h"

#include <inttypes.h>
#include <time.h>

#define ROUNDS 1000
#define LARGEST 65536
#define PING 1
#define PONG 2

static double now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

/* One round trip of `bytes` bytes; the answer repeats what was asked. */
static void round_trip(rota_comm *comm, int rank, uint8_t *buffer, size_t bytes, int round) {
    rota_recv_info info = ROTA_RECV_INFO_INIT;
    if (rank == 0) {
        buffer[0] = (uint8_t)round;
        check(rota_send(buffer, bytes, ROTA_UINT8, 1, PING, comm, NULL), "send", comm);
        buffer[0] = 0xff;
        check(rota_recv(buffer, LARGEST, ROTA_UINT8, 1, PONG, comm, &info, NULL), "recv", comm);
        if (info.count != bytes || buffer[0] != (uint8_t)round) {
            fprintf(stderr, "round %d: %zu bytes came back, sent %zu\n", round, info.count, bytes);
            exit(1);
        }
    } else {
        check(rota_recv(buffer, LARGEST, ROTA_UINT8, 0, PING, comm, &info, NULL), "recv", comm);
        check(rota_send(buffer, info.count, ROTA_UINT8, 0, PONG, comm, NULL), "send", comm);
    }
}

int main(void) {
    static uint8_t buffer[LARGEST];
    rota_comm *comm = NULL;
    int rank, size;

    check(rota_init(NULL, &comm, NULL), "init", NULL);
    check(rota_comm_rank(comm, &rank), "rank", comm);
    check(rota_comm_size(comm, &size), "size", comm);
    if (size < 2) {
        fprintf(stderr, "ping_pong needs two ranks: rota run -n 2 -- ping_pong\n");
        return 2;
    }
    for (size_t bytes = 1; bytes <= LARGEST && rank < 2; bytes *= 16) {
        round_trip(comm, rank, buffer, bytes, 0); /* connections are made at first use */
        double begin = now_us();
        for (int round = 1; round <= ROUNDS; round++)
            round_trip(comm, rank, buffer, bytes, round);
        if (rank == 0)
            printf("%6zu bytes: %8.2f us one way\n", bytes, (now_us() - begin) / (2 * ROUNDS));
    }
    check(rota_comm_finalize(comm, NULL), "finalize", comm);
    check(rota_comm_destroy(comm), "destroy", NULL);
    return 0;
}
