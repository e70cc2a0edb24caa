// What the flight recorder has of this process.
#include "recorded.h"

#include "failure.h"

#include <rota/rota.h>
#include <unistd.h>

namespace rota_torch {

namespace py = pybind11;

namespace {

struct Recording {
    rota_recording *opened = nullptr;
    explicit Recording(const std::string &folder) {
        check(rota_recording_open(folder.c_str(), &opened), "open a recording");
    }
    ~Recording() {
        rota_recording_close(opened);
    }
    Recording(const Recording &) = delete;
    Recording &operator=(const Recording &) = delete;
};

py::object text_or_none(const char *text) {
    return text != nullptr && text[0] != '\0' ? py::object(py::str(text)) : py::object(py::none());
}

py::dict as_dict(const rota_recorded_call &call, bool messages) {
    py::dict made;
    made["sequence"] = call.sequence;
    made["kind"] = text_or_none(rota_kind_name(call.kind));
    made["dtype"] = text_or_none(rota_dtype_name(call.dtype));
    made["op"] = text_or_none(rota_op_name(call.op));
    made["count"] = call.count;
    made[messages ? "peer" : "root"] = call.root;
    if (messages)
        made["tag"] = call.tag;
    made["running"] = call.running;
    made["status"] = rota_status_name(call.status);
    made["algorithm"] = text_or_none(call.algorithm);
    return made;
}

py::dict page_at(const rota_recording *recording, int rank, int index) {
    rota_recorded_page page = ROTA_RECORDED_PAGE_INIT;
    check(rota_recording_page(recording, rank, index, &page), "read a recording");
    py::list calls;
    for (int i = 0; i < page.call_count; i++) {
        rota_recorded_call call = ROTA_RECORDED_CALL_INIT;
        check(rota_recording_call(recording, rank, index, i, &call), "read a recording");
        calls.append(as_dict(call, page.messages));
    }
    py::dict made;
    made["group"] = page.name;
    made["id"] = py::make_tuple(page.id, page.generation);
    made["rank"] = page.member;
    made["ranks"] = page.nranks;
    made["messages"] = page.messages;
    made["calls"] = page.calls;
    made["last"] = calls;
    return made;
}

} // namespace

py::list recorded(const std::string &folder) {
    Recording recording(folder);
    rota_recording_info info = ROTA_RECORDING_INFO_INIT;
    check(rota_recording_describe(recording.opened, &info), "read a recording");
    py::list pages;
    for (int r = 0; r < info.rank_count; r++) {
        rota_recorded_rank rank = ROTA_RECORDED_RANK_INIT;
        check(rota_recording_rank(recording.opened, r, &rank), "read a recording");
        for (int i = 0; rank.pid == getpid() && i < rank.page_count; i++)
            pages.append(page_at(recording.opened, r, i));
    }
    return pages;
}

} // namespace rota_torch
