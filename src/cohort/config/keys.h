// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace cohort {

enum class KeyKind { kBool, kInt, kFloat, kString, kChoice };

// bool, int64_t, double, or string for both kinds of text.
using KeyValue = std::variant<bool, int64_t, double, std::string>;

struct IntRange {
  int64_t lowest = std::numeric_limits<int64_t>::min();
  int64_t highest = std::numeric_limits<int64_t>::max();
};

struct FloatRange {
  double lowest = -std::numeric_limits<double>::infinity();
  double highest = std::numeric_limits<double>::infinity();
  bool below_highest = false;  // the upper end itself is not legal
};

// One setting: its name with dots ("optim.lr"), type, default and legal values.
struct Key {
  std::string name;
  KeyKind kind;
  KeyValue initial;
  std::string help;  // one line
  IntRange ints = {};
  FloatRange floats = {};
  std::vector<std::string> choices = {};

  // "a whole number >= 1", "sgd, adam or adamw".
  std::string legal() const;
  // Reads a user's text. `origin` says where it was found: "run.yaml:3:7", "--set".
  // ConfigError with origin, what was given and what is legal.
  KeyValue parse(std::string_view text, std::string_view origin) const;
};

// The value as one would type it.
std::string to_text(const KeyValue& value);

// The keys that a run knows, in the order in which they were added.
class Keys {
 public:
  Keys& add_bool(std::string name, bool initial, std::string help);
  Keys& add_int(std::string name, int64_t initial, std::string help,
                IntRange range = {});
  Keys& add_float(std::string name, double initial, std::string help,
                  FloatRange range = {});
  Keys& add_string(std::string name, std::string initial, std::string help);
  Keys& add_choice(std::string name, std::string initial,
                   std::vector<std::string> choices, std::string help);

  const std::vector<Key>& all() const { return keys_; }
  // Position of a key in all(), or -1.
  int find(std::string_view name) const;
  // The key for a user's text; ConfigError with the nearest legal one.
  int find(std::string_view name, std::string_view origin) const;

  // Those that `others` does not have.
  Keys without(const Keys& others) const;

  // A table for people: name, default, what is legal, what it does.
  std::string describe() const;

 private:
  Keys& add(Key key);
  std::vector<Key> keys_;
};

}  // namespace cohort
