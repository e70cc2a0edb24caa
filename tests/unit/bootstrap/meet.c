/* One rank that joins a job as the environment says, and prints the record of every rank or the
 * error: for tests that need several network namespaces. */
#include "base/clock.h"
#include "base/error.h"
#include "bootstrap/bootstrap.h"
#include <stdio.h>
#include <stdlib.h>

static rota_status meet(struct settings *settings) {
    struct bootstrap_place place;
    struct bootstrap_record mine = {0};
    rota_status status = bootstrap_locate(NULL, settings, &place);
    if (status == ROTA_OK)
        status = control_acquire(settings, &mine.addresses);
    if (status != ROTA_OK)
        return status;
    struct bootstrap_record *records = calloc((size_t)place.nranks, sizeof *records);
    int64_t deadline = clock_deadline(settings_integer(settings, SETTING_INIT_TIMEOUT_MS));
    status = records == NULL ? ROTA_ERR_MEMORY : bootstrap_describe(settings, &mine);
    if (status == ROTA_OK)
        status = bootstrap_exchange(&place, settings, &mine, records, deadline);
    for (int rank = 0; status == ROTA_OK && rank < place.nranks; rank++) {
        char text[NET_ADDRESS_TEXT];
        net_address_text(&records[rank].addresses.inet[0], text);
        printf("rank %d at %s\n", rank, text);
    }
    free(records);
    control_release();
    return status;
}

int main(void) {
    struct settings *settings;
    rota_status status = settings_load(&settings);
    if (status == ROTA_OK) {
        status = meet(settings);
        settings_free(settings);
    }
    if (status != ROTA_OK)
        printf("%s: %s\n", rota_status_name(status), error_record()->message);
    return status == ROTA_OK ? 0 : 1;
}
