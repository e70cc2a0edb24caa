// Threads that complete futures.
//
// What a user hangs on a future (`then`) may block: PowerSGD's waits for another all-reduce of the
// same group. So it must not run where the library calls back, in the thread that makes progress.
// A lane runs tasks one after the other, in order, because what they start must be started in the
// same order on all ranks. An operation that is started by a task of lane d completes its future on
// lane d + 1: a task that waits for it does not wait for itself. A task that waits for a later
// one of its own lane is passed over after a while.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

namespace rota_torch {

class Lane : public std::enable_shared_from_this<Lane> {
  public:
    explicit Lane(int depth) : depth_(depth) {
    }
    void push(std::function<void()> task);
    // Waits until all tasks have run, at most so long.
    void settle(std::chrono::milliseconds limit);
    // Depth of the lane that runs the calling thread, -1 for other threads.
    static int depth_of_caller();

  private:
    // Runs tasks until there are none. A rescue does so only where the lane is stalled.
    void drain(bool rescue);
    void serve_later(bool rescue);

    const int depth_;
    std::mutex mutex_;
    std::condition_variable quiet_;
    std::deque<std::function<void()>> tasks_;
    int running_ = 0;                               // tasks
    std::chrono::steady_clock::time_point begun_{}; // the last of them
    bool served_ = false;
};

} // namespace rota_torch
