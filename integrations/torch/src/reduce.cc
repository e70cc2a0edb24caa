// Broadcast, reductions, barrier.
#include "backend.h"

namespace rota_torch {

using c10d::OpType;

static void check_single(const Tensors &tensors, const char *name) {
    TORCH_CHECK_VALUE(tensors.size() == 1, "rota ", name,
                      ": requires a single-element tensor list");
    check_tensor(tensors[0], name);
}

WorkPointer RotaBackend::broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts) {
    check_single(tensors, "broadcast");
    check_root(opts.rootRank, "broadcast");
    Operation what = operation(OpType::BROADCAST, "broadcast", "broadcast", opts);
    at::Tensor memory = updates(what, tensors[0]);
    int root = static_cast<int>(opts.rootRank);
    return group_->run(std::move(what), [&](rota_comm *comm, const rota_call &call, RotaWork &) {
        return rota_broadcast(memory.data_ptr(), memory.data_ptr(), count_of(memory),
                              moved_type(memory), root, comm, &call);
    });
}

static rota_status begin_all_reduce(const Piece &piece, rota_op op, rota_comm *comm,
                                    const rota_call &call) {
    return rota_all_reduce(piece.from.data_ptr(), piece.from.data_ptr(), count_of(piece.from),
                           reduced_type(piece.from), op, comm, &call);
}

static std::vector<Piece> updated(Operation &what, const Tensors &tensors) {
    std::vector<Piece> pieces;
    for (const at::Tensor &tensor : tensors)
        pieces.push_back({updates(what, tensor), {}, {}});
    return pieces;
}

WorkPointer RotaBackend::allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts) {
    if (tensors.size() == 1 && tensors[0].layout() == at::kSparse)
        return allreduce_sparse(tensors, opts);
    check_single(tensors, "allreduce");
    Operation what = operation(OpType::ALLREDUCE, "all_reduce", "all_reduce", opts);
    std::vector<Piece> pieces = updated(what, tensors);
    return reduce_each(*group_, std::move(what), pieces, opts.reduceOp, begin_all_reduce);
}

WorkPointer RotaBackend::allreduce_coalesced(Tensors &tensors,
                                             const c10d::AllreduceCoalescedOptions &opts) {
    check_tensors(tensors, "allreduce_coalesced");
    Operation what = operation(OpType::ALLREDUCE_COALESCED, "all_reduce", "all_reduce", opts);
    std::vector<Piece> pieces = updated(what, tensors);
    return reduce_each(*group_, std::move(what), pieces, opts.reduceOp, begin_all_reduce);
}

WorkPointer RotaBackend::reduce(Tensors &tensors, const c10d::ReduceOptions &opts) {
    check_single(tensors, "reduce");
    check_root(opts.rootRank, "reduce");
    Operation what = operation(OpType::REDUCE, "reduce", "reduce", opts);
    int root = static_cast<int>(opts.rootRank);
    bool is_root = root == getRank();
    std::vector<Piece> pieces{
        {is_root ? updates(what, tensors[0]) : reads(what, tensors[0]), {}, {}}};
    if (!is_root)
        what.outputs = tensors;
    return reduce_each(*group_, std::move(what), pieces, opts.reduceOp,
                       [&](const Piece &piece, rota_op op, rota_comm *comm, const rota_call &call) {
                           void *memory = piece.from.data_ptr();
                           return rota_reduce(memory, is_root ? memory : nullptr,
                                              count_of(piece.from), reduced_type(piece.from), op,
                                              root, comm, &call);
                       });
}

WorkPointer RotaBackend::barrier(const c10d::BarrierOptions &opts) {
    Operation what = operation(OpType::BARRIER, "barrier", "barrier", opts);
    return group_->run(std::move(what), [](rota_comm *comm, const rota_call &call, RotaWork &) {
        return rota_barrier(comm, &call);
    });
}

} // namespace rota_torch
