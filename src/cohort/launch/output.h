// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "cohort/launch/process_tree.h"

namespace cohort::process {

// One of the agent's own streams. Writing never blocks: what the reader does not
// take yet is kept, and a reader that has gone away is no error.
class AgentStream {
 public:
  explicit AgentStream(int fd);

  // Two writers never share a line: if another one left its line open, a newline
  // comes first. `writer` is only compared.
  void write(std::string_view data, const void* writer);

  // Hands on what the reader takes now.
  void flush();
  bool empty() const { return queue_.size() == sent_; }
  // Full streams are not fed: ranks then wait for the reader, as they would without
  // us.
  bool full() const { return queue_.size() - sent_ > (64u << 20); }
  int fd() const { return own_ ? own_.get() : fd_; }
  // Why it takes no more (errno), unless its reader has left; 0: it does.
  int error() const { return error_; }

 private:
  ssize_t write_some(const char* data, size_t size);

  int fd_;
  // The same pipe or terminal opened once more, non-blocking: the flag on fd_ itself
  // would be shared with what gave it to us.
  UniqueFd own_;
  bool socket_ = false;
  bool file_ = false;
  bool closed_ = false;
  int error_ = 0;
  std::string queue_;
  size_t sent_ = 0;
  const void* last_writer_ = nullptr;
  bool line_open_ = false;
};

enum class Forward {
  kAsItComes,     // every byte at once: a progress bar moves
  kWholeLines,    // lines as they are
  kPrefixedLines  // lines with the rank in front
};

// One output pipe of one rank: to a stream, and to a log file if there is one.
class RankStream {
 public:
  RankStream(UniqueFd pipe, AgentStream& stream, Forward forward, std::string prefix,
             int log_fd);

  // From the next line on.
  void show_as(Forward forward, std::string prefix, int log_fd);

  int fd() const { return pipe_.get(); }
  bool open() const { return static_cast<bool>(pipe_); }
  bool ready_for_more() const { return open() && !stream_.full(); }

  // Reads what is there; closes itself at the end of the stream.
  void pump();
  // Gives up on the rest: someone else holds the pipe open.
  void close();

  // The last line that has something in it, but for the stacks of LibTorch.
  std::string last_line() const;

 private:
  void take(std::string_view data);
  void remember(std::string_view data);
  void flush_partial();
  void forward_lines(std::string_view lines);

  UniqueFd pipe_;
  AgentStream& stream_;
  Forward forward_;
  std::string prefix_;
  int log_fd_;
  std::string partial_;  // a line not forwarded yet
  std::string current_;  // the line being written, for last_line()
  std::string last_;
};

// What a terminal would show of a line: the part behind the last carriage return.
std::string_view visible(std::string_view line);

}  // namespace cohort::process
