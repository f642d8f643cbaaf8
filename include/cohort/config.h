// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

// Settings of a run: a schema of keys, and their values in layers. A recipe takes the
// common keys, adds its own, and sets its defaults.
//
// All here are values: a copy shares nothing. References that const functions return
// are good until the object changes or goes. Thread safety: const functions may be
// called from several threads at once; what changes an object is one thread's alone.

namespace [[gnu::visibility("default")]] cohort {

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

// The keys that a run knows, in the order in which they were added. ConfigError for a
// name that is there already, and for a default that is not legal.
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

// The keys of every recipe, as docs and `cohort train --help` list them. A recipe
// adds its own and sets its own defaults as a layer.
Keys common_keys();

// The resolved settings of a run. Layers are applied in the order of the calls, a
// later one wins: defaults < recipe < YAML file < --set.
//   Config config(common_keys());
//   config.set("batch", "64", "recipe mlp");
//   config.load_file("run.yaml");
//   config.set_assignment("optim.lr=0.1");
//
// Failure: ConfigError with where the text came from, what was given, what is legal
// or the nearest legal key. A failed call changes nothing. To ask for a key that is not
// in the schema, or as another type, is a mistake of the program: BugError that names
// the key.
class Config {
 public:
  explicit Config(Keys keys);

  void set(std::string_view name, std::string_view value, std::string_view origin);
  void set_assignment(std::string_view assignment);  // "key=value", from --set
  void load_file(const std::filesystem::path& path);
  void load_text(std::string_view yaml, const std::string& name);

  bool get_bool(std::string_view name) const;
  int64_t get_int(std::string_view name) const;
  double get_float(std::string_view name) const;
  const std::string& get_string(std::string_view name) const;  // and choices

  // Where the value came from: "default", "run.yaml:3:7", "--set".
  const std::string& origin(std::string_view name) const;
  const Keys& keys() const { return keys_; }

  // {"seed":0,"optim.lr":0.05,...}: every key, in the order of the schema.
  std::string to_json() const;
  // A table for people: name, value, where it came from.
  std::string describe() const;

 private:
  struct Entry {
    KeyValue value;
    std::string origin;
  };
  const Entry& entry(std::string_view name) const;
  template <typename T>
  const T& get(std::string_view name) const;

  Keys keys_;
  std::vector<Entry> entries_;  // by position in keys_
};

}  // namespace cohort
