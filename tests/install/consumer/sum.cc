// The same as sum.c in C++17.
#include <rota/rota.h>

#include <cstdio>
#include <vector>

int main() {
    rota_config config = ROTA_CONFIG_INIT;
    rota_comm *comm = nullptr;
    if (rota_init(&config, &comm, nullptr) != ROTA_OK)
        return 1;
    int rank = -1, size = 0;
    rota_comm_rank(comm, &rank);
    rota_comm_size(comm, &size);
    std::vector<float> values(1000, static_cast<float>(rank + 1));
    rota_request *request = nullptr;
    rota_call call = ROTA_CALL_INIT;
    call.request = &request;
    if (rota_all_reduce(values.data(), values.data(), values.size(), ROTA_FLOAT32, ROTA_SUM, comm,
                        &call) != ROTA_OK)
        return 2;
    if (rota_request_wait(request, 0) != ROTA_OK || rota_request_free(request) != ROTA_OK)
        return 3;
    std::printf("sum %g of %d ranks\n", static_cast<double>(values.back()), size);
    return rota_comm_finalize(comm, nullptr) != ROTA_OK || rota_comm_destroy(comm) != ROTA_OK;
}
