// The c10d backend: each operation of torch becomes one call, or one group of calls, of rota.
#pragma once

#include "dense.h"
#include "elements.h"
#include "group.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <memory>
#include <string>
#include <vector>

namespace rota_torch {

using Tensors = std::vector<at::Tensor>;
using WorkPointer = c10::intrusive_ptr<c10d::Work>;

struct RotaOptions : c10d::Backend::Options {
    RotaOptions(std::string name, std::chrono::milliseconds timeout)
        : c10d::Backend::Options(std::move(name), timeout) {
    }
    c10::intrusive_ptr<c10d::Backend::Options> clone() const override {
        return c10::make_intrusive<RotaOptions>(*this);
    }
};

class RotaBackend : public c10d::Backend {
  public:
    // Where `world` is a backend of this kind: a group of its ranks, which is there at once. Else
    // joins by the store, and blocks until all ranks are there.
    static c10::intrusive_ptr<c10d::Backend> create(const c10::intrusive_ptr<c10d::Store> &store,
                                                    int rank, int size,
                                                    const c10::intrusive_ptr<c10d::Backend> &world,
                                                    c10::intrusive_ptr<RotaOptions> options);
    RotaBackend(rota_comm *comm, int rank, int size, c10::intrusive_ptr<RotaOptions> options);
    ~RotaBackend() override;

    // -- life: life.cc
    const std::string getBackendName() const override {
        return options_->backend;
    }
    c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override {
        return options_;
    }
    bool supportsSplitting() const override {
        return true;
    }
    bool supportsCoalescing() const override {
        return true;
    }
    void setTimeout(std::chrono::milliseconds timeout) override;
    uint64_t getSequenceNumberForGroup() override {
        return group_->sequence();
    }
    c10d::ErrorType getError() override;
    c10::intrusive_ptr<c10d::Backend>
    split(const c10::intrusive_ptr<c10d::Store> &store, const std::vector<int> &ranks,
          const c10::intrusive_ptr<c10d::Backend::Options> &options) override;
    void abort() override;
    void shutdown() override;
    void startCoalescing() override;
    WorkPointer endCoalescing() override;
    bool supportsTensorAlloc(c10::DeviceIndex device) override;
    at::Tensor allocateTensor(long size, at::TensorOptions options) override;

    // -- reductions and broadcast: reduce.cc
    WorkPointer broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts) override;
    WorkPointer allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts) override;
    WorkPointer allreduce_coalesced(Tensors &tensors,
                                    const c10d::AllreduceCoalescedOptions &opts) override;
    WorkPointer reduce(Tensors &tensors, const c10d::ReduceOptions &opts) override;
    WorkPointer barrier(const c10d::BarrierOptions &opts) override;
    // sparse.cc
    WorkPointer allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &opts) override;

    // -- gather.cc
    WorkPointer allgather(std::vector<Tensors> &outputs, Tensors &inputs,
                          const c10d::AllgatherOptions &opts) override;
    WorkPointer all_gather_single(at::Tensor &output, at::Tensor &input,
                                  const c10d::AllgatherOptions &opts) override;
    WorkPointer allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                                    const c10d::AllgatherOptions &opts) override;
    WorkPointer all_gather_single_coalesced(Tensors &outputs, Tensors &inputs,
                                            const c10d::AllgatherOptions &opts) override;
    WorkPointer gather(std::vector<Tensors> &outputs, Tensors &inputs,
                       const c10d::GatherOptions &opts) override;
    WorkPointer gather_single(at::Tensor &output, at::Tensor &input,
                              const c10d::GatherOptions &opts) override;

    // -- scatter.cc
    WorkPointer scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                        const c10d::ScatterOptions &opts) override;
    WorkPointer reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                               const c10d::ReduceScatterOptions &opts) override;
    WorkPointer reduce_scatter_single(at::Tensor &output, at::Tensor &input,
                                      const c10d::ReduceScatterOptions &opts) override;
    WorkPointer reduce_scatter_single_coalesced(Tensors &outputs, Tensors &inputs,
                                                const c10d::ReduceScatterOptions &opts) override;

    // -- exchange.cc
    WorkPointer all_to_all_single(at::Tensor &output, at::Tensor &input,
                                  std::vector<int64_t> &output_splits,
                                  std::vector<int64_t> &input_splits,
                                  const c10d::AllToAllOptions &opts) override;
    WorkPointer alltoall(Tensors &outputs, Tensors &inputs,
                         const c10d::AllToAllOptions &opts) override;

    // -- messages.cc
    WorkPointer send(Tensors &tensors, int destination, int tag) override;
    WorkPointer recv(Tensors &tensors, int source, int tag) override;
    WorkPointer recvAnysource(Tensors &tensors, int tag) override;
    // monitored.cc
    void monitoredBarrier(const c10d::BarrierOptions &opts, bool wait_all_ranks) override;

  private:
    // What a call gets from its options: a time-out that is not set is the group's.
    Operation operation(c10d::OpType type, const char *name, const char *title,
                        std::chrono::milliseconds timeout, bool async) const;
    template <class Options>
    Operation operation(c10d::OpType type, const char *name, const char *title,
                        const Options &opts) const {
        return operation(type, name, title, opts.timeout, opts.asyncOp);
    }
    void check_root(int64_t root, const char *name) const;
    WorkPointer receive(at::Tensor &tensor, int source, int tag);

    const c10::intrusive_ptr<RotaOptions> options_;
    const std::shared_ptr<Group> group_;
    std::atomic<int64_t> timeout_ms_;
    std::atomic<int> monitored_{-1}; // tag of the last such barrier
};

// Runs calls as one group: each is begun by `each(i, call)` with the call's options. Within a group
// of the caller's they join that; one call alone needs none.
template <class Each> rota_status as_group(size_t count, const rota_call &call, Each &&each) {
    if (count == 1)
        return each(0, call);
    rota_call one = ROTA_CALL_INIT;
    one.timeout_ms = call.timeout_ms;
    one.group = call.group;
    rota_status status = ROTA_OK;
    if (one.group == nullptr)
        status = rota_group_begin(&one.group);
    try {
        for (size_t i = 0; i < count && status == ROTA_OK; i++)
            status = each(i, one);
    } catch (...) { // an operator that the type does not have
        if (call.group == nullptr)
            (void)rota_group_free(one.group);
        throw;
    }
    if (call.group != nullptr || one.group == nullptr)
        return status;
    rota_call whole = call;
    whole.timeout_ms = 0;
    return rota_group_end(one.group, &whole);
}

// Memory of one call of an operation: what it reads and writes, and the elements of each rank where
// those may differ.
struct Piece {
    at::Tensor from, to;
    std::vector<size_t> counts;
};

// Runs the operation as one group of calls, each of them begun by `begin(piece, comm, call)`.
template <class Begin>
WorkPointer run_each(Group &group, Operation what, const std::vector<Piece> &pieces,
                     Begin &&begin) {
    return group.run(std::move(what), [&](rota_comm *comm, const rota_call &call, RotaWork &) {
        return as_group(pieces.size(), call, [&](size_t i, const rota_call &one) {
            return begin(pieces[i], comm, one);
        });
    });
}

// The same with the operator that is for the elements: `begin(piece, op, comm, call)`.
template <class Begin>
WorkPointer reduce_each(Group &group, Operation what, const std::vector<Piece> &pieces,
                        const c10d::ReduceOp &op, Begin &&begin) {
    return group.run(std::move(what), [&](rota_comm *comm, const rota_call &call, RotaWork &work) {
        Operators operators(op, comm, call.group != nullptr ? &work.recorded : nullptr);
        return as_group(pieces.size(), call, [&](size_t i, const rota_call &one) {
            return begin(pieces[i], operators.for_elements(pieces[i].from), comm, one);
        });
    });
}

} // namespace rota_torch
