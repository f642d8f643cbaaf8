// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "cohort/update_rule.h"

namespace cohort {

// A rule that is written once for float and double: Rule has a template
//   update(const UpdateStretch<Real>&, traits, totals, scalars) const
template <typename Rule, typename Base = ElementwiseRule>
class TypedRule : public Base {
 public:
  void apply(const UpdateStretch<float>& stretch, const ParameterTraits& traits,
             std::span<const double> totals, const StepScalars& scalars) const final {
    rule().update(stretch, traits, totals, scalars);
  }
  void apply(const UpdateStretch<double>& stretch, const ParameterTraits& traits,
             std::span<const double> totals, const StepScalars& scalars) const final {
    rule().update(stretch, traits, totals, scalars);
  }

 protected:
  const Rule& rule() const { return static_cast<const Rule&>(*this); }
};

// The same with sums over tensors: Rule also has a template
//   add_squares(const UpdateStretch<const Real>&, traits, scalars, sums) const
template <typename Rule>
class TypedLayerRule : public TypedRule<Rule, UpdateRule> {
 public:
  void reduce(const UpdateStretch<const float>& chunk, const ParameterTraits& traits,
              const StepScalars& scalars, std::span<double> sums) const final {
    this->rule().add_squares(chunk, traits, scalars, sums);
  }
  void reduce(const UpdateStretch<const double>& chunk, const ParameterTraits& traits,
              const StepScalars& scalars, std::span<double> sums) const final {
    this->rule().add_squares(chunk, traits, scalars, sums);
  }
};

}  // namespace cohort
