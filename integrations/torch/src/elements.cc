// Types and operators.
#include "elements.h"

#include "failure.h"

#include <ATen/ATen.h>

namespace rota_torch {

static rota_dtype type_or(at::ScalarType type, rota_dtype otherwise) {
    switch (type) {
    case at::kByte:
        return ROTA_UINT8;
    case at::kChar:
        return ROTA_INT8;
    case at::kShort:
        return ROTA_INT16;
    case at::kUInt16:
        return ROTA_UINT16;
    case at::kInt:
        return ROTA_INT32;
    case at::kUInt32:
        return ROTA_UINT32;
    case at::kLong:
        return ROTA_INT64;
    case at::kUInt64:
        return ROTA_UINT64;
    case at::kHalf:
        return ROTA_FLOAT16;
    case at::kBFloat16:
        return ROTA_BFLOAT16;
    case at::kFloat:
        return ROTA_FLOAT32;
    case at::kDouble:
        return ROTA_FLOAT64;
    case at::kFloat8_e4m3fn:
        return ROTA_FLOAT8_E4M3;
    case at::kFloat8_e5m2:
        return ROTA_FLOAT8_E5M2;
    case at::kComplexFloat:
        return ROTA_COMPLEX64;
    case at::kComplexDouble:
        return ROTA_COMPLEX128;
    case at::kBool:
        return ROTA_BOOL;
    default:
        return otherwise;
    }
}

rota_dtype moved_type(const at::Tensor &tensor) {
    rota_dtype bytes = rota_dtype_bytes(tensor.element_size());
    // A bool is moved as it is, also one that is neither 0 nor 1.
    return tensor.scalar_type() == at::kBool ? bytes : type_or(tensor.scalar_type(), bytes);
}

rota_dtype reduced_type(const at::Tensor &tensor) {
    rota_dtype type = type_or(tensor.scalar_type(), ROTA_DTYPE_COUNT);
    TORCH_CHECK(type != ROTA_DTYPE_COUNT, "Invalid scalar type ", tensor.scalar_type(),
                " for a reduction by rota");
    return type;
}

// Sums and products of bools are "or" and "and".
static rota_op bool_operator(c10d::ReduceOp::RedOpType op) {
    switch (op) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::MAX:
    case c10d::ReduceOp::BOR:
        return ROTA_LOGICAL_OR;
    case c10d::ReduceOp::PRODUCT:
    case c10d::ReduceOp::MIN:
    case c10d::ReduceOp::BAND:
        return ROTA_LOGICAL_AND;
    case c10d::ReduceOp::BXOR:
        return ROTA_LOGICAL_XOR;
    default:
        return ROTA_OP_COUNT;
    }
}

static rota_op plain_operator(c10d::ReduceOp::RedOpType op) {
    switch (op) {
    case c10d::ReduceOp::SUM:
        return ROTA_SUM;
    case c10d::ReduceOp::AVG:
        return ROTA_AVG;
    case c10d::ReduceOp::PRODUCT:
        return ROTA_PROD;
    case c10d::ReduceOp::MIN:
        return ROTA_MIN;
    case c10d::ReduceOp::MAX:
        return ROTA_MAX;
    case c10d::ReduceOp::BAND:
        return ROTA_BITWISE_AND;
    case c10d::ReduceOp::BOR:
        return ROTA_BITWISE_OR;
    case c10d::ReduceOp::BXOR:
        return ROTA_BITWISE_XOR;
    default:
        return ROTA_OP_COUNT;
    }
}

// A narrow type takes its factor in float32, so that 1/n keeps its precision.
static rota_op pre_mul_sum(const c10d::ReduceOp &op, const at::Tensor &tensor, rota_comm *comm) {
    const auto *supplement = dynamic_cast<const c10d::PreMulSumSupplement *>(op.supplement_.get());
    TORCH_CHECK(supplement != nullptr, "PREMUL_SUM without a factor");
    at::ScalarType type = tensor.scalar_type();
    if (at::isReducedFloatingType(type))
        type = at::kFloat;
    at::Tensor factor =
        supplement->tensor_factor.defined()
            ? supplement->tensor_factor.to(at::kCPU, type).contiguous()
            : at::scalar_tensor(supplement->double_factor, at::TensorOptions().dtype(type));
    rota_op made = ROTA_OP_COUNT;
    check(rota_op_create_pre_mul_sum(factor.data_ptr(), reduced_type(factor), comm, &made),
          "PREMUL_SUM");
    return made;
}

rota_op Operators::for_elements(const at::Tensor &tensor) {
    if (op_.op_ == c10d::ReduceOp::PREMUL_SUM) {
        made_.push_back(pre_mul_sum(op_, tensor, comm_));
        return made_.back();
    }
    rota_op found =
        tensor.scalar_type() == at::kBool ? bool_operator(op_.op_) : plain_operator(op_.op_);
    rota_dtype type = reduced_type(tensor);
    if (found < ROTA_OP_COUNT && rota_op_accepts(found, type))
        return found;
    const char *name = rota_op_name(plain_operator(op_.op_));
    TORCH_CHECK(false, "Cannot use ReduceOp ", name != nullptr ? name : "(unknown)", " with ",
                tensor.scalar_type());
}

Operators::~Operators() {
    if (recorded_ != nullptr)
        recorded_->insert(recorded_->end(), made_.begin(), made_.end());
    else
        free_operators(made_, comm_);
}

void free_operators(const std::vector<rota_op> &operators, rota_comm *comm) {
    for (rota_op op : operators)
        (void)rota_op_free(op, comm); // its communicator may be gone, and it with that
}

} // namespace rota_torch
