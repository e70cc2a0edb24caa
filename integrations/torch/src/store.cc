// torch's store as rota's: one value, rank 0's unique id, and a counter.
#include "store.h"

#include "failure.h"

#include <cstring>

namespace rota_torch {

namespace {

struct Adapter {
    c10::intrusive_ptr<c10d::Store> store;
    std::string error;
};

int set_value(void *arg, const char *key, const void *value, size_t bytes) {
    auto *adapter = static_cast<Adapter *>(arg);
    try {
        const auto *begin = static_cast<const uint8_t *>(value);
        adapter->store->set(key, std::vector<uint8_t>(begin, begin + bytes));
        return 0;
    } catch (const std::exception &error) {
        adapter->error = error.what();
        return 1;
    }
}

int get_value(void *arg, const char *key, void *value, size_t capacity, size_t *bytes,
              int64_t timeout_ms) {
    auto *adapter = static_cast<Adapter *>(arg);
    try {
        adapter->store->wait({key}, std::chrono::milliseconds(timeout_ms));
        std::vector<uint8_t> found = adapter->store->get(key);
        if (found.size() > capacity)
            return 2;
        std::memcpy(value, found.data(), found.size());
        *bytes = found.size();
        return 0;
    } catch (const std::exception &error) {
        adapter->error = error.what();
        return 1;
    }
}

} // namespace

// A store may outlive a process group and serve the next one under the same prefix. So the keys of
// each have a number: every rank of each generation counts itself in once.
static std::string generation(c10d::Store &store, int size) {
    return std::to_string((store.add("rota/joined", 1) - 1) / size);
}

rota_comm *join(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
                const std::string &name, std::chrono::milliseconds timeout) {
    // A connection of its own: the store's other users must not wait for ours.
    Adapter adapter{store->clone(), ""};
    std::string prefix = "rota/" + generation(*adapter.store, size) + "/";
    rota_store table = ROTA_STORE_INIT;
    table.set = set_value;
    table.get = get_value;
    table.arg = &adapter;
    table.prefix = prefix.c_str();
    rota_config config = ROTA_CONFIG_INIT;
    config.nranks = size;
    config.rank = rank;
    config.name = name.c_str();
    config.store = &table;
    rota_call call = ROTA_CALL_INIT;
    call.timeout_ms = timeout.count();
    rota_comm *comm = nullptr;
    rota_status status = rota_init(&config, &comm, &call);
    TORCH_CHECK(status == ROTA_OK || adapter.error.empty(), "rota: joining group ", name,
                " by the store: ", adapter.error);
    check(status, ("joining group " + name).c_str());
    return comm;
}

} // namespace rota_torch
