// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace cohort {

// A JSON value as text. Whatever is given, the result is legal JSON: strings are
// escaped, bytes that are no UTF-8 become U+FFFD, NaN and infinities null. A double
// is the shortest text that reads back to the same bits, and always looks like one
// ("1.0"), so that a column of numbers has one type.
template <typename T>
std::string json_text(const T& value);

// Text that is JSON already: null, or what an object or array gave.
struct RawJson {
  std::string text = "null";
};

// Builds one object, its members in the order in which they were added:
//   JsonObject().add("event", "step").add("step", 7).add("loss", 0.5).text()
class JsonObject {
 public:
  template <typename T>
  JsonObject& add(std::string_view key, const T& value);
  std::string text() const { return "{" + members_ + "}"; }

 private:
  std::string members_;
};

class JsonArray {
 public:
  template <typename T>
  JsonArray& add(const T& value);
  std::string text() const { return "[" + items_ + "]"; }

 private:
  std::string items_;
};

namespace json_detail {
std::string of_string(std::string_view value);
std::string of_double(double value);
std::string of_float(float value);
std::string of_signed(int64_t value);
std::string of_unsigned(uint64_t value);
}  // namespace json_detail

// Not overloads: a pointer to text would become a bool.
template <typename T>
std::string json_text(const T& value) {
  if constexpr (std::same_as<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::same_as<T, float>) {
    return json_detail::of_float(value);
  } else if constexpr (std::floating_point<T>) {
    return json_detail::of_double(static_cast<double>(value));
  } else if constexpr (std::unsigned_integral<T>) {
    return json_detail::of_unsigned(value);
  } else if constexpr (std::integral<T>) {
    return json_detail::of_signed(value);
  } else if constexpr (std::convertible_to<T, std::string_view>) {
    return json_detail::of_string(value);
  } else if constexpr (std::same_as<T, RawJson>) {
    return value.text;
  } else {
    return value.text();
  }
}

template <typename T>
JsonObject& JsonObject::add(std::string_view key, const T& value) {
  if (!members_.empty()) members_ += ',';
  members_ += json_text(key) + ":" + json_text(value);
  return *this;
}

template <typename T>
JsonArray& JsonArray::add(const T& value) {
  if (!items_.empty()) items_ += ',';
  items_ += json_text(value);
  return *this;
}

}  // namespace cohort
