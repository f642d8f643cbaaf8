// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/config/keys.h"

namespace cohort {

// The resolved settings of a run. Layers are applied in the order of the calls, a
// later one wins: defaults < recipe < YAML file < --set.
//   Config config(common_keys());
//   config.set("batch", "64", "recipe mlp");
//   config.load_file("run.yaml");
//   config.set_assignment("optim.lr=0.1");
//
// Failure: ConfigError with where the text came from, what was given, what is legal
// or the nearest legal key. A failed call changes nothing. Asking for a key that is
// not in the schema, or as another type, is a bug.
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
