// Failures as exceptions.
#include "failure.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

namespace rota_torch {

static std::exception_ptr exception(const std::string &text) {
    // Without a backtrace: where in this library it was noticed helps nobody.
    return std::make_exception_ptr(c10::DistBackendError(text, nullptr));
}

static std::string beginning(const Place &place, const char *operation) {
    return c10::str("rota: ", operation, " on group ", place.group, " (rank ", place.rank, " of ",
                    place.nranks, "): ");
}

std::exception_ptr failure(const Place &place, const char *operation, const rota_error &record,
                           std::chrono::milliseconds timeout) {
    std::string text = beginning(place, operation);
    if (record.status == ROTA_ERR_TIMEOUT)
        text += c10::str("Timed out waiting ", timeout.count(), "ms : ");
    text += record.message[0] != '\0' ? record.message : rota_status_name(record.status);
    return exception(text);
}

std::exception_ptr wait_timed_out(const Place &place, const char *operation,
                                  std::chrono::milliseconds timeout) {
    return exception(c10::str(beginning(place, operation), "Timed out waiting ", timeout.count(),
                              "ms for it; it goes on"));
}

void check(rota_status status, const char *operation) {
    if (status == ROTA_OK)
        return;
    rota_error record = ROTA_ERROR_INIT;
    if (rota_last_error(&record) != ROTA_OK || record.message[0] == '\0')
        throw c10::DistBackendError(c10::str("rota: ", operation, ": ", rota_status_name(status)),
                                    nullptr);
    throw c10::DistBackendError(c10::str("rota: ", operation, ": ", record.message), nullptr);
}

} // namespace rota_torch
