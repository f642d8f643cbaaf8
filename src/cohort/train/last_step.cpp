// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/last_step.h"

#include <bit>
#include <cstring>

#include "cohort/core/error.h"

namespace cohort {

std::string LastStep::bytes() const {
  std::vector<int64_t> words = {step, std::bit_cast<int64_t>(loss),
                                std::bit_cast<int64_t>(drawn.sum), drawn.count};
  for (const auto& ids : samples) {
    words.push_back(static_cast<int64_t>(ids.size()));
    words.insert(words.end(), ids.begin(), ids.end());
  }
  return {reinterpret_cast<const char*>(words.data()), words.size() * sizeof(int64_t)};
}

LastStep LastStep::of(const std::string& bytes) {
  std::vector<int64_t> words(bytes.size() / sizeof(int64_t));
  std::memcpy(words.data(), bytes.data(), words.size() * sizeof(int64_t));
  constexpr size_t kNumbers = 4;
  COHORT_CHECK(words.size() >= kNumbers, "a peer's last step is cut short");
  LastStep last{.step = words[0],
                .loss = std::bit_cast<double>(words[1]),
                .drawn = {.sum = std::bit_cast<uint64_t>(words[2]), .count = words[3]},
                .samples = {}};
  for (size_t at = kNumbers; at < words.size();) {
    const auto count = static_cast<size_t>(words[at++]);
    COHORT_CHECK(count <= words.size() - at, "a peer's samples are cut short");
    const auto begin = words.begin() + static_cast<int64_t>(at);
    last.samples.emplace_back(begin, begin + static_cast<int64_t>(count));
    at += count;
  }
  return last;
}

}  // namespace cohort
