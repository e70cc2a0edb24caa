// Scatter and reduce-scatter, of lists and of single tensors.
#include "backend.h"
#include "elements.h"

namespace rota_torch {

using c10d::OpType;

static size_t count_of(const at::Tensor &tensor) {
    return static_cast<size_t>(tensor.numel());
}

WorkPointer RotaBackend::scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                                 const c10d::ScatterOptions &opts) {
    TORCH_CHECK_VALUE(outputs.size() == 1, "rota scatter: requires a single-element output list");
    check_root(opts.rootRank, "scatter");
    check_tensor(outputs[0], "scatter");
    int root = static_cast<int>(opts.rootRank);
    bool is_root = root == getRank();
    Operation what = operation(OpType::SCATTER, "scatter", "scatter", opts);
    Result result = plain_result(outputs[0], false);
    at::Tensor from;
    std::vector<size_t> counts;
    if (is_root) {
        TORCH_CHECK_VALUE(inputs.size() == 1 && inputs[0].size() == static_cast<size_t>(getSize()),
                          "rota scatter: the root needs one input for each rank");
        check_tensors(inputs[0], "scatter");
        TORCH_CHECK_VALUE(inputs[0][0].scalar_type() == outputs[0].scalar_type(),
                          "rota scatter: invalid tensor type");
        from = packed(inputs[0], true, false).memory;
        for (const at::Tensor &tensor : inputs[0])
            counts.push_back(count_of(tensor));
        TORCH_CHECK_VALUE(counts[static_cast<size_t>(root)] == count_of(outputs[0]),
                          "rota scatter: invalid tensor size");
    } else {
        TORCH_CHECK_VALUE(inputs.empty(), "rota scatter: requires empty input on non-root");
    }
    if (is_root)
        what.inputs = inputs[0];
    what.kept = {result.memory, from};
    what.outputs = outputs;
    what.unpack = std::move(result.unpack);
    return group_->run(std::move(what), [&](rota_comm *comm, const rota_call &call, RotaWork &) {
        return rota_scatterv(is_root ? from.data_ptr() : nullptr, is_root ? counts.data() : nullptr,
                             nullptr, result.memory.data_ptr(), count_of(result.memory),
                             moved_type(result.memory), root, comm, &call);
    });
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
    at::Tensor from = packed(inputs[0], true, false).memory;
    Result result = plain_result(outputs[0], false);
    std::vector<size_t> counts;
    for (const at::Tensor &tensor : inputs[0])
        counts.push_back(count_of(tensor));
    what.inputs = inputs[0];
    what.kept = {from, result.memory};
    what.outputs = outputs;
    what.unpack = std::move(result.unpack);
    return group_->run(std::move(what), [&](rota_comm *comm, const rota_call &call, RotaWork &) {
        rota_op op = operator_of(opts.reduceOp, from, comm);
        rota_status status =
            rota_reduce_scatterv(from.data_ptr(), counts.data(), nullptr, result.memory.data_ptr(),
                                 count_of(result.memory), reduced_type(from), op, comm, &call);
        if (call.group == nullptr)
            free_operator(op, comm);
        return status;
    });
}

static void check_scattered(const at::Tensor &output, const at::Tensor &input, int nranks,
                            const char *name) {
    check_tensor(output, name);
    check_tensor(input, name);
    TORCH_CHECK_VALUE(output.scalar_type() == input.scalar_type(), "rota ", name,
                      ": input tensor must be the same type as the output tensor.");
    TORCH_CHECK_VALUE(output.numel() * nranks == input.numel(), "rota ", name,
                      ": input tensor must be the same size as output size times world size");
}

WorkPointer RotaBackend::reduce_scatter_single(at::Tensor &output, at::Tensor &input,
                                               const c10d::ReduceScatterOptions &opts) {
    check_scattered(output, input, getSize(), "reduce_scatter_single");
    Operation what =
        operation(OpType::_REDUCE_SCATTER_BASE, "reduce_scatter", "_reduce_scatter_base", opts);
    at::Tensor from = plain_input(input);
    Result result = plain_result(output, false);
    what.inputs = {input};
    what.kept = {from, result.memory};
    what.outputs = {output};
    what.unpack = std::move(result.unpack);
    return group_->run(std::move(what), [&](rota_comm *comm, const rota_call &call, RotaWork &) {
        rota_op op = operator_of(opts.reduceOp, from, comm);
        rota_status status =
            rota_reduce_scatter(from.data_ptr(), result.memory.data_ptr(), count_of(result.memory),
                                reduced_type(from), op, comm, &call);
        if (call.group == nullptr)
            free_operator(op, comm);
        return status;
    });
}

WorkPointer RotaBackend::reduce_scatter_single_coalesced(Tensors &outputs, Tensors &inputs,
                                                         const c10d::ReduceScatterOptions &opts) {
    TORCH_CHECK_VALUE(outputs.size() == inputs.size() && !inputs.empty(),
                      "rota reduce_scatter_single_coalesced: requires lists of one length");
    Operation what = operation(OpType::REDUCE_SCATTER_TENSOR_COALESCED, "reduce_scatter",
                               "reduce_scatter", opts);
    Tensors from, to;
    for (size_t i = 0; i < inputs.size(); i++) {
        check_scattered(outputs[i], inputs[i], getSize(), "reduce_scatter_single_coalesced");
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
        std::vector<rota_op> made;
        rota_status status = as_group(from.size(), call, [&](size_t i, const rota_call &one) {
            made.push_back(operator_of(opts.reduceOp, from[i], comm));
            return rota_reduce_scatter(from[i].data_ptr(), to[i].data_ptr(), count_of(to[i]),
                                       reduced_type(from[i]), made.back(), comm, &one);
        });
        for (rota_op op : made)
            if (call.group == nullptr)
                free_operator(op, comm);
        return status;
    });
}

} // namespace rota_torch
