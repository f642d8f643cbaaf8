// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace cohort {

// What can go wrong, by who can mend it. cli/ maps each kind to an exit code.
enum class ErrorKind {
  kConfig,      // the user can fix it: a flag, a key, a layout, an environment
  kData,        // bad or missing bytes of a data set
  kComm,        // a peer is lost, late, or calls something else
  kCheckpoint,  // a checkpoint that cannot be written, read or trusted
  kBug,         // a failed COHORT_CHECK: ours
};

// Base of every exception that leaves the library by design. The message is one
// line: "[room] what happened: what was given; what is legal". It may quote what a file
// or a peer has said, so line ends and other control characters in it become '?', and
// it is cut where no one would read on.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message);
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

class ConfigError : public Error {
 public:
  explicit ConfigError(const std::string& m) : Error(ErrorKind::kConfig, m) {}
};

class DataError : public Error {
 public:
  explicit DataError(const std::string& m) : Error(ErrorKind::kData, m) {}
};

// After a CommError the group it came from is dead: build a new one.
class CommError : public Error {
 public:
  explicit CommError(const std::string& m) : Error(ErrorKind::kComm, m) {}
};

class CheckpointError : public Error {
 public:
  explicit CheckpointError(const std::string& m) : Error(ErrorKind::kCheckpoint, m) {}
};

class BugError : public Error {
 public:
  explicit BugError(const std::string& m) : Error(ErrorKind::kBug, m) {}
};

// Joins its arguments as a stream would: text("rank ", 3, " of ", 4).
template <typename... Parts>
std::string text(Parts&&... parts) {
  std::ostringstream out;
  ((out << std::forward<Parts>(parts)), ...);
  return out.str();
}

// Throws the class of `kind`.
[[noreturn]] void throw_error(ErrorKind kind, const std::string& message);

[[noreturn]] void fail_check(const char* condition, const char* file, int line,
                             const std::string& message);

}  // namespace cohort

// An invariant whose failure would be our bug. Never for user input.
#define COHORT_CHECK(condition, ...)                       \
  do {                                                     \
    if (!(condition)) [[unlikely]]                         \
      ::cohort::fail_check(#condition, __FILE__, __LINE__, \
                           ::cohort::text(__VA_ARGS__));   \
  } while (false)
