// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/error_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <array>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "cohort/launch/process_tree.h"

namespace cohort {
namespace {

using nlohmann::json;
constexpr int64_t kSecond = 1'000'000'000;

// Bytes that are not UTF-8 must not make the report of an error fail.
std::string dump(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

// A number, or a number in a string: torchelastic has written both.
int64_t number_of(const json& object, const char* key) {
  if (!object.is_object() || !object.contains(key)) return 0;
  const json& value = object[key];
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_string()) return std::atoll(value.get<std::string>().c_str());
  return 0;
}

// Any program may have written it, so a carriage return ends it too.
std::string line_shown(const std::string& text) {
  return text.substr(0, text.find_first_of("\r\n"));
}

}  // namespace

void write_error_file(const std::string& message) noexcept try {
  const char* path = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (!path || !*path) return;
  UniqueFd fd(::open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  struct stat info {};
  if (!fd || ::fstat(fd.get(), &info) != 0 || info.st_size > 0) return;

  const int64_t now = process::wall_ns();
  const json extra = {{"py_callstack", message},
                      {"timestamp", std::to_string(now / kSecond)},
                      {"timestamp_ns", std::to_string(now)}};
  const std::string text =
      dump({{"message", {{"message", message}, {"extraInfo", extra}}}});
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(fd.get(), text.data() + done, text.size() - done);
    if (n < 0 && errno != EINTR) return;
    if (n > 0) done += n;
  }
} catch (...) {
}

std::optional<ErrorReport> parse_error_text(const std::string& text) {
  const json file = json::parse(text, nullptr, false);
  if (!file.is_object() || !file.contains("message")) return std::nullopt;
  const json& message = file["message"];
  ErrorReport report;
  // Not a copy: copying recurses as deep as the file nests.
  const json* times = &file;
  if (message.is_string()) {
    report.message = line_shown(message.get<std::string>());
  } else if (message.is_object() && message.contains("message") &&
             message["message"].is_string()) {
    report.message = line_shown(message["message"].get<std::string>());
    const auto extra = message.find("extraInfo");
    times = extra == message.end() ? &message : &*extra;
  } else {
    return std::nullopt;
  }
  if (const int64_t ns = number_of(*times, "timestamp_ns"); ns > 0) {
    report.earliest_ns = report.latest_ns = ns;
  } else if (const int64_t s = number_of(*times, "timestamp");
             s > 0 && s < INT64_MAX / kSecond - 1) {
    report.earliest_ns = s * kSecond;
    report.latest_ns = report.earliest_ns + kSecond - 1;
  }
  return report;
}

std::optional<ErrorReport> read_error_file(int fd) {
  std::string text;
  std::array<char, 4096> buffer;
  ssize_t n;
  constexpr size_t kLimit = 16 << 20;
  while (text.size() < kLimit &&
         (n = ::pread(fd, buffer.data(), buffer.size(), text.size())) > 0) {
    text.append(buffer.data(), n);
  }
  if (text.empty()) return std::nullopt;
  return parse_error_text(text);
}

std::string fault_event(int rank, const std::string& cause) {
  nlohmann::ordered_json event = {{"event", "fault"}, {"rank", rank}, {"cause", cause}};
  return event.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace cohort
