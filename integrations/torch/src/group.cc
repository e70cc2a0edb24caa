// Operations under way.
#include "group.h"

#include "elements.h"

#include <algorithm>
#include <iterator>

namespace rota_torch {

// Deepest lane: call-backs of call-backs of call-backs share the last.
static constexpr int kLanes = 8;
// Of memory that was given back: a step of FSDP2 has one block for each layer under way.
static constexpr size_t kSpareBlocks = 16, kSpareBytes = size_t(256) << 20;
static constexpr auto kSettle = std::chrono::milliseconds(5000);

// -- memory ---------------------------------------------------------------------------------------

Communicator::~Communicator() {
    for (const auto &[bytes, block] : spare_)
        (void)rota_mem_free(comm_, block);
    (void)rota_comm_destroy(comm_);
}

void *Communicator::allocate(size_t bytes) {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        auto found = std::find_if(spare_.rbegin(), spare_.rend(),
                                  [&](const auto &one) { return one.first == bytes; });
        if (found != spare_.rend()) {
            void *block = found->second;
            spare_.erase(std::next(found).base());
            return block;
        }
    }
    void *block = nullptr;
    check(rota_mem_alloc(comm_, bytes, &block), "allocate");
    return block;
}

void Communicator::give_back(void *block, size_t bytes) {
    std::vector<void *> freed;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        spare_.emplace_back(bytes, block);
        size_t total = 0;
        for (auto one = spare_.rbegin(); one != spare_.rend(); ++one)
            total += one->first;
        for (; total > kSpareBytes || spare_.size() > kSpareBlocks; spare_.pop_front()) {
            total -= spare_.front().first;
            freed.push_back(spare_.front().second);
        }
    }
    for (void *one : freed)
        (void)rota_mem_free(comm_, one);
}

// -- life of a group ------------------------------------------------------------------------------

Group::Group(rota_comm *comm, Place place)
    : place_(std::move(place)), comm_(std::make_shared<Communicator>(comm)) {
}

std::shared_ptr<Communicator> Group::communicator() {
    std::lock_guard<std::mutex> lock(comm_mutex_);
    if (!comm_)
        throw c10::DistBackendError(c10::str("rota: group ", place_.group, " has been shut down"),
                                    nullptr);
    return comm_;
}

rota_status Group::state() {
    std::lock_guard<std::mutex> lock(comm_mutex_);
    return comm_ ? rota_comm_query(comm_->get()) : ROTA_ERR_STATE;
}

std::shared_ptr<Lane> Group::lane_of_caller() {
    int depth = std::min(Lane::depth_of_caller() + 1, kLanes - 1);
    std::lock_guard<std::mutex> lock(lanes_mutex_);
    while (lanes_.size() <= static_cast<size_t>(depth))
        lanes_.push_back(std::make_shared<Lane>(static_cast<int>(lanes_.size())));
    return lanes_[static_cast<size_t>(depth)];
}

// -- life of an operation -------------------------------------------------------------------------

void Group::take_off(const c10::intrusive_ptr<RotaWork> &work) {
    sweep();
    std::lock_guard<std::mutex> lock(flying_mutex_);
    flying_.push_back(work);
}

void Group::sweep() {
    std::vector<c10::intrusive_ptr<RotaWork>> over; // dropped after the lock is
    std::lock_guard<std::mutex> lock(flying_mutex_);
    auto retired = std::stable_partition(flying_.begin(), flying_.end(),
                                         [](const auto &work) { return !work->retired(); });
    std::move(retired, flying_.end(), std::back_inserter(over));
    flying_.erase(retired, flying_.end());
}

void Group::finish_blocking(RotaWork &work, rota_status status) {
    std::exception_ptr error = work.outcome(status);
    work.end(error);
    if (error)
        std::rethrow_exception(error);
}

// The library refused: it will not call back.
void Group::fail_start(Group &group, RotaWork &work, rota_status status) {
    std::exception_ptr error = work.outcome(status);
    work.end(error);
    group.sweep();
    std::rethrow_exception(error);
}

// -- coalescing -----------------------------------------------------------------------------------

Group::Coalescing *Group::coalescing_of_caller() {
    if (!coalesces_.load(std::memory_order_acquire))
        return nullptr;
    return coalescing_->owner == std::this_thread::get_id() ? coalescing_.get() : nullptr;
}

void Group::begin_coalescing() {
    if (coalescing_of_caller() != nullptr)
        abandon_coalescing(); // an exception left the block that it belonged to
    TORCH_CHECK(!coalesces_.load(), "rota: another thread coalesces on group ", place_.group);
    auto begun = std::make_unique<Coalescing>();
    begun->owner = std::this_thread::get_id();
    check(rota_group_begin(&begun->group), "begin a group");
    coalescing_ = std::move(begun);
    coalesces_.store(true, std::memory_order_release);
}

void Group::abandon_coalescing() {
    coalesces_.store(false, std::memory_order_release);
    std::unique_ptr<Coalescing> left = std::move(coalescing_);
    auto comm = communicator();
    (void)rota_group_free(left->group);
    if (left->work)
        free_operators(left->work->recorded, comm->get());
}

// All operations of the block share one work, which is made when it ends; until then they get one
// that keeps their buffers.
c10::intrusive_ptr<RotaWork> Group::record(Coalescing &into, Operation operation) {
    if (!into.work) {
        Operation whole;
        whole.type = c10d::OpType::COALESCED;
        whole.name = "coalesced operations";
        into.work = c10::make_intrusive<RotaWork>(shared_from_this(), whole, sequence());
        into.work->gathering = true;
    }
    Operation &whole = into.work->operation;
    whole.timeout = std::max(whole.timeout, operation.timeout);
    std::move(operation.kept.begin(), operation.kept.end(), std::back_inserter(whole.kept));
    std::move(operation.outputs.begin(), operation.outputs.end(),
              std::back_inserter(whole.outputs));
    std::move(operation.unpack.begin(), operation.unpack.end(), std::back_inserter(whole.unpack));
    return into.work;
}

c10::intrusive_ptr<RotaWork> Group::end_coalescing(const Operation &empty) {
    TORCH_CHECK(coalescing_of_caller() != nullptr, "rota: group ", place_.group,
                " is not coalescing in this thread");
    coalesces_.store(false, std::memory_order_release);
    std::unique_ptr<Coalescing> ended = std::move(coalescing_);
    if (!ended->work) {
        (void)rota_group_end(ended->group, nullptr);
        auto work = c10::make_intrusive<RotaWork>(shared_from_this(), empty, sequence());
        work->end(nullptr);
        return work;
    }
    auto work = ended->work;
    auto comm = communicator();
    rota_call options = ROTA_CALL_INIT;
    options.request = &work->request;
    options.done = RotaWork::done;
    options.done_arg = work.get();
    sequence_.fetch_add(1);
    std::lock_guard<std::mutex> lock(start_mutex_);
    work->gathering = false;
    take_off(work);
    rota_status status = rota_group_end(ended->group, &options);
    free_operators(work->recorded, comm->get());
    if (status != ROTA_OK)
        fail_start(*this, *work, status);
    return work;
}

// -- ends -----------------------------------------------------------------------------------------

void Group::abort() {
    std::shared_ptr<Communicator> comm;
    {
        std::lock_guard<std::mutex> lock(comm_mutex_);
        comm = comm_;
    }
    if (comm)
        (void)rota_comm_abort(comm->get());
}

static bool is_message(c10d::OpType type) {
    return type == c10d::OpType::SEND || type == c10d::OpType::RECV ||
           type == c10d::OpType::RECVANYSOURCE;
}

std::vector<c10::intrusive_ptr<RotaWork>> Group::flying() {
    sweep();
    std::lock_guard<std::mutex> lock(flying_mutex_);
    return flying_;
}

void Group::close() {
    for (const auto &work : flying()) // until their own deadlines
        if (!is_message(work->operation.type) && work->request != nullptr)
            (void)rota_request_wait(work->request, 0);
    bool busy = !flying().empty();
    std::shared_ptr<Communicator> comm;
    {
        std::lock_guard<std::mutex> lock(comm_mutex_);
        comm = std::move(comm_);
        comm_ = nullptr;
    }
    // Memory of tensors that are still there keeps it. Without need nobody is told of an abort: the
    // others may still be in the last operation.
    if (comm && comm.use_count() > 1 && busy)
        (void)rota_comm_abort(comm->get());
    comm.reset(); // ends what is under way
    std::vector<std::shared_ptr<Lane>> lanes;
    {
        std::lock_guard<std::mutex> lock(lanes_mutex_);
        lanes = lanes_;
    }
    for (const auto &lane : lanes)
        lane->settle(kSettle);
    let_go();
}

// What a thread of the library's may still be calling back for is kept for good instead.
void Group::let_go() {
    const auto limit = std::chrono::steady_clock::now() + kSettle;
    for (;;) {
        sweep();
        std::lock_guard<std::mutex> lock(flying_mutex_);
        if (flying_.empty())
            return;
        if (std::chrono::steady_clock::now() > limit) {
            new std::vector<c10::intrusive_ptr<RotaWork>>(std::move(flying_));
            flying_.clear();
            return;
        }
        std::this_thread::yield();
    }
}

} // namespace rota_torch
