// Failures of the library as exceptions of torch.
#pragma once

#include <rota/rota.h>

#include <chrono>
#include <exception>
#include <string>

namespace rota_torch {

// What a failed call was: "all_reduce", on group "default_pg" of rank 0 of 2.
struct Place {
    std::string backend, group;
    int rank = 0, nranks = 0;
};

// The exception for a failed call: it says what failed where, and the record's own sentence, which
// names who is to blame. A time-out's text contains "Timed out waiting <n>ms".
std::exception_ptr failure(const Place &place, const char *operation, const rota_error &record,
                           std::chrono::milliseconds timeout);

// The exception for a wait that was given up while the operation goes on.
std::exception_ptr wait_timed_out(const Place &place, const char *operation,
                                  std::chrono::milliseconds timeout);

// Throws when a call that has no place of its own failed.
void check(rota_status status, const char *operation);

} // namespace rota_torch
