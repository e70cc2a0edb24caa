// Work and future of one operation.
#include "work.h"

#include "group.h"

#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include <set>

namespace rota_torch {

using c10::ivalue::Future;

// The profiler keeps the pointer, so titles are kept for good; there are some dozens. Making an
// event costs more than a small collective: only where somebody listens.
static const char *title_of(const Group &group, const char *title) {
    if (title[0] == '\0' || !at::hasCallbacks())
        return nullptr;
    static std::mutex mutex;
    static auto *titles = new std::set<std::string>;
    std::lock_guard<std::mutex> lock(mutex);
    return titles->insert(group.place().backend + ":" + title).first->c_str();
}

static std::optional<std::vector<at::Tensor>> inputs_for(const char *title,
                                                         const Operation &operation) {
    return title != nullptr ? std::make_optional(operation.inputs) : std::nullopt;
}

RotaWork::RotaWork(std::shared_ptr<Group> group, Operation what, uint64_t sequence)
    : Work(group->place().rank, what.type, title_of(*group, what.title),
           inputs_for(title_of(*group, what.title), what)),
      operation(std::move(what)), group_(std::move(group)), sequence_(sequence),
      lane_(operation.async ? group_->lane_of_caller() : nullptr) {
}

RotaWork::~RotaWork() {
    if (request != nullptr)
        (void)rota_request_free(request);
}

std::exception_ptr RotaWork::outcome(rota_status status) {
    if (status == ROTA_OK && receives && operation.expected >= 0 &&
        received.count != static_cast<size_t>(operation.expected)) {
        rota_error record = ROTA_ERROR_INIT;
        record.status = ROTA_ERR_MISMATCH;
        snprintf(record.message, sizeof record.message,
                 "rank %d sent %zu elements under tag %d, expected %lld", received.source,
                 received.count, received.tag, static_cast<long long>(operation.expected));
        return failure(group_->place(), operation.name, record, operation.timeout);
    }
    if (status == ROTA_OK) {
        try {
            for (const auto &unpack : operation.unpack)
                unpack();
            return nullptr;
        } catch (...) {
            return std::current_exception();
        }
    }
    rota_error record = ROTA_ERROR_INIT;
    if ((request != nullptr ? rota_request_error(request, &record) : rota_last_error(&record)) !=
        ROTA_OK)
        record.message[0] = '\0';
    record.status = status;
    return failure(group_->place(), operation.name, record, operation.timeout);
}

void RotaWork::done(void *arg, rota_status status) {
    auto *work = static_cast<RotaWork *>(arg);
    work->end(work->outcome(status));
}

void RotaWork::complete(std::exception_ptr error) {
    finish(std::move(error));
}

void RotaWork::complete_future(const c10::intrusive_ptr<Future> &future,
                               const std::exception_ptr &error) {
    try {
        if (error)
            future->setError(error);
        else
            future->markCompleted(c10::IValue(operation.outputs));
    } catch (...) {
        // A call-back of the user's threw; it has no one else to tell.
        TORCH_WARN("rota: a call-back of a future of ", operation.name, " failed");
    }
}

void RotaWork::end(std::exception_ptr error) {
    c10::intrusive_ptr<Future> future;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        ended_ = true;
        outcome_ = error;
        future = future_;
    }
    if (!future) {
        complete(std::move(error));
        retired_.store(true, std::memory_order_release);
        return;
    }
    // The group keeps this work until it has retired.
    lane_->push([this, future = std::move(future), error = std::move(error)]() mutable {
        complete_future(future, error);
        future.reset();
        error = nullptr;
        retired_.store(true, std::memory_order_release);
    });
}

c10::intrusive_ptr<Future> RotaWork::getFuture() {
    c10::intrusive_ptr<Future> future;
    std::exception_ptr error;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (future_)
            return future_;
        future_ = c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()));
        if (!ended_) {
            // The first call-back, so that the work is complete before anything else hears of it.
            future_->addCallback([this](Future &) { complete(outcome_); }, false);
            return future_;
        }
        future = future_;
        error = outcome_;
    }
    complete_future(future, error);
    return future;
}

bool RotaWork::isCompleted() {
    std::lock_guard<std::mutex> lock(mutex_);
    return completed_;
}

bool RotaWork::isSuccess() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return completed_ && !exception_;
}

int RotaWork::sourceRank() const {
    return received.source;
}

std::vector<at::Tensor> RotaWork::result() {
    return operation.outputs;
}

void RotaWork::abort() {
    TORCH_CHECK(false, "rota: one operation cannot be aborted: abort its group");
}

bool RotaWork::wait(std::chrono::milliseconds timeout) {
    TORCH_CHECK(!gathering, "rota: wait for coalesced operations after the block that collects "
                            "them has ended");
    // 0 is "for ever": that is until the operation's own deadline. Negative: the group's default.
    if (timeout.count() < 0)
        timeout = operation.timeout;
    bool over = isCompleted();
    if (!over && request != nullptr) {
        bool ended = true;
        rota_status status = rota_request_wait(request, timeout.count());
        if (status == ROTA_ERR_TIMEOUT)
            (void)rota_request_test(request, &ended);
        if (!ended)
            std::rethrow_exception(wait_timed_out(group_->place(), operation.name, timeout));
    }
    if (!over) { // until its lane has completed the future
        std::unique_lock<std::mutex> lock(mutex_);
        cv_.wait(lock, [this] { return completed_; });
    }
    group_->sweep();
    std::lock_guard<std::mutex> lock(mutex_);
    if (exception_)
        std::rethrow_exception(exception_);
    return true;
}

} // namespace rota_torch
