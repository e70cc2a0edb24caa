// One operation as torch sees it.
#pragma once

#include "failure.h"
#include "lanes.h"

#include <rota/rota.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

namespace rota_torch {

class Group;

// What an operation is, beside the library's call.
struct Operation {
    c10d::OpType type = c10d::OpType::UNKNOWN;
    const char *name = "";  // "all_reduce"
    const char *title = ""; // of its profiler event, without the backend's name before it
    std::chrono::milliseconds timeout{0};
    bool async = true;
    std::vector<at::Tensor> inputs;            // the caller's, for the profiler
    std::vector<at::Tensor> kept;              // buffers that the call uses
    std::vector<at::Tensor> outputs;           // the value of its future
    std::vector<std::function<void()>> unpack; // copy results to where they belong
    int64_t expected = -1;                     // elements that a receive must bring
};

// Design note. An operation that runs in the background belongs to three: the user, who may drop
// it; the library, which calls `done` once; and its group, which keeps it until the library and the
// lanes are through with it and then lets go of it in a thread of the user's. So no thread of ours
// ever drops the last reference to a tensor, for which it might need the interpreter's lock.
//
// Its future is made when somebody asks for it. One that nobody asked for costs nothing: `done`
// completes the work at once, and a waiter drives the library itself. One that was asked for is
// completed on a lane, and the work right after it, before anything that hangs on it is run.
class RotaWork : public c10d::Work {
  public:
    RotaWork(std::shared_ptr<Group> group, Operation operation, uint64_t sequence);
    ~RotaWork() override;

    bool wait(std::chrono::milliseconds timeout) override;
    bool isCompleted() override;
    bool isSuccess() const override;
    int sourceRank() const override;
    std::vector<at::Tensor> result() override;
    void synchronize() override {
    }
    void abort() override;
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
    uint64_t getSequencenumber() const override {
        return sequence_;
    }
    std::chrono::milliseconds getTimeout() const override {
        return operation.timeout;
    }

    // Ends a work that the library has ended or that never reached it. Any thread.
    void end(std::exception_ptr error);
    // The outcome of a call: copies results, makes the exception. The record is the request's, or
    // the calling thread's last one.
    std::exception_ptr outcome(rota_status status);
    // The library is through with it. `arg` is a RotaWork.
    static void done(void *arg, rota_status status);
    bool retired() const {
        return retired_.load(std::memory_order_acquire);
    }

    Operation operation;
    rota_request *request = nullptr;
    rota_recv_info received = ROTA_RECV_INFO_INIT;
    bool receives = false;         // `received` is filled
    bool gathering = false;        // stands for a coalesced group that has not been started
    std::vector<rota_op> recorded; // operators to be freed once it has

  private:
    void complete(std::exception_ptr error);
    void complete_future(const c10::intrusive_ptr<c10::ivalue::Future> &future,
                         const std::exception_ptr &error);

    const std::shared_ptr<Group> group_;
    const uint64_t sequence_;
    const std::shared_ptr<Lane> lane_;
    bool ended_ = false; // under mutex_, as the next two
    std::exception_ptr outcome_;
    c10::intrusive_ptr<c10::ivalue::Future> future_;
    std::atomic<bool> retired_{false};
};

} // namespace rota_torch
