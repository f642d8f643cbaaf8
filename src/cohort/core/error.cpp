// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/error.h"

#include <algorithm>
#include <cstring>

namespace cohort {
namespace {

constexpr size_t kLongestMessage = 4000;

std::string one_line(const std::string& message) {
  const bool whole = message.size() <= kLongestMessage;
  std::string line = message.substr(0, kLongestMessage);
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; },
      '?');
  return whole ? line : line + " ...";
}

}  // namespace

Error::Error(ErrorKind kind, const std::string& message)
    : std::runtime_error(one_line(message)), kind_(kind) {}

void throw_error(ErrorKind kind, const std::string& message) {
  switch (kind) {
    case ErrorKind::kConfig:
      throw ConfigError(message);
    case ErrorKind::kData:
      throw DataError(message);
    case ErrorKind::kComm:
      throw CommError(message);
    case ErrorKind::kCheckpoint:
      throw CheckpointError(message);
    case ErrorKind::kBug:
      break;
  }
  throw BugError(message);
}

void fail_check(const char* condition, const char* file, int line,
                const std::string& message) {
  const char* name = std::strrchr(file, '/');
  throw BugError(text("[bug] ", name ? name + 1 : file, ":", line, ": ", condition,
                      message.empty() ? "" : ": ", message));
}

}  // namespace cohort
