// What torch's element types and operators are called in rota.
#pragma once

#include <rota/rota.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <vector>

namespace rota_torch {

// Type of a tensor's elements where they are only moved: any type will do.
rota_dtype moved_type(const at::Tensor &tensor);

// Type of a tensor's elements where they are reduced. Throws where there is none.
rota_dtype reduced_type(const at::Tensor &tensor);

// The operators of an operation's calls. PREMUL_SUM makes one of the communicator's, which is given
// back when the calls have been started: at the end of this object's life, or, where the calls are
// only recorded, by whoever starts them: `recorded` gets it then.
class Operators {
  public:
    Operators(const c10d::ReduceOp &op, rota_comm *comm, std::vector<rota_op> *recorded)
        : op_(op), comm_(comm), recorded_(recorded) {
    }
    ~Operators();
    Operators(const Operators &) = delete;
    Operators &operator=(const Operators &) = delete;
    // Throws where the type does not have it.
    rota_op for_elements(const at::Tensor &tensor);

  private:
    const c10d::ReduceOp &op_;
    rota_comm *const comm_;
    std::vector<rota_op> *const recorded_;
    std::vector<rota_op> made_;
};
void free_operators(const std::vector<rota_op> &operators, rota_comm *comm);

} // namespace rota_torch
