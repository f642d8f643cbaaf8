// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "cohort/core/error.h"
#include "cohort/core/record_fields.h"

// A record is a small message between the processes of one run, as bytes: the fields of
// a struct, one behind the other. The struct lists them once, for both directions:
//
//   struct Card {
//     int rank = 0;
//     std::string host;
//   };
//   auto record_fields(Alike<Card> auto& card) { return std::tie(card.rank, card.host);
//   }
//
//   store.set(key, to_record(card));
//   const auto card = read_record<Card>(store.get(key, timeout), ErrorKind::kComm,
//                                       "[comm.join] the store holds no card");
//
// A field is a bool, a whole number, an enum of a fixed type, a double (to the bit), a
// string of any bytes, a point in time, another struct, a pair or a tuple; or an
// optional, an array, a vector or a map of such.
//
// Not for files, nor for what another version of the program reads: nothing promises
// that the bytes stay as they are. A mark in front tells records apart whose fields are
// of other kinds.
//
// Reading trusts nothing. Bytes that to_record() has not written are refused, and
// memory is taken as the bytes to fill it are read. Which values make sense is for the
// caller to check.
namespace cohort {

// For record_fields(): a T that may be const.
template <typename Given, typename T>
concept Alike = std::same_as<std::remove_const_t<Given>, T>;

inline constexpr size_t kRecordMarkBytes = 4;

template <typename T>
std::string to_record(const T& value) {
  std::string out;
  record_detail::put_word(out, record_detail::kMarkOf<T>, kRecordMarkBytes);
  record_detail::put(out, value);
  return out;
}

// The value, or else in `trouble` why these bytes are no such record.
template <typename T>
std::optional<T> try_read_record(std::string_view bytes,
                                 std::string* trouble = nullptr) {
  record_detail::Reader in(bytes, record_detail::kMarkOf<T>);
  std::optional<T> value(std::in_place);
  record_detail::take(in, *value);
  if (in.is_whole()) return value;
  if (trouble) *trouble = in.trouble();
  return std::nullopt;
}

// Throws an error of that kind, which begins with `what`, for what is no such record.
template <typename T>
T read_record(std::string_view bytes, ErrorKind kind, std::string_view what) {
  std::string trouble;
  auto value = try_read_record<T>(bytes, &trouble);
  if (!value) throw_error(kind, text(what, ": ", trouble));
  return *std::move(value);
}

}  // namespace cohort
