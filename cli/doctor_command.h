// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

namespace cohort::cli {

// A backend as the library's table knows it; `reason` says why it is not available.
struct DoctorBackend {
  std::string name;
  bool available = false;
  std::string reason = {};
  std::string version = {};  // its library and the version of it: "NCCL 2.28.9"
  // Uses it, and says what worked, or throws. Run in a child, which may take this long;
  // empty: there is nothing to try it with.
  std::function<std::string()> trial = {};
  std::chrono::milliseconds patience{30'000};
};

struct DoctorOptions {
  std::string version = {};
  std::vector<DoctorBackend> backends = {};
  std::string data_dir = "/usr/share/datasets/fashion-mnist";
  bool json = false;  // one object per line instead of "[ok] text"
};

std::vector<DoctorBackend> known_backends();

// Prints what is here, what is missing and what that costs, one line per check; at the
// end how to install what is missing. Returns 0, or 1 if something that every run
// needs is broken. Takes a few seconds, or the patience of a backend that hangs. Forks:
// call it before any thread or tensor kernel is started.
int run_doctor(const DoctorOptions& options, std::ostream& out);

}  // namespace cohort::cli
