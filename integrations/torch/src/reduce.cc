// Broadcast, reductions, barrier.
#include "backend.h"
#include "elements.h"

namespace rota_torch {

using c10d::OpType;

static size_t count_of(const at::Tensor &tensor) {
    return static_cast<size_t>(tensor.numel());
}

static void check_single(const Tensors &tensors, const char *name) {
    TORCH_CHECK_VALUE(tensors.size() == 1, "rota ", name,
                      ": requires a single-element tensor list");
}

WorkPointer RotaBackend::broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts) {
    check_single(tensors, "broadcast");
    check_tensors(tensors, "broadcast");
    check_root(opts.rootRank, "broadcast");
    Operation what = operation(OpType::BROADCAST, "broadcast", "broadcast", opts);
    Result result = plain_result(tensors[0], true);
    what.inputs = tensors;
    what.kept = {result.memory};
    what.outputs = tensors;
    what.unpack = result.unpack;
    int root = static_cast<int>(opts.rootRank);
    return group_->run(std::move(what), [memory = result.memory,
                                         root](rota_comm *comm, const rota_call &call, RotaWork &) {
        return rota_broadcast(memory.data_ptr(), memory.data_ptr(), count_of(memory),
                              moved_type(memory), root, comm, &call);
    });
}

WorkPointer RotaBackend::allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts) {
    check_single(tensors, "allreduce");
    if (tensors[0].layout() == at::kSparse)
        return allreduce_sparse(tensors, opts);
    check_tensors(tensors, "allreduce");
    Operation what = operation(OpType::ALLREDUCE, "all_reduce", "all_reduce", opts);
    Result result = plain_result(tensors[0], true);
    what.inputs = tensors;
    what.kept = {result.memory};
    what.outputs = tensors;
    what.unpack = std::move(result.unpack);
    return group_->run(std::move(what), [&](rota_comm *comm, const rota_call &call, RotaWork &) {
        rota_op op = operator_of(opts.reduceOp, result.memory, comm);
        rota_status status =
            rota_all_reduce(result.memory.data_ptr(), result.memory.data_ptr(),
                            count_of(result.memory), reduced_type(result.memory), op, comm, &call);
        if (call.group == nullptr) // else it goes with the communicator
            free_operator(op, comm);
        return status;
    });
}

WorkPointer RotaBackend::allreduce_coalesced(Tensors &tensors,
                                             const c10d::AllreduceCoalescedOptions &opts) {
    check_tensors(tensors, "allreduce_coalesced");
    Operation what = operation(OpType::ALLREDUCE_COALESCED, "all_reduce", "all_reduce", opts);
    Tensors memory;
    for (const at::Tensor &tensor : tensors) {
        Result result = plain_result(tensor, true);
        memory.push_back(result.memory);
        what.unpack = both(std::move(what.unpack), std::move(result.unpack));
    }
    what.inputs = tensors;
    what.kept = memory;
    what.outputs = tensors;
    return group_->run(std::move(what), [&](rota_comm *comm, const rota_call &call, RotaWork &) {
        rota_op op = operator_of(opts.reduceOp, memory[0], comm);
        rota_status status = as_group(memory.size(), call, [&](size_t i, const rota_call &one) {
            return rota_all_reduce(memory[i].data_ptr(), memory[i].data_ptr(), count_of(memory[i]),
                                   reduced_type(memory[i]), op, comm, &one);
        });
        if (call.group == nullptr)
            free_operator(op, comm);
        return status;
    });
}

WorkPointer RotaBackend::reduce(Tensors &tensors, const c10d::ReduceOptions &opts) {
    check_single(tensors, "reduce");
    check_tensors(tensors, "reduce");
    check_root(opts.rootRank, "reduce");
    Operation what = operation(OpType::REDUCE, "reduce", "reduce", opts);
    int root = static_cast<int>(opts.rootRank);
    Result result = plain_result(tensors[0], true);
    what.inputs = tensors;
    what.kept = {result.memory};
    what.outputs = tensors;
    if (root == getRank())
        what.unpack = std::move(result.unpack);
    return group_->run(std::move(what), [&](rota_comm *comm, const rota_call &call, RotaWork &) {
        rota_op op = operator_of(opts.reduceOp, result.memory, comm);
        void *memory = result.memory.data_ptr();
        rota_status status =
            rota_reduce(memory, root == getRank() ? memory : nullptr, count_of(result.memory),
                        reduced_type(result.memory), op, root, comm, &call);
        if (call.group == nullptr)
            free_operator(op, comm);
        return status;
    });
}

WorkPointer RotaBackend::barrier(const c10d::BarrierOptions &opts) {
    Operation what = operation(OpType::BARRIER, "barrier", "barrier", opts);
    return group_->run(std::move(what), [](rota_comm *comm, const rota_call &call, RotaWork &) {
        return rota_barrier(comm, &call);
    });
}

} // namespace rota_torch
