/* A job of two ranks that are threads of the test, and what a refused call must look like. */
#ifndef TESTS_API_PAIR_H
#define TESTS_API_PAIR_H

#include <criterion/criterion.h>
#include <rota/rota.h>

struct pair {
    rota_comm *comms[2];
};

void pair_open(struct pair *pair);
/* Both ranks exchange something and get it right: nothing stray was communicated before. */
void pair_works(const struct pair *pair);
void pair_close(struct pair *pair);

/* Asserts on a refused call: its status, and that the error record of the thread, and that of the
 * communicator when there is one, hold the status and name `word`. */
void refused_at(int line, rota_status got, rota_status expected, const rota_comm *comm,
                const char *word);
#define REFUSED(call, expected, comm, word) refused_at(__LINE__, (call), (expected), (comm), (word))

#endif
