// SPDX-License-Identifier: Apache-2.0
#include "cohort/nn/token_choice.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "cohort/core/error.h"
#include "cohort/core/random.h"

namespace cohort {
namespace {

// Numbers of the tokens that can be drawn, the likeliest first.
std::vector<int64_t> by_likelihood(std::span<const double> logits) {
  std::vector<int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order, [&](int64_t token) { return !std::isfinite(logits[token]); });
  std::ranges::stable_sort(order,
                           [&](int64_t a, int64_t b) { return logits[a] > logits[b]; });
  if (order.empty())
    throw DataError(
        "[nn] no logit of the model is a number: its weights are damaged, or its "
        "training "
        "has diverged");
  return order;
}

}  // namespace

int64_t choose_token(std::span<const double> logits, const TokenChoice& choice,
                     int64_t number) {
  std::vector<int64_t> order = by_likelihood(logits);
  if (choice.temperature == 0) return order[0];
  if (choice.top_k > 0)
    order.resize(std::min(order.size(), static_cast<size_t>(choice.top_k)));
  std::vector<double> sums;  // cumulative, proportional to probability
  double sum = 0;
  for (const int64_t token : order)
    sums.push_back(sum +=
                   std::exp((logits[token] - logits[order[0]]) / choice.temperature));
  const auto last = std::ranges::lower_bound(sums, choice.top_p * sum);
  const RandomKey key = RandomKey::of_path(choice.seed, "sample");
  const double drawn = *last * uniform_double(key, static_cast<uint64_t>(number));
  return order[std::upper_bound(sums.begin(), last, drawn) - sums.begin()];
}

}  // namespace cohort
