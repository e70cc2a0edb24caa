// The barrier that tells who is missing.
//
// Everybody sends a word to rank 0, which waits until the time is over and answers: who was
// missing. A receive that runs into its deadline ends the communicator, and a barrier that was
// missed should not: so receives are cancelled. Each barrier has a tag of its own, so that a late
// word is not taken for one of the next barrier: the number of collectives before it, which all
// ranks know, and the number of such barriers since; so a rank that has missed one is in step again
// after the next collective.
#include "backend.h"

#include <algorithm>

namespace rota_torch {

namespace {

constexpr int kFirstTag = 0x7fff0000; // below are the user's
constexpr int kTags = 0x10000;
constexpr int kTagsPerSequence = 16;
constexpr int64_t kForever_ms = 1000ll * 3600 * 24 * 365;
constexpr int kNamed = 30; // of the missing ranks, in the answer

struct Answer {
    int32_t missing = 0;
    int32_t ranks[kNamed] = {0};
};

using Clock = std::chrono::steady_clock;

// A message with memory of its own. A send that has not ended is left to the library.
template <class Payload> struct Message {
    Payload *payload = new Payload;
    rota_request *request = nullptr;
    bool over = false;

    ~Message() {
        if (!over && request != nullptr && rota_request_cancel(request) == ROTA_OK) {
            (void)rota_request_wait(request, 0); // one whose message is coming takes it
            over = true;
        }
        (void)rota_request_free(request);
        if (over || request == nullptr)
            delete payload;
    }
    rota_status post(bool sends, int peer, int tag, rota_comm *comm) {
        rota_call call = ROTA_CALL_INIT;
        call.request = &request;
        call.timeout_ms = kForever_ms;
        return sends ? rota_send(payload, sizeof(Payload), ROTA_UINT8, peer, tag, comm, &call)
                     : rota_recv(payload, sizeof(Payload), ROTA_UINT8, peer, tag, comm, nullptr,
                                 &call);
    }
    // Whether it has ended in time; `status` is then its own.
    bool ends_by(Clock::time_point deadline, rota_status *status) {
        auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
        if (left.count() > 0)
            (void)rota_request_wait(request, left.count());
        *status = rota_request_test(request, &over);
        return over;
    }
};

std::string list(const std::vector<int> &ranks, size_t most) {
    std::string text;
    for (size_t i = 0; i < ranks.size() && i < most; i++)
        text += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
    return ranks.size() > most ? text + ", ..." : text;
}

std::string why(rota_request *request) {
    rota_error record = ROTA_ERROR_INIT;
    bool known = request != nullptr && rota_request_error(request, &record) == ROTA_OK;
    return known && record.message[0] != '\0' ? std::string(": ") + record.message : "";
}

std::vector<int> collect(std::vector<Message<Answer>> &words, Clock::time_point deadline) {
    std::vector<int> missing;
    for (size_t r = 1; r < words.size(); r++) {
        rota_status status = ROTA_OK;
        if (!words[r].ends_by(deadline, &status) || status != ROTA_OK)
            missing.push_back(static_cast<int>(r));
    }
    return missing;
}

void answer(const std::vector<int> &missing, int nranks, int tag, rota_comm *comm,
            Clock::time_point deadline) {
    for (int r = 1; r < nranks; r++) {
        if (std::binary_search(missing.begin(), missing.end(), r))
            continue;
        Message<Answer> reply;
        reply.payload->missing = static_cast<int32_t>(missing.size());
        for (size_t i = 0; i < missing.size() && i < kNamed; i++)
            reply.payload->ranks[i] = missing[i];
        rota_status status = reply.post(true, r, tag, comm);
        if (status == ROTA_OK) // small: it is on its way, whether or not it ends here
            (void)reply.ends_by(deadline, &status);
    }
}

void as_first(rota_comm *comm, int nranks, int tag, std::chrono::milliseconds timeout, bool all) {
    auto deadline = Clock::now() + timeout;
    std::vector<Message<Answer>> words(static_cast<size_t>(nranks));
    for (int r = 1; r < nranks; r++)
        check(words[static_cast<size_t>(r)].post(false, r, tag, comm), "monitored_barrier");
    std::vector<int> missing = collect(words, deadline);
    TORCH_CHECK(timeout.count() > 0 || missing.empty(),
                "[Rank 0]: Rank 0 timed out in monitoredBarrier after 0 ms.");
    answer(missing, nranks, tag, comm, Clock::now() + std::chrono::milliseconds(500));
    if (missing.empty())
        return;
    std::string text = all && missing.size() > 1 ? "[Rank 0]: Ranks " + list(missing, 1000)
                                                 : "[Rank 0]: Rank " + std::to_string(missing[0]);
    text += " failed to pass monitoredBarrier in " + std::to_string(timeout.count()) + " ms";
    if (!all && missing.size() > 1)
        text += " (all that are missing: " + list(missing, 1000) + ")";
    TORCH_CHECK(false, text);
}

void as_other(rota_comm *comm, int rank, int tag, std::chrono::milliseconds timeout) {
    // Rank 0 may have begun later than this rank by as much as it waits.
    auto deadline = Clock::now() + 2 * timeout + std::chrono::milliseconds(500);
    Message<Answer> word, reply;
    rota_status status = word.post(true, 0, tag, comm);
    if (status == ROTA_OK)
        status = reply.post(false, 0, tag, comm);
    check(status, "monitored_barrier");
    bool heard = reply.ends_by(deadline, &status);
    (void)word.ends_by(Clock::now(), &status);
    std::string begin = c10::str("[Rank ", rank, "]: Rank ", rank,
                                 " successfully reached monitoredBarrier, but received errors "
                                 "while waiting for send/recv from rank 0");
    TORCH_CHECK(heard, begin, ": it has not answered within ", timeout.count(), " ms");
    rota_status outcome = rota_request_test(reply.request, &reply.over);
    TORCH_CHECK(outcome == ROTA_OK, begin, why(reply.request));
    if (reply.payload->missing == 0)
        return;
    const int32_t *ranks = reply.payload->ranks;
    int32_t named = std::min<int32_t>(reply.payload->missing, kNamed);
    TORCH_CHECK(false, begin, ": ranks ",
                list(std::vector<int>(ranks, ranks + std::max(named, 0)), kNamed),
                " have not reached it");
}

// `state` holds the tag of the last one.
int next_tag(std::atomic<int> &state, uint64_t sequence) {
    int base = static_cast<int>(sequence * kTagsPerSequence % kTags);
    int last = state.load(std::memory_order_relaxed);
    int next = last >= base && last < base + kTagsPerSequence - 1 ? last + 1 : base;
    state.store(next, std::memory_order_relaxed);
    return next;
}

} // namespace

void RotaBackend::monitoredBarrier(const c10d::BarrierOptions &opts, bool wait_all_ranks) {
    auto comm = group_->communicator();
    int tag = kFirstTag + next_tag(monitored_, group_->sequence());
    auto timeout = opts.timeout == c10d::kUnsetTimeout
                       ? std::chrono::milliseconds(timeout_ms_.load())
                       : std::max(opts.timeout, std::chrono::milliseconds(0));
    if (getSize() == 1)
        return;
    if (getRank() == 0)
        as_first(comm->get(), getSize(), tag, timeout, wait_all_ranks);
    else
        as_other(comm->get(), getRank(), tag, timeout);
}

} // namespace rota_torch
