// The Python module: what makes a backend, and what reads the recorder.
#include "backend.h"
#include "recorded.h"

#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

namespace rota_torch {

static c10::intrusive_ptr<c10d::Backend>
create(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
       std::chrono::milliseconds timeout, const std::string &name, const std::string &group,
       const std::vector<int64_t> &global_ranks, const c10::intrusive_ptr<c10d::Backend> &world) {
    auto options = c10::make_intrusive<RotaOptions>(name, timeout);
    options->group_name = group;
    options->global_ranks_in_group.assign(global_ranks.begin(), global_ranks.end());
    return RotaBackend::create(store, rank, size, world, std::move(options));
}

} // namespace rota_torch

PYBIND11_MODULE(_C, module) {
    module.doc() = "torch.distributed over rota";
    // Waiting for other ranks, so without the interpreter's lock.
    module.def("create", &rota_torch::create, pybind11::call_guard<pybind11::gil_scoped_release>(),
               pybind11::arg("store"), pybind11::arg("rank"), pybind11::arg("size"),
               pybind11::arg("timeout"), pybind11::arg("name"), pybind11::arg("group"),
               pybind11::arg("global_ranks"), pybind11::arg("world"));
    module.def("recorded", &rota_torch::recorded, pybind11::arg("folder"));
    module.attr("library_version") = rota_version();
}
