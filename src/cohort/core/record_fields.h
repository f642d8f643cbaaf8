// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

// How the fields of a record (record.h) lie in its bytes. Whole numbers take a byte for
// seven bits, the lowest first; those with a sign are folded so that small ones stay
// short. Each value has one form only.
namespace cohort::record_detail {

void put_number(std::string& out, uint64_t value);
void put_word(std::string& out, uint64_t value, size_t bytes);

// Takes fields from the front. After the first trouble it gives zeros.
class Reader {
 public:
  Reader(std::string_view bytes, uint32_t mark);

  uint64_t number(uint64_t most);
  // From -most - 1 to most.
  int64_t folded_number(int64_t most);
  uint64_t word(size_t bytes);
  std::string_view bytes() { return cut(count()); }
  // How many follow; each takes a byte at least.
  size_t count();
  void refuse(std::string_view why);

  bool good() const { return trouble_.empty(); }
  // Nothing is left, and there was no trouble.
  bool is_whole();
  const std::string& trouble() const { return trouble_; }

 private:
  std::string_view cut(size_t bytes);

  std::string_view bytes_;
  size_t at_ = 0;
  std::string trouble_;
};

template <typename T>
concept Optional = requires(T value) {
  value.has_value();
};
template <typename T>
concept Vector = requires(T value) {
  value.emplace_back();
};
template <typename T>
concept Map = requires {
  typename T::mapped_type;
};
template <typename T>
concept TimePoint = requires {
  typename T::clock;
};

// The fields of a struct, a tuple or a pair, as a tuple.
template <typename T>
constexpr decltype(auto) fields_of(T& value) {
  if constexpr (requires { std::tuple_size<std::remove_const_t<T>>::value; })
    return (value);
  else
    return record_fields(value);
}

// The hash (FNV-1a) with the kinds of the fields of a T behind it.
template <typename T>
constexpr uint32_t mix_kind(uint32_t hash) {
  const auto mix = [&](char kind) {
    return (hash ^ static_cast<uint8_t>(kind)) * 16777619u;
  };
  if constexpr (std::same_as<T, bool>) {
    return mix('b');
  } else if constexpr (std::is_enum_v<T>) {
    static_assert(
        requires { T{0}; }, "only an enum of a fixed type takes any number");
    return mix_kind<std::underlying_type_t<T>>(hash);
  } else if constexpr (std::integral<T>) {
    return mix(std::is_signed_v<T> ? 'i' : 'u');
  } else if constexpr (std::same_as<T, double>) {
    return mix('d');
  } else if constexpr (std::same_as<T, std::string>) {
    return mix('s');
  } else if constexpr (TimePoint<T>) {
    return mix('t');
  } else if constexpr (Optional<T>) {
    return mix_kind<typename T::value_type>(mix('?'));
  } else if constexpr (Vector<T>) {
    return mix_kind<typename T::value_type>(mix('*'));
  } else if constexpr (Map<T>) {
    return mix_kind<typename T::mapped_type>(mix_kind<typename T::key_type>(mix('m')));
  } else if constexpr (std::is_array_v<T>) {
    hash = mix(static_cast<char>(std::extent_v<T>));
    return mix_kind<std::remove_extent_t<T>>(hash);
  } else {
    using Fields = std::remove_cvref_t<decltype(fields_of(std::declval<T&>()))>;
    static_assert(std::tuple_size_v<Fields> > 0, "a field takes a byte at least");
    hash = mix('(');
    [&]<size_t... I>(std::index_sequence<I...>) {
      ((hash = mix_kind<std::remove_cvref_t<std::tuple_element_t<I, Fields>>>(hash)),
       ...);
    }
    (std::make_index_sequence<std::tuple_size_v<Fields>>());
    return mix(')');
  }
}

template <typename T>
inline constexpr uint32_t kMarkOf = mix_kind<T>(2166136261u);

template <typename T>
void put(std::string& out, const T& value) {
  if constexpr (std::is_enum_v<T>) {
    put(out, static_cast<std::underlying_type_t<T>>(value));
  } else if constexpr (std::signed_integral<T>) {
    const auto wide = static_cast<int64_t>(value);
    put_number(out,
               static_cast<uint64_t>(wide) << 1 ^ static_cast<uint64_t>(wide >> 63));
  } else if constexpr (std::integral<T>) {
    put_number(out, value);
  } else if constexpr (std::same_as<T, double>) {
    put_word(out, std::bit_cast<uint64_t>(value), sizeof value);
  } else if constexpr (std::same_as<T, std::string>) {
    put_number(out, value.size());
    out += value;
  } else if constexpr (TimePoint<T>) {
    put(out, static_cast<int64_t>(value.time_since_epoch().count()));
  } else if constexpr (Optional<T>) {
    put(out, value.has_value());
    if (value) put(out, *value);
  } else if constexpr (std::is_array_v<T>) {
    for (const auto& item : value) put(out, item);
  } else if constexpr (Vector<T> || Map<T>) {
    put_number(out, value.size());
    for (const auto& item : value) put(out, item);
  } else {
    std::apply([&](const auto&... fields) { (put(out, fields), ...); },
               fields_of(value));
  }
}

template <typename T>
void take(Reader& in, T& value) {
  if constexpr (std::is_enum_v<T>) {
    std::underlying_type_t<T> number{};
    take(in, number);
    value = static_cast<T>(number);
  } else if constexpr (std::signed_integral<T>) {
    value = static_cast<T>(in.folded_number(std::numeric_limits<T>::max()));
  } else if constexpr (std::integral<T>) {
    value = static_cast<T>(in.number(std::numeric_limits<T>::max()));
  } else if constexpr (std::same_as<T, double>) {
    value = std::bit_cast<double>(in.word(sizeof value));
  } else if constexpr (std::same_as<T, std::string>) {
    value = in.bytes();
  } else if constexpr (TimePoint<T>) {
    typename T::rep count{};
    take(in, count);
    value = T(typename T::duration(count));
  } else if constexpr (Optional<T>) {
    if (in.number(1) != 0) take(in, value.emplace());
  } else if constexpr (std::is_array_v<T>) {
    for (auto& item : value) take(in, item);
  } else if constexpr (Vector<T>) {
    for (size_t left = in.count(); left > 0 && in.good(); --left)
      take(in, value.emplace_back());
  } else if constexpr (Map<T>) {
    for (size_t left = in.count(); left > 0 && in.good(); --left) {
      std::pair<typename T::key_type, typename T::mapped_type> item;
      take(in, item);
      if (!value.empty() && !(value.rbegin()->first < item.first))
        in.refuse("keys that are not in order");
      value.insert(value.end(), std::move(item));
    }
  } else {
    std::apply([&](auto&... fields) { (take(in, fields), ...); }, fields_of(value));
  }
}

}  // namespace cohort::record_detail
