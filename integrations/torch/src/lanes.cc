// Lanes over a pool of threads that grows with what blocks in it.
#include "lanes.h"

#include <csignal>
#include <map>
#include <pthread.h>
#include <thread>

namespace rota_torch {

using Clock = std::chrono::steady_clock;

// A task that has kept its lane for so long while others waited is taken to wait for one of them.
static constexpr auto kStall = std::chrono::milliseconds(200);
// How long a thread without work stays.
static constexpr auto kIdle = std::chrono::seconds(10);

static thread_local int depth_of_thread = -1;

namespace {

// Threads are detached, and the pool is never destroyed: at the end of the process there may be
// threads that wait here, and nothing that they would have to tell anybody.
class Pool {
  public:
    static Pool &instance() {
        static Pool *pool = new Pool;
        return *pool;
    }

    void run_at(Clock::time_point time, std::function<void()> task) {
        std::lock_guard<std::mutex> lock(mutex_);
        tasks_.emplace(time, std::move(task));
        if (idle_ == 0)
            start();
        else
            wake_.notify_one();
    }

  private:
    // mutex_ held. Signals are for the program's own threads.
    void start() {
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        std::thread([this] { serve(); }).detach();
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        idle_++;
    }

    void serve() {
        pthread_setname_np(pthread_self(), "rota-futures");
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            auto now = Clock::now();
            if (!tasks_.empty() && tasks_.begin()->first <= now) {
                auto task = std::move(tasks_.begin()->second);
                tasks_.erase(tasks_.begin());
                idle_--;
                // One must be left to look at what is due later.
                if (idle_ == 0 && !tasks_.empty())
                    start();
                lock.unlock();
                task();
                task = nullptr;
                lock.lock();
                idle_++;
                continue;
            }
            auto until = tasks_.empty() ? now + kIdle : tasks_.begin()->first;
            if (wake_.wait_until(lock, until) == std::cv_status::timeout && tasks_.empty()) {
                idle_--;
                return;
            }
        }
    }

    std::mutex mutex_;
    std::condition_variable wake_;
    std::multimap<Clock::time_point, std::function<void()>> tasks_;
    int idle_ = 0;
};

} // namespace

int Lane::depth_of_caller() {
    return depth_of_thread;
}

void Lane::serve_later(bool rescue) {
    auto when = rescue ? Clock::now() + kStall : Clock::now();
    Pool::instance().run_at(when, [self = shared_from_this(), rescue] { self->drain(rescue); });
}

void Lane::push(std::function<void()> task) {
    bool idle;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        tasks_.push_back(std::move(task));
        idle = !served_;
        served_ = true;
    }
    serve_later(!idle);
}

void Lane::drain(bool rescue) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (rescue && tasks_.empty())
        return;
    if (rescue && Clock::now() - begun_ < kStall) { // it moves, or is about to
        lock.unlock();
        serve_later(true);
        return;
    }
    depth_of_thread = depth_;
    while (!tasks_.empty()) {
        auto task = std::move(tasks_.front());
        tasks_.pop_front();
        running_++;
        begun_ = Clock::now();
        lock.unlock();
        task();
        task = nullptr;
        lock.lock();
        running_--;
    }
    served_ = running_ > 0; // else what comes next begins a new turn
    if (running_ == 0)
        quiet_.notify_all();
    depth_of_thread = -1;
}

void Lane::settle(std::chrono::milliseconds limit) {
    std::unique_lock<std::mutex> lock(mutex_);
    int self = depth_of_thread >= 0 ? 1 : 0; // a task that shuts its group down
    quiet_.wait_for(lock, limit, [&] { return tasks_.empty() && running_ <= self; });
}

} // namespace rota_torch
