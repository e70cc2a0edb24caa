// Types, operators, dense memory.
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

rota_op operator_of(const c10d::ReduceOp &op, const at::Tensor &tensor, rota_comm *comm) {
    if (op.op_ == c10d::ReduceOp::PREMUL_SUM)
        return pre_mul_sum(op, tensor, comm);
    rota_op found =
        tensor.scalar_type() == at::kBool ? bool_operator(op.op_) : plain_operator(op.op_);
    rota_dtype type = reduced_type(tensor);
    if (found < ROTA_OP_COUNT && rota_op_accepts(found, type))
        return found;
    const char *name = rota_op_name(plain_operator(op.op_));
    TORCH_CHECK(false, "Cannot use ReduceOp ", name != nullptr ? name : "(unknown)", " with ",
                tensor.scalar_type());
}

void free_operator(rota_op op, rota_comm *comm) {
    if (op >= ROTA_OP_COUNT)
        (void)rota_op_free(op, comm); // its communicator may be gone, and it with that
}

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

bool is_plain(const at::Tensor &tensor) {
    size_t alignment = std::min<size_t>(tensor.element_size(), alignof(double));
    return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg() &&
           reinterpret_cast<uintptr_t>(tensor.data_ptr()) % alignment == 0;
}

static at::Tensor like(const at::Tensor &tensor) {
    return at::empty(tensor.sizes(), at::TensorOptions().dtype(tensor.dtype()));
}

at::Tensor plain_input(const at::Tensor &tensor) {
    return is_plain(tensor) ? tensor : like(tensor).copy_(tensor.detach());
}

Result plain_result(const at::Tensor &tensor, bool with_contents) {
    if (is_plain(tensor))
        return {tensor, nullptr};
    at::Tensor memory = like(tensor);
    if (with_contents)
        memory.copy_(tensor.detach());
    return {memory, [memory, target = tensor.detach()] { target.copy_(memory); }};
}

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

Result packed(const std::vector<at::Tensor> &tensors, bool with_contents, bool unpacks) {
    int64_t total = 0;
    for (const at::Tensor &tensor : tensors)
        total += tensor.numel();
    const at::Tensor &first = tensors.front();
    if (first.numel() > 0 && in_a_row(tensors))
        return {first.detach().as_strided({total}, {1}, first.storage_offset()), nullptr};
    at::Tensor memory = at::empty({total}, at::TensorOptions().dtype(first.dtype()));
    std::vector<at::Tensor> pieces;
    int64_t at = 0;
    for (const at::Tensor &tensor : tensors) {
        pieces.push_back(memory.narrow(0, at, tensor.numel()).view(tensor.sizes()));
        at += tensor.numel();
        if (with_contents)
            pieces.back().copy_(tensor.detach());
    }
    if (!unpacks)
        return {memory, nullptr};
    std::vector<at::Tensor> targets;
    for (const at::Tensor &tensor : tensors)
        targets.push_back(tensor.detach());
    return {memory, [pieces, targets] {
                for (size_t i = 0; i < targets.size(); i++)
                    targets[i].copy_(pieces[i]);
            }};
}

std::function<void()> both(std::function<void()> first, std::function<void()> second) {
    if (!first || !second)
        return first ? first : second;
    return [first, second] {
        first();
        second();
    };
}

} // namespace rota_torch
