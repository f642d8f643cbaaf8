// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/gloo/quiet.h"

#include <iostream>
#include <mutex>
#include <streambuf>
#include <string>

namespace cohort::gloo_backend {
namespace {

constexpr std::string_view kUnwanted = "[Gloo] ";

// Passes whole lines on, but for unwanted ones.
class LineFilter : public std::streambuf {
 public:
  explicit LineFilter(std::streambuf* target) : target_(target) {}

  std::streambuf* finish() {
    std::lock_guard lock(mutex_);
    pass();
    return target_;
  }

 protected:
  int_type overflow(int_type c) override {
    if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
    std::lock_guard lock(mutex_);
    put(traits_type::to_char_type(c));
    return c;
  }

  std::streamsize xsputn(const char* text, std::streamsize count) override {
    std::lock_guard lock(mutex_);
    for (std::streamsize i = 0; i < count; ++i) put(text[i]);
    return count;
  }

  int sync() override {
    std::lock_guard lock(mutex_);
    // What may still become an unwanted line waits for its end.
    if (!kUnwanted.starts_with(line_.substr(0, kUnwanted.size()))) pass();
    return target_->pubsync();
  }

 private:
  void put(char c) {
    line_ += c;
    if (c == '\n') pass();
  }

  void pass() {
    if (!line_.starts_with(kUnwanted)) {
      target_->sputn(line_.data(), static_cast<std::streamsize>(line_.size()));
    }
    line_.clear();
  }

  std::mutex mutex_;
  std::streambuf* target_;
  std::string line_;
};

// std::cout is one for the process, so its filter is too.
struct Shared {
  std::mutex mutex;
  int users = 0;
  LineFilter* filter = nullptr;
};

Shared& shared() {
  static Shared instance;
  return instance;
}

}  // namespace

QuietConnect::QuietConnect() {
  std::lock_guard lock(shared().mutex);
  if (shared().users++ > 0) return;
  shared().filter = new LineFilter(std::cout.rdbuf());
  std::cout.rdbuf(shared().filter);
}

QuietConnect::~QuietConnect() {
  std::lock_guard lock(shared().mutex);
  if (--shared().users > 0) return;
  std::cout.rdbuf(shared().filter->finish());
  delete shared().filter;
  shared().filter = nullptr;
}

}  // namespace cohort::gloo_backend
