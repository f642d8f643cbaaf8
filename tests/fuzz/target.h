// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "cohort/core/error.h"

// A reader of hostile bytes under test. Each file of this folder has one:
//
//   COHORT_FUZZ_TARGET(yaml) { allow<ConfigError>([&] { read_yaml(bytes, "f"); }); }
//
// With clang it is a libFuzzer program of its own (tools/fuzz); with any compiler
// corpus_test.cpp runs it over corpus/yaml/. It may end with nothing but the errors
// that it allows, in one line; whatever else leaves it, and each demand() that does not
// hold, is a finding.
#ifdef COHORT_LIBFUZZER
#define COHORT_FUZZ_TARGET(name)                                            \
  namespace cohort::fuzz {                                                  \
  static void fuzz_##name(std::string_view bytes);                          \
  }                                                                         \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) { \
    cohort::fuzz::fuzz_##name({reinterpret_cast<const char*>(data), size}); \
    return 0;                                                               \
  }                                                                         \
  static void cohort::fuzz::fuzz_##name([[maybe_unused]] std::string_view bytes)
#else
#define COHORT_FUZZ_TARGET(name)            \
  namespace cohort::fuzz {                  \
  void fuzz_##name(std::string_view bytes); \
  }                                         \
  void cohort::fuzz::fuzz_##name([[maybe_unused]] std::string_view bytes)
#endif

namespace cohort::fuzz {

struct Finding : std::logic_error {
  using std::logic_error::logic_error;
};

inline void demand(bool holds, const std::string& what) {
  if (!holds) throw Finding(what);
}

// Calls `body`; an error of these kinds is one of the ways to end. False if there was
// one.
template <typename... Kinds, typename Body>
bool allow(const Body& body) {
  try {
    body();
    return true;
  } catch (const Error& error) {
    const std::string message = error.what();
    demand((... || (dynamic_cast<const Kinds*>(&error) != nullptr)),
           "an error of another kind: " + message);
    demand(!message.empty() && message.size() < 5000 &&
               message.find('\n') == std::string::npos,
           "an error that is not one line: " + message);
    return false;
  }
}

// Some bytes of the input as a number, to choose what to do; taken from its end, so
// that the rest keeps the form of a file.
inline uint8_t take_choice(std::string_view& bytes) {
  if (bytes.empty()) return 0;
  const auto choice = static_cast<uint8_t>(bytes.back());
  bytes.remove_suffix(1);
  return choice;
}

}  // namespace cohort::fuzz
