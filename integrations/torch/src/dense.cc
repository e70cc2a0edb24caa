// Dense memory.
#include "dense.h"

#include <ATen/ATen.h>

namespace rota_torch {

void check_tensor(const at::Tensor &tensor, const char *operation) {
    TORCH_CHECK_VALUE(tensor.defined(), "rota ", operation, ": undefined tensor");
    TORCH_CHECK_VALUE(tensor.device().is_cpu(), "rota ", operation,
                      ": tensors of the CPU are needed, not of ", tensor.device());
    TORCH_CHECK_VALUE(tensor.layout() == at::kStrided, "rota ", operation,
                      ": dense tensors are needed, not ", tensor.layout());
}

void check_tensors(const std::vector<at::Tensor> &tensors, const char *operation, bool same_size) {
    TORCH_CHECK_VALUE(!tensors.empty(), "rota ", operation, ": requires non-empty tensor list");
    for (const at::Tensor &tensor : tensors) {
        check_tensor(tensor, operation);
        TORCH_CHECK_VALUE(tensor.scalar_type() == tensors[0].scalar_type(), "rota ", operation,
                          ": tensors must all be of one type, found ", tensors[0].scalar_type(),
                          " and ", tensor.scalar_type());
        TORCH_CHECK_VALUE(!same_size || tensor.numel() == tensors[0].numel(), "rota ", operation,
                          ": tensors must all have the same size, found ", tensors[0].numel(),
                          " and ", tensor.numel(), " elements");
    }
}

// Whether the memory of the tensor is its elements in order.
static bool is_plain(const at::Tensor &tensor) {
    size_t alignment = std::min<size_t>(tensor.element_size(), alignof(double));
    return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg() &&
           reinterpret_cast<uintptr_t>(tensor.data_ptr()) % alignment == 0;
}

static at::Tensor keep(Operation &what, at::Tensor memory) {
    what.kept.push_back(memory);
    return memory;
}

static at::Tensor like(const at::Tensor &tensor) {
    return at::empty(tensor.sizes(), at::TensorOptions().dtype(tensor.dtype()));
}

at::Tensor reads(Operation &what, const at::Tensor &tensor) {
    what.inputs.push_back(tensor);
    return keep(what, is_plain(tensor) ? tensor : like(tensor).copy_(tensor.detach()));
}

at::Tensor writes(Operation &what, const at::Tensor &tensor) {
    what.outputs.push_back(tensor);
    if (is_plain(tensor))
        return keep(what, tensor);
    at::Tensor memory = like(tensor);
    what.unpack.push_back([memory, target = tensor.detach()] { target.copy_(memory); });
    return keep(what, memory);
}

at::Tensor updates(Operation &what, const at::Tensor &tensor) {
    what.inputs.push_back(tensor);
    at::Tensor memory = writes(what, tensor);
    if (!memory.is_same(tensor))
        memory.copy_(tensor.detach());
    return memory;
}

// -- lists ----------------------------------------------------------------------------------------

// Whether each begins where the one before ends, in one storage.
static bool in_a_row(const std::vector<at::Tensor> &tensors) {
    const char *next = nullptr;
    for (const at::Tensor &tensor : tensors) {
        if (!is_plain(tensor) || !tensor.storage().is_alias_of(tensors[0].storage()))
            return false;
        const char *begin = static_cast<const char *>(tensor.data_ptr());
        if (next != nullptr && tensor.numel() > 0 && begin != next)
            return false;
        if (tensor.numel() > 0)
            next = begin + tensor.nbytes();
    }
    return true;
}

static at::Tensor row_of(const std::vector<at::Tensor> &tensors, bool *copies) {
    int64_t total = 0;
    for (const at::Tensor &tensor : tensors)
        total += tensor.numel();
    const at::Tensor &first = tensors.front();
    *copies = first.numel() == 0 || !in_a_row(tensors);
    return *copies ? at::empty({total}, at::TensorOptions().dtype(first.dtype()))
                   : first.detach().as_strided({total}, {1}, first.storage_offset());
}

// The parts of a row, in the shapes of the tensors that they are for.
static std::vector<at::Tensor> parts_of(const at::Tensor &row,
                                        const std::vector<at::Tensor> &tensors) {
    std::vector<at::Tensor> parts;
    int64_t at = 0;
    for (const at::Tensor &tensor : tensors) {
        parts.push_back(row.narrow(0, at, tensor.numel()).view(tensor.sizes()));
        at += tensor.numel();
    }
    return parts;
}

at::Tensor reads(Operation &what, const std::vector<at::Tensor> &tensors) {
    what.inputs.insert(what.inputs.end(), tensors.begin(), tensors.end());
    bool copies = false;
    at::Tensor row = row_of(tensors, &copies);
    std::vector<at::Tensor> parts = copies ? parts_of(row, tensors) : std::vector<at::Tensor>();
    for (size_t i = 0; i < parts.size(); i++)
        parts[i].copy_(tensors[i].detach());
    return keep(what, row);
}

at::Tensor writes(Operation &what, const std::vector<at::Tensor> &tensors) {
    what.outputs.insert(what.outputs.end(), tensors.begin(), tensors.end());
    bool copies = false;
    at::Tensor row = row_of(tensors, &copies);
    std::vector<at::Tensor> parts = copies ? parts_of(row, tensors) : std::vector<at::Tensor>();
    for (size_t i = 0; i < parts.size(); i++)
        what.unpack.push_back(
            [part = parts[i], target = tensors[i].detach()] { target.copy_(part); });
    return keep(what, row);
}

std::vector<size_t> counts_of(const std::vector<at::Tensor> &tensors) {
    std::vector<size_t> counts;
    for (const at::Tensor &tensor : tensors)
        counts.push_back(count_of(tensor));
    return counts;
}

bool all_equal(const std::vector<size_t> &counts) {
    for (size_t count : counts)
        if (count != counts[0])
            return false;
    return true;
}

} // namespace rota_torch
