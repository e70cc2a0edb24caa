// Gathers: to all and to one, of lists and of single tensors.
#include "backend.h"
#include "elements.h"

namespace rota_torch {

using c10d::OpType;

static size_t count_of(const at::Tensor &tensor) {
    return static_cast<size_t>(tensor.numel());
}

static std::vector<size_t> counts_of(const Tensors &tensors) {
    std::vector<size_t> counts;
    for (const at::Tensor &tensor : tensors)
        counts.push_back(count_of(tensor));
    return counts;
}

static bool all_equal(const std::vector<size_t> &counts) {
    for (size_t count : counts)
        if (count != counts[0])
            return false;
    return true;
}

// Outputs may differ in length between ranks.
static rota_status all_gather(const at::Tensor &input, const at::Tensor &output,
                              const std::vector<size_t> &counts, rota_comm *comm,
                              const rota_call &call) {
    if (all_equal(counts))
        return rota_all_gather(input.data_ptr(), output.data_ptr(), counts[0], moved_type(input),
                               comm, &call);
    return rota_all_gatherv(input.data_ptr(), count_of(input), output.data_ptr(), counts.data(),
                            nullptr, moved_type(input), comm, &call);
}

static void check_outputs(const Tensors &outputs, const at::Tensor &input, int nranks, int rank,
                          const char *name) {
    check_tensors(outputs, name);
    TORCH_CHECK_VALUE(outputs.size() == static_cast<size_t>(nranks), "rota ", name,
                      ": output list needs one tensor for each of ", nranks, " ranks, has ",
                      outputs.size());
    TORCH_CHECK_VALUE(outputs[0].scalar_type() == input.scalar_type(), "rota ", name,
                      ": invalid tensor type: outputs are ", outputs[0].scalar_type(),
                      ", the input is ", input.scalar_type());
    TORCH_CHECK_VALUE(rank < 0 || outputs[static_cast<size_t>(rank)].numel() == input.numel(),
                      "rota ", name, ": invalid tensor size: the input has ", input.numel(),
                      " elements, the output for this rank ",
                      outputs[static_cast<size_t>(std::max(rank, 0))].numel());
}

WorkPointer RotaBackend::allgather(std::vector<Tensors> &outputs, Tensors &inputs,
                                   const c10d::AllgatherOptions &opts) {
    TORCH_CHECK_VALUE(inputs.size() == 1 && outputs.size() == 1, "rota allgather: requires "
                                                                 "single-element lists");
    check_tensor(inputs[0], "allgather");
    check_outputs(outputs[0], inputs[0], getSize(), getRank(), "allgather");
    Operation what = operation(OpType::ALLGATHER, "all_gather", "all_gather", opts);
    at::Tensor input = plain_input(inputs[0]);
    Result result = packed(outputs[0], false, true);
    std::vector<size_t> counts = counts_of(outputs[0]);
    what.inputs = inputs;
    what.kept = {input, result.memory};
    what.outputs = outputs[0];
    what.unpack = std::move(result.unpack);
    return group_->run(std::move(what), [&](rota_comm *comm, const rota_call &call, RotaWork &) {
        return all_gather(input, result.memory, counts, comm, call);
    });
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

WorkPointer RotaBackend::all_gather_single(at::Tensor &output, at::Tensor &input,
                                           const c10d::AllgatherOptions &opts) {
    check_gathered(output, input, getSize(), "all_gather_single");
    Operation what = operation(OpType::_ALLGATHER_BASE, "all_gather", "_all_gather_base", opts);
    at::Tensor from = plain_input(input);
    Result result = plain_result(output, false);
    what.inputs = {input};
    what.kept = {from, result.memory};
    what.outputs = {output};
    what.unpack = std::move(result.unpack);
    return group_->run(std::move(what), [&](rota_comm *comm, const rota_call &call, RotaWork &) {
        return rota_all_gather(from.data_ptr(), result.memory.data_ptr(), count_of(from),
                               moved_type(from), comm, &call);
    });
}

WorkPointer RotaBackend::all_gather_single_coalesced(Tensors &outputs, Tensors &inputs,
                                                     const c10d::AllgatherOptions &opts) {
    TORCH_CHECK_VALUE(outputs.size() == inputs.size() && !inputs.empty(),
                      "rota all_gather_single_coalesced: requires lists of one length");
    Operation what =
        operation(OpType::ALLGATHER_INTO_TENSOR_COALESCED, "all_gather", "all_gather", opts);
    Tensors from, to;
    for (size_t i = 0; i < inputs.size(); i++) {
        check_gathered(outputs[i], inputs[i], getSize(), "all_gather_single_coalesced");
        from.push_back(plain_input(inputs[i]));
        Result result = plain_result(outputs[i], false);
        to.push_back(result.memory);
        what.unpack = both(std::move(what.unpack), std::move(result.unpack));
    }
    what.inputs = inputs;
    what.kept = from;
    what.kept.insert(what.kept.end(), to.begin(), to.end());
    what.outputs = outputs;
    return group_->run(std::move(what), [&](rota_comm *comm, const rota_call &call, RotaWork &) {
        return as_group(from.size(), call, [&](size_t i, const rota_call &one) {
            return rota_all_gather(from[i].data_ptr(), to[i].data_ptr(), count_of(from[i]),
                                   moved_type(from[i]), comm, &one);
        });
    });
}

// outputs[r][i] is what rank r contributes as inputs[i].
WorkPointer RotaBackend::allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                                             const c10d::AllgatherOptions &opts) {
    TORCH_CHECK_VALUE(!inputs.empty(), "rota allgather_coalesced: requires non-empty input list");
    TORCH_CHECK_VALUE(outputs.size() == static_cast<size_t>(getSize()),
                      "rota allgather_coalesced: output lists must be one for each rank");
    Operation what = operation(OpType::ALLGATHER_COALESCED, "all_gather", "all_gather", opts);
    Tensors from, to;
    std::vector<std::vector<size_t>> counts;
    for (size_t i = 0; i < inputs.size(); i++) {
        Tensors row;
        for (const Tensors &of_rank : outputs) {
            TORCH_CHECK_VALUE(of_rank.size() == inputs.size(),
                              "rota allgather_coalesced: output "
                              "lists must be as long as the input");
            row.push_back(of_rank[i]);
        }
        check_tensor(inputs[i], "allgather_coalesced");
        check_outputs(row, inputs[i], getSize(), getRank(), "allgather_coalesced");
        from.push_back(plain_input(inputs[i]));
        counts.push_back(counts_of(row));
        Result result = packed(row, false, true);
        to.push_back(result.memory);
        what.unpack = both(std::move(what.unpack), std::move(result.unpack));
    }
    what.inputs = inputs;
    what.kept = from;
    what.kept.insert(what.kept.end(), to.begin(), to.end());
    for (const Tensors &of_rank : outputs)
        what.outputs.insert(what.outputs.end(), of_rank.begin(), of_rank.end());
    return group_->run(std::move(what), [&](rota_comm *comm, const rota_call &call, RotaWork &) {
        return as_group(from.size(), call, [&](size_t i, const rota_call &one) {
            return all_gather(from[i], to[i], counts[i], comm, one);
        });
    });
}

WorkPointer RotaBackend::gather(std::vector<Tensors> &outputs, Tensors &inputs,
                                const c10d::GatherOptions &opts) {
    TORCH_CHECK_VALUE(inputs.size() == 1, "rota gather: requires a single-element input list");
    check_root(opts.rootRank, "gather");
    check_tensor(inputs[0], "gather");
    int root = static_cast<int>(opts.rootRank);
    bool is_root = root == getRank();
    Operation what = operation(OpType::GATHER, "gather", "gather", opts);
    at::Tensor input = plain_input(inputs[0]);
    Result result;
    std::vector<size_t> counts;
    if (is_root) {
        TORCH_CHECK_VALUE(outputs.size() == 1, "rota gather: requires a single-element output list "
                                               "on the root");
        check_outputs(outputs[0], inputs[0], getSize(), getRank(), "gather");
        result = packed(outputs[0], false, true);
        counts = counts_of(outputs[0]);
        what.outputs = outputs[0];
    } else {
        TORCH_CHECK_VALUE(outputs.empty(), "rota gather: requires empty output on non-root");
    }
    what.inputs = inputs;
    what.kept = {input, result.memory};
    what.unpack = std::move(result.unpack);
    return group_->run(std::move(what), [&](rota_comm *comm, const rota_call &call, RotaWork &) {
        void *memory = is_root ? result.memory.data_ptr() : nullptr;
        return rota_gatherv(input.data_ptr(), count_of(input), memory,
                            is_root ? counts.data() : nullptr, nullptr, moved_type(input), root,
                            comm, &call);
    });
}

WorkPointer RotaBackend::gather_single(at::Tensor &output, at::Tensor &input,
                                       const c10d::GatherOptions &opts) {
    check_root(opts.rootRank, "gather_single");
    check_tensor(input, "gather_single");
    int root = static_cast<int>(opts.rootRank);
    bool is_root = root == getRank();
    Operation what = operation(OpType::GATHER, "gather", "gather", opts);
    at::Tensor from = plain_input(input);
    Result result;
    if (is_root) {
        check_gathered(output, input, getSize(), "gather_single");
        result = plain_result(output, false);
        what.outputs = {output};
    }
    what.inputs = {input};
    what.kept = {from, result.memory};
    what.unpack = std::move(result.unpack);
    return group_->run(std::move(what), [&](rota_comm *comm, const rota_call &call, RotaWork &) {
        return rota_gather(from.data_ptr(), is_root ? result.memory.data_ptr() : nullptr,
                           count_of(from), moved_type(from), root, comm, &call);
    });
}

} // namespace rota_torch
