/* Makes a program's ranks, which are threads, meet over the double of the RDMA libraries. */
#include "fake.h"

#include <stdlib.h>

__attribute__((constructor)) static void take_the_double(void) {
    setenv("ROTA_TEST_WAY", "verbs", 1);
    setenv("ROTA_TRANSPORT", "verbs", 1);
    fake_begin(1, true, true);
    fake_run();
}
