// The communicator of a process group, and the operations that are under way on it.
#pragma once

#include "failure.h"
#include "lanes.h"
#include "work.h"

#include <rota/rota.h>

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace rota_torch {

// A communicator that lives as long as somebody uses it: its group, and memory that was allocated
// by it.
class Communicator {
  public:
    explicit Communicator(rota_comm *comm) : comm_(comm) {
    }
    ~Communicator();
    Communicator(const Communicator &) = delete;
    Communicator &operator=(const Communicator &) = delete;
    rota_comm *get() const {
        return comm_;
    }
    // Memory that peers read in place. Some of what was given back is kept for the next block of
    // the same size, with its pages: training asks for the same sizes in every step.
    void *allocate(size_t bytes);
    void give_back(void *block, size_t bytes);

  private:
    rota_comm *const comm_;
    std::mutex mutex_;
    std::deque<std::pair<size_t, void *>> spare_; // the latest last
};

class Group : public std::enable_shared_from_this<Group> {
  public:
    Group(rota_comm *comm, Place place);

    // Starts an operation. `call` is what begins the library's call: rota_status(rota_comm *,
    // const rota_call &, RotaWork &); with call.group set it only records. Collectives are started
    // by one thread at a time and run in that order; `beside` is for point to point, which any
    // thread starts and which has an order of its own. Throws what goes wrong at once.
    template <class Call>
    c10::intrusive_ptr<RotaWork> run(Operation operation, Call &&call, bool beside = false);

    // The operations that this thread starts in between become one group of the library's.
    void begin_coalescing();
    c10::intrusive_ptr<RotaWork> end_coalescing(const Operation &operation);

    // Lets go of operations that are over. Threads of the user only.
    void sweep();
    // Operations that are not over.
    std::vector<c10::intrusive_ptr<RotaWork>> flying();
    // Ends all operations with an error, from any thread.
    void abort();
    // Waits for the collectives that are under way, ends the rest, leaves.
    void close();

    const Place &place() const {
        return place_;
    }
    // Throws after close.
    std::shared_ptr<Communicator> communicator();
    rota_status state();
    std::shared_ptr<Lane> lane_of_caller();
    uint64_t sequence() const {
        return sequence_.load(std::memory_order_relaxed);
    }

  private:
    struct Coalescing {
        std::thread::id owner;
        rota_group *group = nullptr;
        c10::intrusive_ptr<RotaWork> work;
    };

    Coalescing *coalescing_of_caller();
    void abandon_coalescing();
    void let_go();
    c10::intrusive_ptr<RotaWork> record(Coalescing &into, Operation operation);
    void take_off(const c10::intrusive_ptr<RotaWork> &work);
    void finish_blocking(RotaWork &work, rota_status status);
    static void fail_start(Group &group, RotaWork &work, rota_status status);

    const Place place_;
    std::mutex comm_mutex_;
    std::shared_ptr<Communicator> comm_;
    std::mutex start_mutex_;
    std::atomic<uint64_t> sequence_{0};
    std::mutex flying_mutex_;
    std::vector<c10::intrusive_ptr<RotaWork>> flying_;
    std::mutex lanes_mutex_;
    std::vector<std::shared_ptr<Lane>> lanes_;
    std::atomic<bool> coalesces_{false};
    std::unique_ptr<Coalescing> coalescing_;
};

template <class Call>
c10::intrusive_ptr<RotaWork> Group::run(Operation operation, Call &&call, bool beside) {
    auto comm = communicator();
    rota_call options = ROTA_CALL_INIT;
    options.timeout_ms = operation.timeout.count();
    if (Coalescing *into = coalescing_of_caller()) {
        options.group = into->group;
        auto work = record(*into, std::move(operation));
        rota_status status = call(comm->get(), options, *work);
        if (status != ROTA_OK)
            std::rethrow_exception(work->outcome(status));
        return work;
    }
    uint64_t sequence = beside ? this->sequence() : sequence_.fetch_add(1) + 1;
    auto work = c10::make_intrusive<RotaWork>(shared_from_this(), std::move(operation), sequence);
    std::unique_lock<std::mutex> lock(start_mutex_, std::defer_lock);
    if (!beside)
        lock.lock();
    if (!work->operation.async) {
        finish_blocking(*work, call(comm->get(), options, *work));
        return work;
    }
    options.request = &work->request;
    options.done = RotaWork::done;
    options.done_arg = work.get();
    take_off(work);
    rota_status status = ROTA_OK;
    try {
        status = call(comm->get(), options, *work);
    } catch (...) { // before anything was started: an operator that the type does not have
        work->end(std::current_exception());
        throw;
    }
    if (status != ROTA_OK)
        fail_start(*this, *work, status);
    return work;
}

} // namespace rota_torch
