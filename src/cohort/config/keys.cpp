// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "cohort/config.h"
#include "cohort/config/key_row.h"
#include "cohort/core/error.h"
#include "cohort/core/nearest.h"
#include "cohort/core/parse.h"
#include "cohort/core/table.h"

namespace cohort {
namespace {

std::string number(double value) {
  char buffer[32];
  return {buffer, std::to_chars(buffer, buffer + sizeof(buffer), value).ptr};
}

std::string range_text(const std::string& lowest, const std::string& highest,
                       bool below) {
  if (lowest.empty() && highest.empty()) return "";
  if (highest.empty()) return " >= " + lowest;
  const char* upper = below ? " < " : " <= ";
  if (lowest.empty()) return upper + highest;
  return text(" >= ", lowest, " and", upper, highest);
}

std::string legal_ints(const IntRange& range) {
  const IntRange any;
  return "a whole number" +
         range_text(range.lowest == any.lowest ? "" : std::to_string(range.lowest),
                    range.highest == any.highest ? "" : std::to_string(range.highest),
                    false);
}

std::string legal_floats(const FloatRange& range) {
  return "a number" + range_text(std::isinf(range.lowest) ? "" : number(range.lowest),
                                 std::isinf(range.highest) ? "" : number(range.highest),
                                 range.below_highest);
}

bool contains(const FloatRange& range, double value) {
  return value >= range.lowest &&
         (range.below_highest ? value < range.highest : value <= range.highest);
}

std::string legal_choices(const std::vector<std::string>& choices) {
  const std::vector<std::string> first(choices.begin(), choices.end() - 1);
  return first.empty() ? choices.back() : join(first, ", ") + " or " + choices.back();
}

// A value, or nothing where the text is of another type or out of range.
std::optional<KeyValue> try_parse(const Key& key, std::string_view text) {
  switch (key.kind) {
    case KeyKind::kBool:
      if (const auto value = try_parse_bool(text)) return *value;
      return std::nullopt;
    case KeyKind::kInt: {
      const auto value = try_parse_int(text);
      if (!value || *value < key.ints.lowest || *value > key.ints.highest) break;
      return *value;
    }
    case KeyKind::kFloat: {
      const auto value = try_parse_double(text);
      if (!value || !contains(key.floats, *value)) break;
      return *value;
    }
    case KeyKind::kChoice:
      if (std::ranges::find(key.choices, trim(text)) == key.choices.end()) break;
      return std::string(trim(text));
    case KeyKind::kString:
      return std::string(text);
  }
  return std::nullopt;
}

// Who writes "lr" means "optim.lr", however many letters that is away.
std::string nearest_key(std::string_view given, const std::vector<Key>& keys) {
  std::vector<std::string> names;
  for (const Key& key : keys) {
    if (key.name.ends_with(text(".", given))) return key.name;
    names.push_back(key.name);
  }
  return nearest(given, names);
}

}  // namespace

std::string to_text(const KeyValue& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* whole = std::get_if<int64_t>(&value)) return std::to_string(*whole);
  if (const auto* real = std::get_if<double>(&value)) return number(*real);
  return std::get<std::string>(value);
}

std::string Key::legal() const {
  switch (kind) {
    case KeyKind::kBool:
      return "true or false";
    case KeyKind::kInt:
      return legal_ints(ints);
    case KeyKind::kFloat:
      return legal_floats(floats);
    case KeyKind::kChoice:
      return legal_choices(choices);
    case KeyKind::kString:
      break;
  }
  return "any text";
}

KeyValue Key::parse(std::string_view given, std::string_view origin) const {
  if (auto value = try_parse(*this, given)) return *std::move(value);
  std::string hint;
  if (kind == KeyKind::kChoice && !trim(given).empty()) {
    hint = text(" (nearest: ", nearest(given, choices), ")");
  }
  throw ConfigError(text("[config] ", origin, ": ", name, " is '", given,
                         "'; legal: ", legal(), hint));
}

Keys& Keys::add(Key key) {
  if (key.name.empty() || find(key.name) >= 0)
    throw ConfigError(text("[config] the key '", key.name,
                           "' is there already; legal: a name that no other key has"));
  if (!try_parse(key, to_text(key.initial)))
    throw ConfigError(text("[config] ", key.name, "=", to_text(key.initial),
                           " as default; legal: ", key.legal()));
  keys_.push_back(std::move(key));
  return *this;
}

Keys& Keys::add_bool(std::string name, bool initial, std::string help) {
  return add({std::move(name), KeyKind::kBool, initial, std::move(help)});
}

Keys& Keys::add_int(std::string name, int64_t initial, std::string help,
                    IntRange range) {
  return add({std::move(name), KeyKind::kInt, initial, std::move(help), range});
}

Keys& Keys::add_float(std::string name, double initial, std::string help,
                      FloatRange range) {
  return add({std::move(name), KeyKind::kFloat, initial, std::move(help), {}, range});
}

Keys& Keys::add_string(std::string name, std::string initial, std::string help) {
  return add({std::move(name), KeyKind::kString, std::move(initial), std::move(help)});
}

Keys& Keys::add_choice(std::string name, std::string initial,
                       std::vector<std::string> choices, std::string help) {
  COHORT_CHECK(!choices.empty(), "no choice for ", name);
  return add({std::move(name),
              KeyKind::kChoice,
              std::move(initial),
              std::move(help),
              {},
              {},
              std::move(choices)});
}

int Keys::find(std::string_view name) const {
  const auto at = std::ranges::find(keys_, name, &Key::name);
  return at == keys_.end() ? -1 : static_cast<int>(at - keys_.begin());
}

int Keys::find(std::string_view name, std::string_view origin) const {
  if (const int at = find(name); at >= 0) return at;
  std::vector<std::string> members;
  for (const Key& key : keys_) {
    if (key.name.starts_with(text(name, "."))) members.push_back(key.name);
  }
  if (!members.empty()) {
    throw ConfigError(
        text("[config] ", origin, ": '", name,
             "' is a group and takes no value; legal: ", join(members, ", ")));
  }
  throw ConfigError(text("[config] ", origin, ": unknown key '", name,
                         "'; the nearest legal key is '", nearest_key(name, keys_),
                         "'"));
}

Keys Keys::without(const Keys& others) const {
  Keys rest;
  for (const Key& key : keys_)
    if (others.find(key.name) < 0) rest.add(key);
  return rest;
}

std::vector<std::string> key_row(const Key& key, const KeyValue& value) {
  const std::string shown = to_text(value);
  return {key.name, shown.empty() ? "\"\"" : shown, key.legal(), key.help};
}

std::string Keys::describe() const {
  Table table;
  for (const Key& key : keys_) table.push_back(key_row(key, key.initial));
  return format_table(table);
}

}  // namespace cohort
