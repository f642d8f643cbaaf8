// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace cohort::cli {

// What a child process found out for its parent.
struct ChildAnswer {
  bool worked = false;  // it returned; else it threw, died, or took too long
  std::string text;     // what it returned, or how it failed
};

// Runs `body` in a child, with a deadline: for what may hang, crash, or not survive a
// fork, as CUDA does not. Call it before any thread or tensor kernel is started.
ChildAnswer ask_child(const std::function<std::string()>& body,
                      std::chrono::milliseconds deadline);

}  // namespace cohort::cli
