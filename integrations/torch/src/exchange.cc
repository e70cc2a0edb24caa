// All-to-all, of one tensor with splits and of lists.
#include "backend.h"

namespace rota_torch {

using c10d::OpType;

// Elements of each rank's block: rows of the first dimension, by `splits` or dealt out evenly.
static std::vector<size_t> block_counts(const at::Tensor &tensor,
                                        const std::vector<int64_t> &splits, int nranks) {
    auto n = static_cast<size_t>(nranks);
    int64_t rows = tensor.dim() > 0 ? tensor.size(0) : 1;
    if (splits.empty()) {
        TORCH_CHECK_VALUE(rows % nranks == 0, "rota all_to_all_single: tensor's dim 0 does not "
                                              "divide equally across group size");
        return std::vector<size_t>(n, static_cast<size_t>(tensor.numel() / nranks));
    }
    TORCH_CHECK_VALUE(splits.size() == n,
                      "rota all_to_all_single: number of tensor splits not equal to group size");
    int64_t row = rows > 0 ? tensor.numel() / rows : 1;
    int64_t sum = 0;
    std::vector<size_t> counts;
    for (int64_t split : splits) {
        TORCH_CHECK_VALUE(split >= 0, "rota all_to_all_single: split sizes must not be negative");
        sum += split;
        counts.push_back(static_cast<size_t>(split * row));
    }
    TORCH_CHECK_VALUE(sum == rows, "rota all_to_all_single: split sizes do not match total dim 0 "
                                   "size");
    return counts;
}

// Whether a rank has splits is its own affair, so all of them take the form with counts: a rank
// with even blocks may meet one with a table of equal entries.
static WorkPointer exchange(Group &group, Operation what, const Piece &piece,
                            const std::vector<size_t> &sent) {
    return run_each(group, std::move(what), {piece},
                    [&](const Piece &one, rota_comm *comm, const rota_call &call) {
                        return rota_all_to_allv(one.from.data_ptr(), sent.data(), nullptr,
                                                one.to.data_ptr(), one.counts.data(), nullptr,
                                                moved_type(one.from), comm, &call);
                    });
}

WorkPointer RotaBackend::all_to_all_single(at::Tensor &output, at::Tensor &input,
                                           std::vector<int64_t> &output_splits,
                                           std::vector<int64_t> &input_splits,
                                           const c10d::AllToAllOptions &opts) {
    check_tensor(output, "all_to_all_single");
    check_tensor(input, "all_to_all_single");
    TORCH_CHECK_VALUE(output.scalar_type() == input.scalar_type(),
                      "rota all_to_all_single: tensors are not of one type");
    std::vector<size_t> sent = block_counts(input, input_splits, getSize());
    std::vector<size_t> taken = block_counts(output, output_splits, getSize());
    bool even = input_splits.empty() && output_splits.empty();
    TORCH_CHECK_VALUE(!even || input.numel() == output.numel(),
                      "rota all_to_all_single: tensors are not equal in size");
    Operation what = operation(OpType::ALLTOALL_BASE, "all_to_all", "all_to_all", opts);
    Piece piece{reads(what, input), writes(what, output), std::move(taken)};
    return exchange(*group_, std::move(what), piece, sent);
}

WorkPointer RotaBackend::alltoall(Tensors &outputs, Tensors &inputs,
                                  const c10d::AllToAllOptions &opts) {
    auto n = static_cast<size_t>(getSize());
    TORCH_CHECK_VALUE(outputs.size() == n && inputs.size() == n,
                      "rota all_to_all: lists need one tensor for each rank");
    check_tensors(outputs, "all_to_all");
    check_tensors(inputs, "all_to_all");
    TORCH_CHECK_VALUE(outputs[0].scalar_type() == inputs[0].scalar_type(),
                      "rota all_to_all: tensors are not of one type");
    Operation what = operation(OpType::ALLTOALL, "all_to_all", "all_to_all", opts);
    Piece piece{reads(what, inputs), writes(what, outputs), counts_of(outputs)};
    return exchange(*group_, std::move(what), piece, counts_of(inputs));
}

} // namespace rota_torch
