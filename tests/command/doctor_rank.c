/* A rank that does what its arguments say, for the tests of `rota doctor`:
 *
 *   doctor_rank RANK=ACTIONS... [ACTIONS of the other ranks]
 *
 * ACTIONS are words joined by commas: rN all_reduce N times; g all_gather; b barrier; sP, vP send
 * to, receive from rank P; split makes the communicator "tp" of all ranks, and t before r, g, b, s
 * and v uses it; wN sleeps N ms; kill ends the process by SIGKILL; exit ends it without a word.
 * Prints nothing but the first error; a rank whose call fails goes on to the end. */
#include <rota/rota.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static rota_comm *world, *tp;

static void wait_ms(long ms) {
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static rota_status call(rota_comm *comm, char what, int number) {
    static float in[1000], out[64 * 1000];
    rota_status status = ROTA_OK;
    switch (what) {
    case 'r':
        for (int i = 0; i < (number > 0 ? number : 1) && status == ROTA_OK; i++)
            status = rota_all_reduce(in, out, 1000, ROTA_FLOAT32, ROTA_SUM, comm, NULL);
        return status;
    case 'g':
        return rota_all_gather(in, out, 1000, ROTA_FLOAT32, comm, NULL);
    case 'b':
        return rota_barrier(comm, NULL);
    case 's':
        return rota_send(in, 1000, ROTA_FLOAT32, number, 7, comm, NULL);
    case 'v':
        return rota_recv(out, 1000, ROTA_FLOAT32, number, 7, comm, NULL, NULL);
    default:
        fprintf(stderr, "doctor_rank: no action '%c'\n", what);
        exit(2);
    }
}

static rota_status act(const char *word) {
    if (strcmp(word, "kill") == 0)
        raise(SIGKILL);
    if (strcmp(word, "exit") == 0)
        _exit(0);
    if (strcmp(word, "split") == 0)
        return rota_comm_split(world, 0, 0, "tp", &tp, NULL);
    if (word[0] == 'w') {
        wait_ms(strtol(word + 1, NULL, 10));
        return ROTA_OK;
    }
    bool other = word[0] == 't';
    word += other;
    return call(other ? tp : world, word[0], (int)strtol(word + 1, NULL, 10));
}

int main(int argc, char **argv) {
    if (rota_init(NULL, &world, NULL) != ROTA_OK) {
        rota_error error = ROTA_ERROR_INIT;
        rota_last_error(&error);
        fprintf(stderr, "doctor_rank: %s\n", error.message);
        return 1;
    }
    int rank = 0, result = 0;
    rota_comm_rank(world, &rank);
    char own[16];
    snprintf(own, sizeof(own), "%d=", rank);
    char *actions = NULL;
    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], own, strlen(own)) == 0)
            actions = argv[i] + strlen(own);
        else if (strchr(argv[i], '=') == NULL && actions == NULL)
            actions = argv[i];
    for (char *word = strtok(actions, ","); word != NULL; word = strtok(NULL, ","))
        if (act(word) != ROTA_OK && result == 0) {
            rota_error error = ROTA_ERROR_INIT;
            rota_last_error(&error);
            fprintf(stderr, "doctor_rank: %s\n", error.message);
            result = 3;
        }
    rota_comm_destroy(tp);
    rota_comm_destroy(world);
    return result;
}
