// Gathers: to all and to one, of lists and of single tensors.
#include "backend.h"

namespace rota_torch {

using c10d::OpType;

static void check_outputs(const Tensors &outputs, const at::Tensor &input, int nranks, int rank,
                          const char *name) {
    check_tensor(input, name);
    check_tensors(outputs, name);
    TORCH_CHECK_VALUE(outputs.size() == static_cast<size_t>(nranks), "rota ", name,
                      ": output list needs one tensor for each of ", nranks, " ranks, has ",
                      outputs.size());
    TORCH_CHECK_VALUE(outputs[0].scalar_type() == input.scalar_type(), "rota ", name,
                      ": invalid tensor type: outputs are ", outputs[0].scalar_type(),
                      ", the input is ", input.scalar_type());
    const at::Tensor &own = outputs[static_cast<size_t>(rank)];
    TORCH_CHECK_VALUE(own.numel() == input.numel(), "rota ", name,
                      ": invalid tensor size: the input has ", input.numel(),
                      " elements, the output for this rank ", own.numel());
}

static void check_gathered(const at::Tensor &output, const at::Tensor &input, int nranks,
                           const char *name) {
    check_tensor(output, name);
    check_tensor(input, name);
    TORCH_CHECK_VALUE(output.scalar_type() == input.scalar_type(), "rota ", name,
                      ": output tensor must have the same type as input tensor");
    TORCH_CHECK_VALUE(output.numel() == input.numel() * nranks, "rota ", name,
                      ": output tensor size must be equal to world_size times input tensor size");
}

// -- to all ---------------------------------------------------------------------------------------

// Outputs may differ in length between ranks.
static rota_status begin_all_gather(const Piece &piece, rota_comm *comm, const rota_call &call) {
    const void *from = piece.from.data_ptr();
    void *to = piece.to.data_ptr();
    size_t count = count_of(piece.from);
    rota_dtype type = moved_type(piece.from);
    if (all_equal(piece.counts))
        return rota_all_gather(from, to, count, type, comm, &call);
    return rota_all_gatherv(from, count, to, piece.counts.data(), nullptr, type, comm, &call);
}

// Each row is one tensor for each rank.
static std::vector<Piece> rows_of(Operation &what, const std::vector<Tensors> &rows,
                                  const Tensors &inputs) {
    std::vector<Piece> pieces;
    for (size_t i = 0; i < inputs.size(); i++)
        pieces.push_back({reads(what, inputs[i]), writes(what, rows[i]), counts_of(rows[i])});
    return pieces;
}

WorkPointer RotaBackend::allgather(std::vector<Tensors> &outputs, Tensors &inputs,
                                   const c10d::AllgatherOptions &opts) {
    TORCH_CHECK_VALUE(inputs.size() == 1 && outputs.size() == 1, "rota allgather: requires "
                                                                 "single-element lists");
    check_outputs(outputs[0], inputs[0], getSize(), getRank(), "allgather");
    Operation what = operation(OpType::ALLGATHER, "all_gather", "all_gather", opts);
    std::vector<Piece> pieces = rows_of(what, outputs, inputs);
    return run_each(*group_, std::move(what), pieces, begin_all_gather);
}

// outputs[r][i] is what rank r contributes as inputs[i].
WorkPointer RotaBackend::allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                                             const c10d::AllgatherOptions &opts) {
    TORCH_CHECK_VALUE(!inputs.empty(), "rota allgather_coalesced: requires non-empty input list");
    TORCH_CHECK_VALUE(outputs.size() == static_cast<size_t>(getSize()),
                      "rota allgather_coalesced: output lists must be one for each rank");
    Operation what = operation(OpType::ALLGATHER_COALESCED, "all_gather", "all_gather", opts);
    std::vector<Tensors> rows(inputs.size());
    for (const Tensors &of_rank : outputs) {
        TORCH_CHECK_VALUE(of_rank.size() == inputs.size(),
                          "rota allgather_coalesced: output lists must be as long as the input");
        for (size_t i = 0; i < inputs.size(); i++)
            rows[i].push_back(of_rank[i]);
    }
    for (size_t i = 0; i < inputs.size(); i++)
        check_outputs(rows[i], inputs[i], getSize(), getRank(), "allgather_coalesced");
    std::vector<Piece> pieces = rows_of(what, rows, inputs);
    return run_each(*group_, std::move(what), pieces, begin_all_gather);
}

static std::vector<Piece> gathered(Operation &what, Tensors &outputs, Tensors &inputs, int nranks,
                                   const char *name) {
    TORCH_CHECK_VALUE(outputs.size() == inputs.size() && !inputs.empty(), "rota ", name,
                      ": requires lists of one length");
    std::vector<Piece> pieces;
    for (size_t i = 0; i < inputs.size(); i++) {
        check_gathered(outputs[i], inputs[i], nranks, name);
        pieces.push_back({reads(what, inputs[i]), writes(what, outputs[i]), {}});
    }
    return pieces;
}

WorkPointer RotaBackend::all_gather_single(at::Tensor &output, at::Tensor &input,
                                           const c10d::AllgatherOptions &opts) {
    Operation what = operation(OpType::_ALLGATHER_BASE, "all_gather", "_all_gather_base", opts);
    Tensors outputs{output}, inputs{input};
    std::vector<Piece> pieces = gathered(what, outputs, inputs, getSize(), "all_gather_single");
    return run_each(*group_, std::move(what), pieces, begin_all_gather);
}

WorkPointer RotaBackend::all_gather_single_coalesced(Tensors &outputs, Tensors &inputs,
                                                     const c10d::AllgatherOptions &opts) {
    Operation what =
        operation(OpType::ALLGATHER_INTO_TENSOR_COALESCED, "all_gather", "all_gather", opts);
    std::vector<Piece> pieces =
        gathered(what, outputs, inputs, getSize(), "all_gather_single_coalesced");
    return run_each(*group_, std::move(what), pieces, begin_all_gather);
}

// -- to one ---------------------------------------------------------------------------------------

WorkPointer RotaBackend::gather(std::vector<Tensors> &outputs, Tensors &inputs,
                                const c10d::GatherOptions &opts) {
    TORCH_CHECK_VALUE(inputs.size() == 1, "rota gather: requires a single-element input list");
    check_root(opts.rootRank, "gather");
    check_tensor(inputs[0], "gather");
    int root = static_cast<int>(opts.rootRank);
    Operation what = operation(OpType::GATHER, "gather", "gather", opts);
    at::Tensor from = reads(what, inputs[0]);
    void *to = nullptr;
    std::vector<size_t> counts;
    if (root == getRank()) {
        TORCH_CHECK_VALUE(outputs.size() == 1, "rota gather: requires a single-element output list "
                                               "on the root");
        check_outputs(outputs[0], inputs[0], getSize(), getRank(), "gather");
        to = writes(what, outputs[0]).data_ptr();
        counts = counts_of(outputs[0]);
    } else {
        TORCH_CHECK_VALUE(outputs.empty(), "rota gather: requires empty output on non-root");
    }
    return group_->run(std::move(what), [&](rota_comm *comm, const rota_call &call, RotaWork &) {
        return rota_gatherv(from.data_ptr(), count_of(from), to,
                            counts.empty() ? nullptr : counts.data(), nullptr, moved_type(from),
                            root, comm, &call);
    });
}

WorkPointer RotaBackend::gather_single(at::Tensor &output, at::Tensor &input,
                                       const c10d::GatherOptions &opts) {
    check_root(opts.rootRank, "gather_single");
    check_tensor(input, "gather_single");
    int root = static_cast<int>(opts.rootRank);
    Operation what = operation(OpType::GATHER, "gather", "gather", opts);
    at::Tensor from = reads(what, input);
    void *to = nullptr;
    if (root == getRank()) {
        check_gathered(output, input, getSize(), "gather_single");
        to = writes(what, output).data_ptr();
    }
    return group_->run(std::move(what), [&](rota_comm *comm, const rota_call &call, RotaWork &) {
        return rota_gather(from.data_ptr(), to, count_of(from), moved_type(from), root, comm,
                           &call);
    });
}

} // namespace rota_torch
