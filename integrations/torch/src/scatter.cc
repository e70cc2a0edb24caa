// Scatter and reduce-scatter, of lists and of single tensors.
#include "backend.h"

namespace rota_torch {

using c10d::OpType;

WorkPointer RotaBackend::scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                                 const c10d::ScatterOptions &opts) {
    TORCH_CHECK_VALUE(outputs.size() == 1, "rota scatter: requires a single-element output list");
    check_root(opts.rootRank, "scatter");
    check_tensor(outputs[0], "scatter");
    int root = static_cast<int>(opts.rootRank);
    Operation what = operation(OpType::SCATTER, "scatter", "scatter", opts);
    at::Tensor to = writes(what, outputs[0]);
    const void *from = nullptr;
    std::vector<size_t> counts;
    if (root == getRank()) {
        TORCH_CHECK_VALUE(inputs.size() == 1 && inputs[0].size() == static_cast<size_t>(getSize()),
                          "rota scatter: the root needs one input for each rank");
        check_tensors(inputs[0], "scatter");
        TORCH_CHECK_VALUE(inputs[0][0].scalar_type() == outputs[0].scalar_type(),
                          "rota scatter: invalid tensor type");
        counts = counts_of(inputs[0]);
        TORCH_CHECK_VALUE(counts[static_cast<size_t>(root)] == count_of(outputs[0]),
                          "rota scatter: invalid tensor size");
        from = reads(what, inputs[0]).data_ptr();
    } else {
        TORCH_CHECK_VALUE(inputs.empty(), "rota scatter: requires empty input on non-root");
    }
    return group_->run(std::move(what), [&](rota_comm *comm, const rota_call &call, RotaWork &) {
        return rota_scatterv(from, counts.empty() ? nullptr : counts.data(), nullptr, to.data_ptr(),
                             count_of(to), moved_type(to), root, comm, &call);
    });
}

// -- reduce-scatter -------------------------------------------------------------------------------

// Parts may differ in length between ranks.
static rota_status begin_reduce_scatter(const Piece &piece, rota_op op, rota_comm *comm,
                                        const rota_call &call) {
    const void *from = piece.from.data_ptr();
    void *to = piece.to.data_ptr();
    size_t count = count_of(piece.to);
    rota_dtype type = reduced_type(piece.from);
    if (all_equal(piece.counts))
        return rota_reduce_scatter(from, to, count, type, op, comm, &call);
    return rota_reduce_scatterv(from, piece.counts.data(), nullptr, to, count, type, op, comm,
                                &call);
}

WorkPointer RotaBackend::reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                                        const c10d::ReduceScatterOptions &opts) {
    TORCH_CHECK_VALUE(outputs.size() == 1 && inputs.size() == 1,
                      "rota reduce_scatter: requires single-element lists");
    TORCH_CHECK_VALUE(inputs[0].size() == static_cast<size_t>(getSize()),
                      "rota reduce_scatter: needs one input for each rank");
    check_tensor(outputs[0], "reduce_scatter");
    check_tensors(inputs[0], "reduce_scatter");
    TORCH_CHECK_VALUE(inputs[0][0].scalar_type() == outputs[0].scalar_type() &&
                          inputs[0][static_cast<size_t>(getRank())].numel() == outputs[0].numel(),
                      "rota reduce_scatter: the output must be like this rank's input");
    Operation what = operation(OpType::REDUCE_SCATTER, "reduce_scatter", "reduce_scatter", opts);
    std::vector<Piece> pieces{
        {reads(what, inputs[0]), writes(what, outputs[0]), counts_of(inputs[0])}};
    return reduce_each(*group_, std::move(what), pieces, opts.reduceOp, begin_reduce_scatter);
}

static std::vector<Piece> scattered(Operation &what, Tensors &outputs, Tensors &inputs, int nranks,
                                    const char *name) {
    TORCH_CHECK_VALUE(outputs.size() == inputs.size() && !inputs.empty(), "rota ", name,
                      ": requires lists of one length");
    std::vector<Piece> pieces;
    for (size_t i = 0; i < inputs.size(); i++) {
        check_tensor(outputs[i], name);
        check_tensor(inputs[i], name);
        TORCH_CHECK_VALUE(outputs[i].scalar_type() == inputs[i].scalar_type(), "rota ", name,
                          ": input tensor must be the same type as the output tensor.");
        TORCH_CHECK_VALUE(outputs[i].numel() * nranks == inputs[i].numel(), "rota ", name,
                          ": input tensor must be the same size as output size times world size");
        pieces.push_back({reads(what, inputs[i]), writes(what, outputs[i]), {}});
    }
    return pieces;
}

WorkPointer RotaBackend::reduce_scatter_single(at::Tensor &output, at::Tensor &input,
                                               const c10d::ReduceScatterOptions &opts) {
    Operation what =
        operation(OpType::_REDUCE_SCATTER_BASE, "reduce_scatter", "_reduce_scatter_base", opts);
    Tensors outputs{output}, inputs{input};
    std::vector<Piece> pieces =
        scattered(what, outputs, inputs, getSize(), "reduce_scatter_single");
    return reduce_each(*group_, std::move(what), pieces, opts.reduceOp, begin_reduce_scatter);
}

WorkPointer RotaBackend::reduce_scatter_single_coalesced(Tensors &outputs, Tensors &inputs,
                                                         const c10d::ReduceScatterOptions &opts) {
    Operation what = operation(OpType::REDUCE_SCATTER_TENSOR_COALESCED, "reduce_scatter",
                               "reduce_scatter", opts);
    std::vector<Piece> pieces =
        scattered(what, outputs, inputs, getSize(), "reduce_scatter_single_coalesced");
    return reduce_each(*group_, std::move(what), pieces, opts.reduceOp, begin_reduce_scatter);
}

} // namespace rota_torch
