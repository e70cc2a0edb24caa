// What torch's element types and operators are called in rota, and dense memory for tensors that
// have none: a call of the library takes one block of memory, a tensor may be strided, lazily
// conjugated or misaligned.
#pragma once

#include <rota/rota.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <functional>
#include <vector>

namespace rota_torch {

// Type of a tensor's elements where they are only moved: any type will do.
rota_dtype moved_type(const at::Tensor &tensor);

// Type of a tensor's elements where they are reduced. Throws where there is none.
rota_dtype reduced_type(const at::Tensor &tensor);

// Operator of a call on elements of a type; PREMUL_SUM makes one of the communicator's, which must
// be given back by free_operator when the call has been started.
rota_op operator_of(const c10d::ReduceOp &op, const at::Tensor &tensor, rota_comm *comm);
void free_operator(rota_op op, rota_comm *comm);

// Throws unless the tensor is a dense tensor of the CPU.
void check_tensor(const at::Tensor &tensor, const char *operation);
// And all of them have the type of the first, and, with `same_size`, its number of elements.
void check_tensors(const std::vector<at::Tensor> &tensors, const char *operation,
                   bool same_size = false);

// Whether the memory of the tensor is its elements in order.
bool is_plain(const at::Tensor &tensor);

// The tensor, or a plain copy of it.
at::Tensor plain_input(const at::Tensor &tensor);

// Memory for a result, and what copies it to the tensors that it is for: nothing where those are
// plain and lie one after the other.
struct Result {
    at::Tensor memory;
    std::function<void()> unpack; // empty: nothing to do
};
Result plain_result(const at::Tensor &tensor, bool with_contents);

// The tensors of a list one after the other in plain memory: a view where they lie so, else a copy
// (of their contents when `with_contents`).
Result packed(const std::vector<at::Tensor> &tensors, bool with_contents, bool unpacks);

// Does both.
std::function<void()> both(std::function<void()> first, std::function<void()> second);

} // namespace rota_torch
