// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/random.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <span>

#include "cohort/core/error.h"
#include "cohort/core/hash.h"

namespace cohort {
namespace {

constexpr uint32_t kPhiloxM0 = 0xD2511F53, kPhiloxM1 = 0xCD9E8D57;
constexpr uint32_t kPhiloxW0 = 0x9E3779B9;  // golden ratio
constexpr uint32_t kPhiloxW1 = 0xBB67AE85;  // sqrt(3) - 1

// Block b of a stream: the low counter words count, the high ones are the stream.
PhiloxBlock block(const RandomKey& key, uint64_t b) {
  return philox4x32(
      {static_cast<uint32_t>(b), static_cast<uint32_t>(b >> 32),
       static_cast<uint32_t>(key.stream), static_cast<uint32_t>(key.stream >> 32)},
      {static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)});
}

// As many blocks side by side as a compiler can turn into vector code.
constexpr int kLanes = 8;
constexpr size_t kLaneWords = 4 * kLanes;

// Blocks b to b + kLanes - 1 of a stream, word by word as philox4x32 makes them.
void lane_blocks(const RandomKey& key, uint64_t b, uint32_t* out) {
  uint32_t c0[kLanes], c1[kLanes], c2[kLanes], c3[kLanes];
  for (int l = 0; l < kLanes; ++l) {
    c0[l] = static_cast<uint32_t>(b + l);
    c1[l] = static_cast<uint32_t>((b + l) >> 32);
    c2[l] = static_cast<uint32_t>(key.stream);
    c3[l] = static_cast<uint32_t>(key.stream >> 32);
  }
  auto k0 = static_cast<uint32_t>(key.seed), k1 = static_cast<uint32_t>(key.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int l = 0; l < kLanes; ++l) {
      const uint64_t x = uint64_t{kPhiloxM0} * c0[l];
      const uint64_t y = uint64_t{kPhiloxM1} * c2[l];
      c0[l] = static_cast<uint32_t>(y >> 32) ^ c1[l] ^ k0;
      c1[l] = static_cast<uint32_t>(y);
      c2[l] = static_cast<uint32_t>(x >> 32) ^ c3[l] ^ k1;
      c3[l] = static_cast<uint32_t>(x);
    }
    k0 += kPhiloxW0;
    k1 += kPhiloxW1;
  }
  for (int l = 0; l < kLanes; ++l) {
    out[4 * l] = c0[l];
    out[4 * l + 1] = c1[l];
    out[4 * l + 2] = c2[l];
    out[4 * l + 3] = c3[l];
  }
}

uint64_t join_words(uint32_t low, uint32_t high) {
  return low | static_cast<uint64_t>(high) << 32;
}

float to_float(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }
double to_double(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

// Logarithm, sine and cosine of additions, products and quotients alone: those of a C
// library differ in their last bit between machines. Correct to 1e-15 of the result.
//
// a0 + z a1 + z^2 a2 + ...
template <size_t N>
double polynomial(double z, const std::array<double, N>& a) {
  double sum = a[N - 1];
  for (size_t i = N - 1; i-- > 0;) sum = std::fma(sum, z, a[i]);
  return sum;
}

// For u in (0, 1]: u = m 2^e with m near 1, and log(m) = 2 artanh(s), s = (m - 1)/(m +
// 1).
double portable_log(double u) {
  constexpr std::array<double, 11> kOdd = {1.0,      1.0 / 3,  1.0 / 5,  1.0 / 7,
                                           1.0 / 9,  1.0 / 11, 1.0 / 13, 1.0 / 15,
                                           1.0 / 17, 1.0 / 19, 1.0 / 21};
  int exponent = 0;
  double m = std::frexp(u, &exponent);
  if (m < std::numbers::sqrt2 / 2) {
    m *= 2;
    --exponent;
  }
  const double s = (m - 1) / (m + 1);
  return std::fma(exponent, std::numbers::ln2, 2 * s * polynomial(s * s, kOdd));
}

// Cosine and sine of a whole turn times x in [0, 1): by quarter turns, and Taylor's
// series for what is left, at most an eighth.
std::array<double, 2> portable_turn(double x) {
  constexpr std::array<double, 9> kCos = {1.0,
                                          -1.0 / 2,
                                          1.0 / 24,
                                          -1.0 / 720,
                                          1.0 / 40320,
                                          -1.0 / 3628800,
                                          1.0 / 479001600,
                                          -1.0 / 87178291200,
                                          1.0 / 20922789888000};
  constexpr std::array<double, 9> kSin = {1.0,
                                          -1.0 / 6,
                                          1.0 / 120,
                                          -1.0 / 5040,
                                          1.0 / 362880,
                                          -1.0 / 39916800,
                                          1.0 / 6227020800,
                                          -1.0 / 1307674368000,
                                          1.0 / 355687428096000};
  const double quarter = std::floor(std::fma(x, 4, 0.5));
  const double angle = 2 * std::numbers::pi * std::fma(quarter, -0.25, x);
  const double cosine = polynomial(angle * angle, kCos);
  const double sine = angle * polynomial(angle * angle, kSin);
  switch (static_cast<int>(quarter) % 4) {
    case 0:
      return {cosine, sine};
    case 1:
      return {-sine, cosine};
    case 2:
      return {-cosine, -sine};
    default:
      return {sine, -cosine};
  }
}

// Elements 2b and 2b + 1 of the normal stream. Box and Muller 1958; 1 - u is in
// (0, 1], so that the logarithm is finite.
std::array<double, 2> normal_pair(const RandomKey& key, uint64_t b) {
  const auto words = block(key, b);
  const double u = 1.0 - to_double(join_words(words[0], words[1]));
  const auto [cosine, sine] = portable_turn(to_double(join_words(words[2], words[3])));
  const double radius = std::sqrt(-2 * portable_log(u));
  return {radius * cosine, radius * sine};
}

// Both round down instead of up to `hi`, which the range excludes.
//
// std::fma here and below: whether a compiler fuses a*b+c by itself may differ
// between the body and the rest of a loop, and bits must not depend on the cut.
void uniform_range(float* out, int64_t count, const RandomKey& key, double lo,
                   double hi, int64_t first) {
  std::array<uint32_t, 8 * kLaneWords> words;
  const double width = hi - lo;
  const float limit = static_cast<float>(hi);
  const float last = std::nextafter(limit, -INFINITY);
  for (int64_t done = 0; done < count;) {
    const int64_t here = std::min<int64_t>(count - done, words.size());
    random_bits(key, static_cast<uint64_t>(first + done), std::span(words).first(here));
    for (int64_t k = 0; k < here; ++k) {
      const auto value =
          static_cast<float>(std::fma(width, double{to_float(words[k])}, lo));
      out[done + k] = value < limit ? value : last;
    }
    done += here;
  }
}

void uniform_range(double* out, int64_t count, const RandomKey& key, double lo,
                   double hi, int64_t first) {
  PhiloxBlock words{};
  for (int64_t k = 0; k < count; ++k) {
    const int64_t i = first + k;
    if (k == 0 || i % 2 == 0) words = block(key, i / 2);
    const double u = to_double(join_words(words[2 * (i % 2)], words[2 * (i % 2) + 1]));
    const double value = std::fma(hi - lo, u, lo);
    out[k] = value < hi ? value : std::nextafter(hi, -INFINITY);
  }
}

template <typename T>
void normal_range(T* out, int64_t count, const RandomKey& key, double mean,
                  double deviation, int64_t first) {
  std::array<double, 2> pair{};
  for (int64_t k = 0; k < count; ++k) {
    const int64_t i = first + k;
    if (k == 0 || i % 2 == 0) pair = normal_pair(key, i / 2);
    out[k] = static_cast<T>(std::fma(deviation, pair[i % 2], mean));
  }
}

// Calls fill(pointer, count) on contiguous float or double memory and brings the
// result into `tensor`, whatever its strides and dtype.
template <typename Fill>
void fill_any(Tensor& tensor, const char* what, const Fill& fill) {
  COHORT_CHECK(tensor.device().is_cpu() && tensor.is_floating_point(), what,
               ": needs a floating CPU tensor");
  c10::NoGradGuard no_grad;
  const bool wide = tensor.scalar_type() == at::kDouble;
  const bool direct =
      tensor.is_contiguous() && (wide || tensor.scalar_type() == at::kFloat);
  Tensor flat =
      direct ? tensor : at::empty(tensor.sizes(), wide ? at::kDouble : at::kFloat);
  if (wide) {
    fill(flat.data_ptr<double>(), flat.numel());
  } else {
    fill(flat.data_ptr<float>(), flat.numel());
  }
  if (!direct) tensor.copy_(flat);
}

}  // namespace

PhiloxBlock philox4x32(PhiloxBlock c, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{kPhiloxM0} * c[0];
    const uint64_t b = uint64_t{kPhiloxM1} * c[2];
    c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += kPhiloxW0;
    key[1] += kPhiloxW1;
  }
  return c;
}

RandomKey RandomKey::of_sample(uint64_t seed, int64_t step, int64_t sample,
                               std::string_view op) {
  return {seed, fingerprint("sample", step, sample, op)};
}

RandomKey RandomKey::of_path(uint64_t seed, std::string_view path, int64_t index) {
  return {seed, fingerprint("path", path, index)};
}

uint32_t random_bits(const RandomKey& key, uint64_t i) {
  return block(key, i / 4)[i % 4];
}

void random_bits(const RandomKey& key, uint64_t first, std::span<uint32_t> out) {
  size_t done = 0;
  while (done < out.size()) {
    const uint64_t i = first + done;
    const size_t left = out.size() - done;
    if (i % 4 == 0 && left >= kLaneWords) {
      lane_blocks(key, i / 4, out.data() + done);
      done += kLaneWords;
      continue;
    }
    const auto words = block(key, i / 4);
    const size_t count = std::min<size_t>(4 - i % 4, left);
    std::copy_n(words.begin() + i % 4, count, out.begin() + done);
    done += count;
  }
}

// Words are the lower halves of int64. A product wraps around, but its 64 bits are
// those of the unsigned one.
Tensor random_bits(const Tensor& streams, uint64_t seed, int64_t first, int64_t count) {
  const c10::NoGradGuard no_grad;
  constexpr int64_t kWord = 0xFFFFFFFF;
  const auto low = [](const Tensor& x) { return at::bitwise_and(x, kWord); };
  const auto high = [](const Tensor& x) {
    return at::bitwise_right_shift(x, 32).bitwise_and_(kWord);
  };
  const Tensor blocks =
      at::arange(first / 4, (first + count + 3) / 4, streams.options()).unsqueeze(0);
  Tensor c0 = low(blocks), c1 = high(blocks);
  Tensor c2 = low(streams).unsqueeze(1), c3 = high(streams).unsqueeze(1);
  auto k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const Tensor a = c0 * int64_t{kPhiloxM0}, b = c2 * int64_t{kPhiloxM1};
    c0 = at::bitwise_xor(high(b), c1).bitwise_xor_(int64_t{k0});
    c2 = at::bitwise_xor(high(a), c3).bitwise_xor_(int64_t{k1});
    c1 = low(b);
    c3 = low(a);
    k0 += kPhiloxW0;
    k1 += kPhiloxW1;
  }
  return at::stack(at::broadcast_tensors({c0, c1, c2, c3}), -1)
      .flatten(1)
      .narrow(1, first % 4, count);
}

uint64_t random_bits64(const RandomKey& key, uint64_t i) {
  const auto words = block(key, i / 2);
  return join_words(words[2 * (i % 2)], words[2 * (i % 2) + 1]);
}

float uniform_float(const RandomKey& key, uint64_t i) {
  return to_float(random_bits(key, i));
}

double uniform_double(const RandomKey& key, uint64_t i) {
  return to_double(random_bits64(key, i));
}

double normal(const RandomKey& key, uint64_t i) {
  return normal_pair(key, i / 2)[i % 2];
}

uint64_t random_below(const RandomKey& key, uint64_t i, uint64_t n) {
  COHORT_CHECK(n > 0, "random_below nothing");
  // Lemire's multiplication: the high word of bits * n.
  const unsigned __int128 product =
      static_cast<unsigned __int128>(random_bits64(key, i)) * n;
  return static_cast<uint64_t>(product >> 64);
}

void fill_uniform(Tensor& tensor, const RandomKey& key, double lo, double hi,
                  int64_t first) {
  COHORT_CHECK(lo < hi, "fill_uniform of [", lo, ", ", hi, ")");
  fill_any(tensor, "fill_uniform", [&](auto* out, int64_t count) {
    uniform_range(out, count, key, lo, hi, first);
  });
}

void fill_normal(Tensor& tensor, const RandomKey& key, double mean, double deviation,
                 int64_t first) {
  fill_any(tensor, "fill_normal", [&](auto* out, int64_t count) {
    normal_range(out, count, key, mean, deviation, first);
  });
}

}  // namespace cohort
