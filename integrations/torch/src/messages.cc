// Point to point.
#include "backend.h"

namespace rota_torch {

using c10d::OpType;

static const at::Tensor &only(const Tensors &tensors, const char *name) {
    TORCH_CHECK_VALUE(tensors.size() == 1, "rota ", name, ": takes one tensor");
    check_tensor(tensors[0], name);
    return tensors[0];
}

WorkPointer RotaBackend::send(Tensors &tensors, int destination, int tag) {
    const at::Tensor &tensor = only(tensors, "send");
    TORCH_CHECK_VALUE(tag >= 0, "rota send: tag must be nonnegative");
    Operation what = operation(OpType::SEND, "send", "send", std::chrono::milliseconds(-1), true);
    at::Tensor from = reads(what, tensor);
    return group_->run(
        std::move(what),
        [&](rota_comm *comm, const rota_call &call, RotaWork &) {
            return rota_send(from.data_ptr(), count_of(from), moved_type(from), destination, tag,
                             comm, &call);
        },
        true);
}

WorkPointer RotaBackend::receive(at::Tensor &tensor, int source, int tag) {
    TORCH_CHECK_VALUE(tag >= 0, "rota recv: tag must be nonnegative");
    Operation what = operation(source == ROTA_ANY_SOURCE ? OpType::RECVANYSOURCE : OpType::RECV,
                               "recv", source == ROTA_ANY_SOURCE ? "recvAnySource" : "recv",
                               std::chrono::milliseconds(-1), true);
    at::Tensor to = writes(what, tensor);
    what.inputs = {tensor};
    what.expected = tensor.numel();
    return group_->run(
        std::move(what),
        [&](rota_comm *comm, const rota_call &call, RotaWork &work) {
            // Several receives of a coalesced block share a work: what they bring is not told.
            work.receives = call.group == nullptr;
            return rota_recv(to.data_ptr(), count_of(to), moved_type(to), source, tag, comm,
                             work.receives ? &work.received : nullptr, &call);
        },
        true);
}

WorkPointer RotaBackend::recv(Tensors &tensors, int source, int tag) {
    at::Tensor to = only(tensors, "recv");
    return receive(to, source, tag);
}

WorkPointer RotaBackend::recvAnysource(Tensors &tensors, int tag) {
    at::Tensor to = only(tensors, "recvAnysource");
    return receive(to, ROTA_ANY_SOURCE, tag);
}

} // namespace rota_torch
