// What the flight recorder has of this process.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

namespace rota_torch {

// One dictionary for each communicator of a job that this process is a rank of, and one for its
// messages: which it is, how many calls it has made, and the last of them.
pybind11::list recorded(const std::string &folder);

} // namespace rota_torch
