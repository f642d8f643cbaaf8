// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace cohort::test {

// A program under test: its streams are collected, it is watched against a deadline,
// and every process it starts carries a mark in its environment, so that what it
// leaves behind can be found.
class Program {
 public:
  // On a terminal both streams are out().
  enum class Streams { kPipes, kTerminal };
  explicit Program(const std::vector<std::string>& args,
                   const std::vector<std::string>& variables = {},
                   Streams streams = Streams::kPipes);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int signal) const;
  // Types on its terminal; closes its terminal.
  void type(const std::string& keys);
  void hang_up();

  // Reads on until the condition holds; false when it ended or the deadline passed.
  bool wait_until(const std::function<bool()>& condition);
  bool wait_for_output(const std::string& part);
  // To its end: the exit code, 128 + signal, or -1 when the deadline passed.
  int wait();

  const std::string& out() const { return out_; }
  const std::string& err() const { return err_; }

  // Living processes with this program's mark; zombies are dead.
  std::set<pid_t> processes() const;
  // True as soon as none is left; false after twenty seconds.
  bool all_gone() const;

 private:
  bool read_some(int timeout_ms);

  pid_t pid_ = -1;
  int out_fd_ = -1;
  int err_fd_ = -1;
  std::string mark_;
  std::string out_, err_;
  std::chrono::steady_clock::time_point deadline_;
  bool ended_ = false;
  int code_ = -1;
};

// The test's own build of `cohort launch`.
std::string launch_tool();

using Args = std::vector<std::string>;
// launch_tool FLAGS -- sh -c SCRIPT
Args shell(const Args& flags, const std::string& script);
// launch_tool FLAGS --body ACT
Args body(const Args& flags, const Args& act);

// How often `part` stands in `text`.
int count(const std::string& text, const std::string& part);

}  // namespace cohort::test
