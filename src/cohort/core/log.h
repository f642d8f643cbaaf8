// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace cohort {

enum class Level { kDebug, kInfo, kWarning, kError };

// "debug", "info", "warning" or "error".
std::string_view level_name(Level level);

// Where the library's remarks go. The library itself never prints: cli/ makes a
// sink and passes it on. A remark is one line, without its end.
//
// Thread safety: write() may be called from any thread. It must not throw.
class LogSink {
 public:
  virtual ~LogSink() = default;
  LogSink(const LogSink&) = delete;
  LogSink& operator=(const LogSink&) = delete;

  virtual void write(Level level, std::string_view line) = 0;

  void debug(std::string_view line) { write(Level::kDebug, line); }
  void info(std::string_view line) { write(Level::kInfo, line); }
  void warning(std::string_view line) { write(Level::kWarning, line); }
  void error(std::string_view line) { write(Level::kError, line); }

 protected:
  LogSink() = default;
};

// Drops everything.
class NullSink : public LogSink {
 public:
  void write(Level, std::string_view) override {}
};

// Passes on what is at least as grave as `lowest`.
class FilterSink : public LogSink {
 public:
  FilterSink(LogSink& next, Level lowest) : next_(next), lowest_(lowest) {}
  void write(Level level, std::string_view line) override;

 private:
  LogSink& next_;
  Level lowest_;
};

}  // namespace cohort
