// Dense memory for the tensors of an operation: a call of the library takes one block of memory, a
// tensor may be strided, lazily conjugated or misaligned, a list lies in many places. The operation
// keeps the memory, and copies results from it to the tensors that they are for.
#pragma once

#include "work.h"

namespace rota_torch {

// Throws unless the tensor is a dense tensor of the CPU.
void check_tensor(const at::Tensor &tensor, const char *operation);
// And all of them have the type of the first, and, with `same_size`, its number of elements.
void check_tensors(const std::vector<at::Tensor> &tensors, const char *operation,
                   bool same_size = false);

// Memory with the elements of a tensor, or of a list, one after the other: where they lie, if that
// is so already.
at::Tensor reads(Operation &what, const at::Tensor &tensor);
at::Tensor reads(Operation &what, const std::vector<at::Tensor> &tensors);
// Memory for results.
at::Tensor writes(Operation &what, const at::Tensor &tensor);
at::Tensor writes(Operation &what, const std::vector<at::Tensor> &tensors);
// Both.
at::Tensor updates(Operation &what, const at::Tensor &tensor);

inline size_t count_of(const at::Tensor &tensor) {
    return static_cast<size_t>(tensor.numel());
}
std::vector<size_t> counts_of(const std::vector<at::Tensor> &tensors);
bool all_equal(const std::vector<size_t> &counts);

} // namespace rota_torch
