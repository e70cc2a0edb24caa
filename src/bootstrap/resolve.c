/* getaddrinfo knows no deadline: it runs in a thread that can be left behind. */
#include "bootstrap/resolve.h"
#include "base/error.h"
#include "bootstrap/bounded.h"
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct resolution {
    char text[256];
    struct net_address addresses[NET_MAX_ADDRESSES];
    int count;
    rota_error error; /* status ROTA_OK: resolved */
};

static void resolve_call(void *argument) {
    struct resolution *resolution = argument;
    rota_status status = net_address_parse(resolution->text, resolution->addresses,
                                           NET_MAX_ADDRESSES, &resolution->count);
    if (status != ROTA_OK)
        resolution->error = *error_record();
}

/* Nothing is asked for what is an address already. */
static bool is_numeric(const char *text) {
    char host[64] = "";
    uint8_t bytes[16];
    if (sscanf(text, text[0] == '[' ? "[%63[^]]" : "%63[^:]", host) != 1)
        return false;
    return inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;
}

rota_status resolve_address(const char *text, struct net_address addresses[NET_MAX_ADDRESSES],
                            int *count, int64_t deadline_ns) {
    bool late = false;
    if (is_numeric(text))
        return net_address_parse(text, addresses, NET_MAX_ADDRESSES, count);
    struct resolution *resolution = calloc(1, sizeof *resolution);
    if (resolution == NULL)
        return error_raise(ROTA_ERR_MEMORY, "no memory to resolve a host name");
    snprintf(resolution->text, sizeof resolution->text, "%s", text);
    rota_status status = bounded_call(resolve_call, free, resolution, deadline_ns, &late);
    if (status == ROTA_OK && late)
        return error_raise(ROTA_ERR_TIMEOUT, "the name server did not resolve \"%.80s\" in time",
                           text);
    if (status == ROTA_OK && resolution->error.status != ROTA_OK) {
        *error_record() = resolution->error;
        status = resolution->error.status;
    } else if (status == ROTA_OK) {
        *count = resolution->count;
        memcpy(addresses, resolution->addresses, sizeof resolution->addresses);
    }
    free(resolution);
    return status;
}
