// SPDX-License-Identifier: Apache-2.0
#include "cohort/update_rule.h"

#include <array>

#include "cohort/core/error.h"
#include "cohort/core/nearest.h"
#include "cohort/optim/adam.h"
#include "cohort/optim/lamb.h"
#include "cohort/optim/lars.h"
#include "cohort/optim/sgd.h"
#include "cohort/optim/sum_arithmetic.h"

namespace cohort {
namespace {

AdamOptions adam_options(const UpdateOptions& options, AdamDecay decay) {
  return {.beta1 = options.beta1,
          .beta2 = options.beta2,
          .eps = options.eps,
          .decay = decay};
}

}  // namespace

int64_t state_numel(StateShape shape, std::span<const int64_t> sizes) {
  const bool matrix = sizes.size() >= 2;
  int64_t numel = 1, columns = 1;
  for (size_t d = 0; d < sizes.size(); ++d) {
    numel *= sizes[d];
    if (d > 0) columns *= sizes[d];
  }
  switch (shape) {
    case StateShape::kParameter:
      return numel;
    case StateShape::kScalar:
      return 1;
    case StateShape::kRows:
      return matrix ? sizes[0] : 0;
    case StateShape::kColumns:
      return matrix ? columns : 0;
    case StateShape::kNoMatrix:
      return matrix ? 0 : numel;
  }
  COHORT_CHECK(false, "no such shape of a state");
}

void add_chunks(std::span<const double> chunks, std::span<double> totals) {
  COHORT_CHECK(!totals.empty() && chunks.size() % totals.size() == 0, chunks.size(),
               " sums of chunks, ", totals.size(), " totals");
  const auto width = static_cast<int64_t>(totals.size());
  const auto count = static_cast<int64_t>(chunks.size()) / width;
  for (int64_t k = 0; k < width; ++k)
    totals[k] = arithmetic::tree_sum(chunks.data() + k, count, width);
}

std::unique_ptr<UpdateRule> make_update_rule(const UpdateOptions& options) {
  if (options.own) {
    auto rule = options.own();
    if (!rule) throw ConfigError("[optim] a rule of one's own is null; legal: a rule");
    return rule;
  }
  if (options.name == "sgd")
    return make_sgd({.momentum = options.momentum, .nesterov = options.nesterov});
  if (options.name == "adam")
    return make_adam(adam_options(options, AdamDecay::kGradient));
  if (options.name == "adamw")
    return make_adam(adam_options(options, AdamDecay::kDecoupled));
  if (options.name == "lars")
    return make_lars({.momentum = options.momentum,
                      .nesterov = options.nesterov,
                      .trust = options.trust,
                      .eps = options.eps});
  if (options.name == "lamb")
    return make_lamb(
        {.beta1 = options.beta1, .beta2 = options.beta2, .eps = options.eps});
  constexpr std::array<std::string_view, 5> legal = {"sgd", "adam", "adamw", "lars",
                                                     "lamb"};
  throw ConfigError(text("[optim] unknown optimizer '", options.name,
                         "'; nearest: ", nearest(options.name, legal),
                         "; legal: sgd, adam, adamw, lars, lamb"));
}

}  // namespace cohort
