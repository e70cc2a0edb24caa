/* C85: a program whose thread-local data are larger than the stack that the library's threads ask
 * for; glibc takes both from one allocation and refuses a size that does not hold them. */
#include <rota/rota.h>
#include <stdio.h>
#include <string.h>

#define LOCAL_BYTES ((size_t)2 << 20)

static _Thread_local char local[LOCAL_BYTES];

int main(void) {
    rota_comm *comms[1];
    float one = 1, sum = 0;
    memset(local, 1, sizeof(local));
    if (rota_init_threads(1, comms, NULL) != ROTA_OK) {
        rota_error error = ROTA_ERROR_INIT;
        rota_last_error(&error);
        printf("FAILED: %s\n", error.message);
        return 1;
    }
    rota_status status = rota_all_reduce(&one, &sum, 1, ROTA_FLOAT32, ROTA_SUM, comms[0], NULL);
    rota_comm_destroy(comms[0]);
    return status != ROTA_OK || sum != 1 || local[LOCAL_BYTES - 1] != 1;
}
