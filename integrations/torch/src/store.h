// Meeting by torch's store.
#pragma once

#include <rota/rota.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <string>

namespace rota_torch {

// Joins a job of `size` ranks that share the store. Throws what went wrong.
rota_comm *join(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
                const std::string &name, std::chrono::milliseconds timeout);

} // namespace rota_torch
