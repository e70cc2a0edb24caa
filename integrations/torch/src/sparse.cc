// Sparse all-reduce: everybody gathers everybody's entries and adds them up.
#include "backend.h"

#include <ATen/ATen.h>

namespace rota_torch {

using c10d::OpType;

// Sparse and dense dimensions and sizes must agree; the number of entries need not.
static constexpr int64_t kShapeMax = 16;

static at::Tensor shape_of(const at::Tensor &tensor) {
    TORCH_CHECK_VALUE(tensor.dim() <= kShapeMax, "rota allreduce_sparse: more than ", kShapeMax,
                      " dimensions");
    at::Tensor shape = at::zeros({kShapeMax + 3}, at::kLong);
    int64_t *values = shape.mutable_data_ptr<int64_t>();
    values[0] = tensor._nnz();
    values[1] = tensor.sparse_dim();
    values[2] = tensor.dense_dim();
    for (int64_t i = 0; i < tensor.dim(); i++)
        values[3 + i] = tensor.size(i);
    return shape;
}

static std::vector<size_t> entries_of_ranks(const at::Tensor &shapes, int nranks, int rank) {
    int64_t width = kShapeMax + 3;
    const int64_t *values = shapes.const_data_ptr<int64_t>();
    std::vector<size_t> entries;
    for (int r = 0; r < nranks; r++) {
        const int64_t *of_rank = values + r * width;
        TORCH_CHECK_VALUE(std::equal(of_rank + 1, of_rank + width, values + rank * width + 1),
                          "rota allreduce_sparse: the tensor of rank ", r,
                          " has another shape than that of rank ", rank);
        entries.push_back(static_cast<size_t>(of_rank[0]));
    }
    return entries;
}

static std::vector<size_t> times(std::vector<size_t> counts, int64_t factor) {
    for (size_t &count : counts)
        count *= static_cast<size_t>(factor);
    return counts;
}

// How many entries each rank has must be known before the rest can begin, so that much is done here
// and now, also where the call is asynchronous.
WorkPointer RotaBackend::allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &opts) {
    TORCH_CHECK_VALUE(tensors.size() == 1 && tensors[0].layout() == at::kSparse &&
                          tensors[0].device().is_cpu(),
                      "rota allreduce_sparse: takes one sparse tensor of the CPU");
    TORCH_CHECK_VALUE(opts.reduceOp == c10d::ReduceOp::SUM,
                      "rota allreduce_sparse: unsupported reduction operation: sums only");
    at::Tensor own = tensors[0].coalesce();
    at::Tensor shape = shape_of(own);
    at::Tensor shapes = at::empty({getSize(), shape.numel()}, at::kLong);
    c10d::AllgatherOptions first;
    first.timeout = opts.timeout;
    first.asyncOp = false;
    all_gather_single(shapes, shape, first);
    std::vector<size_t> entries = entries_of_ranks(shapes, getSize(), getRank());
    int64_t total = 0;
    for (size_t count : entries)
        total += static_cast<int64_t>(count);

    // Entries first, so that what a rank contributes is one block.
    at::Tensor indices = own._indices().t().contiguous(), values = own._values().contiguous();
    std::vector<int64_t> value_sizes = values.sizes().vec();
    value_sizes[0] = total;
    at::Tensor all_indices = at::empty({total, own.sparse_dim()}, at::kLong);
    at::Tensor all_values = at::empty(value_sizes, values.options());
    int64_t width = total > 0 ? all_values.numel() / total : 0;

    Operation what =
        operation(OpType::_ALLREDUCE_SPARSE, "all_reduce_sparse", "sparse_all_reduce", opts);
    what.inputs = tensors;
    what.kept = {indices, values, all_indices, all_values};
    what.outputs = tensors;
    what.unpack = {[all_indices, all_values, target = tensors[0]]() mutable {
        at::NoGradGuard no_grad; // and not detached: that would be a sparse tensor of its own
        at::Tensor sum =
            at::sparse_coo_tensor(all_indices.t(), all_values, target.sizes()).coalesce();
        target.copy_(sum);
    }};
    std::vector<Piece> pieces{{indices, all_indices, times(entries, own.sparse_dim())},
                              {values, all_values, times(entries, width)}};
    auto mine = static_cast<size_t>(getRank());
    return run_each(*group_, std::move(what), pieces,
                    [&](const Piece &piece, rota_comm *comm, const rota_call &call) {
                        return rota_all_gatherv(piece.from.data_ptr(), piece.counts[mine],
                                                piece.to.data_ptr(), piece.counts.data(), nullptr,
                                                moved_type(piece.from), comm, &call);
                    });
}

} // namespace rota_torch
