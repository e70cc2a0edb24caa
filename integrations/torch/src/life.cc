// How a backend begins, is split, and ends.
#include <Python.h>

#include "backend.h"

#include "store.h"

#include <algorithm>

namespace rota_torch {

static Place place_of(const RotaOptions &options, int rank, int size) {
    Place place;
    place.backend = options.backend;
    place.group = options.group_name.empty() ? "world" : options.group_name;
    place.rank = rank;
    place.nranks = size;
    return place;
}

RotaBackend::RotaBackend(rota_comm *comm, int rank, int size,
                         c10::intrusive_ptr<RotaOptions> options)
    : Backend(rank, size), options_(std::move(options)),
      group_(std::make_shared<Group>(comm, place_of(*options_, rank, size))),
      timeout_ms_(options_->timeout.count()) {
    init();
}

// Closing waits for call-backs of futures, which may need the interpreter.
RotaBackend::~RotaBackend() {
    bool holds = Py_IsInitialized() != 0 && PyGILState_Check() != 0;
    PyThreadState *state = holds ? PyEval_SaveThread() : nullptr;
    if (!group_->flying().empty())
        group_->abort(); // who wanted its operations to end in peace has called shutdown
    group_->close();
    if (state != nullptr)
        PyEval_RestoreThread(state);
}

// Groups are told apart by torch's names, which are the same on all of their ranks.
static int tag_of(const std::string &name) {
    uint32_t hash = 2166136261u; // FNV-1a
    for (char c : name)
        hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
    return static_cast<int>(hash & INT32_MAX);
}

static rota_comm *create_within(rota_comm *world, const std::vector<uint64_t> &members,
                                const std::string &name) {
    std::vector<int> ranks(members.begin(), members.end());
    rota_comm *comm = nullptr;
    check(rota_comm_create_group(world, ranks.data(), static_cast<int>(ranks.size()), tag_of(name),
                                 name.c_str(), &comm, nullptr),
          "new group");
    return comm;
}

c10::intrusive_ptr<c10d::Backend>
RotaBackend::create(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
                    const c10::intrusive_ptr<c10d::Backend> &world,
                    c10::intrusive_ptr<RotaOptions> options) {
    if (options->timeout.count() <= 0)
        options->timeout = kBackendDefaultTimeout;
    std::string name = options->group_name.empty() ? "world" : options->group_name;
    const auto &members = options->global_ranks_in_group;
    auto *whole = dynamic_cast<RotaBackend *>(world.get());
    rota_comm *comm = nullptr;
    if (whole != nullptr && members.size() == static_cast<size_t>(size))
        comm = create_within(whole->group_->communicator()->get(), members, name);
    else
        comm = join(store, rank, size, name, options->timeout);
    check(rota_comm_set_timeout(comm, options->timeout.count()), "set time-out");
    return c10::make_intrusive<RotaBackend>(comm, rank, size, std::move(options));
}

void RotaBackend::setTimeout(std::chrono::milliseconds timeout) {
    TORCH_CHECK(timeout.count() > 0, "rota: a time-out must be positive");
    options_->timeout = timeout;
    timeout_ms_.store(timeout.count());
}

c10d::ErrorType RotaBackend::getError() {
    switch (group_->state()) {
    case ROTA_OK:
        return c10d::ErrorType::SUCCESS;
    case ROTA_ERR_TIMEOUT:
        return c10d::ErrorType::TIMEOUT;
    case ROTA_ERR_PEER:
    case ROTA_ERR_ISOLATED:
        return c10d::ErrorType::REMOTE_ERROR;
    default:
        return c10d::ErrorType::COMM_ERROR;
    }
}

Operation RotaBackend::operation(c10d::OpType type, const char *name, const char *title,
                                 std::chrono::milliseconds timeout, bool async) const {
    Operation made;
    made.type = type;
    made.name = name;
    made.title = title;
    made.timeout = timeout.count() > 0 ? timeout : std::chrono::milliseconds(timeout_ms_.load());
    made.async = async;
    return made;
}

void RotaBackend::check_root(int64_t root, const char *name) const {
    TORCH_CHECK_VALUE(root >= 0 && root < getSize(), "rota ", name, ": invalid root rank: ", root);
}

// Every rank of this group calls; those that are not in `ranks` get none.
c10::intrusive_ptr<c10d::Backend>
RotaBackend::split(const c10::intrusive_ptr<c10d::Store> & /*store*/, const std::vector<int> &ranks,
                   const c10::intrusive_ptr<c10d::Backend::Options> &options) {
    auto comm = group_->communicator();
    auto own = std::find(ranks.begin(), ranks.end(), getRank());
    bool member = own != ranks.end();
    int color = member ? *std::min_element(ranks.begin(), ranks.end()) : ROTA_COLOR_UNDEFINED;
    int key = member ? static_cast<int>(own - ranks.begin()) : 0;
    auto child_options = c10::make_intrusive<RotaOptions>(
        options_->backend, options ? options->timeout : options_->timeout);
    if (options) {
        child_options->group_name = options->group_name;
        child_options->group_desc = options->group_desc;
        child_options->global_ranks_in_group = options->global_ranks_in_group;
    }
    if (child_options->timeout.count() <= 0)
        child_options->timeout = options_->timeout;
    rota_call call = ROTA_CALL_INIT;
    call.timeout_ms = timeout_ms_.load();
    rota_comm *child = nullptr;
    const std::string &name = child_options->group_name;
    check(rota_comm_split(comm->get(), color, key, name.empty() ? nullptr : name.c_str(), &child,
                          &call),
          "split");
    if (!member)
        return nullptr;
    check(rota_comm_set_timeout(child, child_options->timeout.count()), "set time-out");
    return c10::make_intrusive<RotaBackend>(child, key, static_cast<int>(ranks.size()),
                                            child_options);
}

void RotaBackend::abort() {
    group_->abort();
}

void RotaBackend::shutdown() {
    group_->close();
}

void RotaBackend::startCoalescing() {
    group_->begin_coalescing();
}

WorkPointer RotaBackend::endCoalescing() {
    return group_->end_coalescing(operation(c10d::OpType::COALESCED, "coalesced operations", "",
                                            std::chrono::milliseconds(-1), true));
}

// -- memory that peers can read -------------------------------------------------------------------

bool RotaBackend::supportsTensorAlloc(c10::DeviceIndex) {
    return true;
}

at::Tensor RotaBackend::allocateTensor(long size, at::TensorOptions options) {
    TORCH_CHECK(options.device().is_cpu() && size >= 0, "rota: allocates memory of the CPU");
    auto comm = group_->communicator();
    size_t bytes = static_cast<size_t>(size) * options.dtype().itemsize();
    if (bytes == 0)
        return at::empty({size}, options);
    // The communicator stays until the tensor goes.
    return at::from_blob(
        comm->allocate(bytes), {size},
        [comm, bytes](void *block) { comm->give_back(block, bytes); }, options);
}

} // namespace rota_torch
