// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>

// What goes wrong, and who can mend it. Every exception that leaves the library by
// design is an Error; anything else that does is a bug of ours or of a library below.
//
//   try {
//     auto session = cohort::Session::from_env();
//     ...
//   } catch (const cohort::Error& error) {
//     std::cerr << error.what() << "\n";  // one line
//     return 4;
//   }
//
// They are thrown in the thread that called; one that a thread of the library's own
// comes upon is thrown by the call that needs its work. What to do with them:
//
//   ConfigError, DataError    end with the line: the same call fails again
//   CommError                 let go of the group and all that uses it, and make new
//                             ones; within ElasticRun::train() do not catch it
//   CheckpointError           of a save: training may go on, the old ones are there;
//                             of a resume: the state is good for nothing
//   BugError                  end, and tell us: what the objects hold is unknown
//
// run_program() catches all of them; ElasticRun::train() catches CommError.

namespace [[gnu::visibility("default")]] cohort {

// By who can mend it. The program has an exit code for each (docs/commands.md).
enum class ErrorKind {
  kConfig,      // the user: a flag, a key, a layout, an environment
  kData,        // bad or missing bytes of a data set
  kComm,        // a peer is lost, late, or calls something else
  kCheckpoint,  // a checkpoint that cannot be written, read or trusted
  kBug,         // we: an invariant of the library does not hold
};

// The message is one line: "[room] what happened: what was given; what is legal". It
// may quote what a file or a peer has said, so line ends and other control characters
// in it become '?', and it is cut where no one would read on.
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

}  // namespace cohort
