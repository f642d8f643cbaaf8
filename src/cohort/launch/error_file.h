// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace cohort {

// What a rank says about its own failure. The place is TORCHELASTIC_ERROR_FILE and
// the form is torchelastic's, so that torchrun shows our errors and we show those
// of a PyTorch script.
//
//   {"message": {"message": "...", "extraInfo": {"py_callstack": "...",
//                "timestamp": "1700000000"}}}

// Writes `message` where the launcher asked for it; nothing happens without a
// launcher. Never throws: it is called on the way down. The first error of a
// process stays: what follows is a consequence.
void write_error_file(const std::string& message) noexcept;

struct ErrorReport {
  std::string message;  // its first line
  // When it happened, wall clock: between these two. torchelastic writes whole
  // seconds, we write nanoseconds as well.
  int64_t earliest_ns = 0;
  int64_t latest_ns = INT64_MAX;
};

// Reads either of torchelastic's forms (message a string or an object) from an open
// file. Nothing if it is empty or is not such a file.
std::optional<ErrorReport> read_error_file(int fd);
std::optional<ErrorReport> parse_error_text(const std::string& text);

// One JSON line: {"event":"fault","rank":1,"cause":"..."}.
std::string fault_event(int rank, const std::string& cause);

}  // namespace cohort
