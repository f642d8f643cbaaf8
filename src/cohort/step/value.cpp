// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/value.h"

#include <array>

#include "cohort/core/error.h"

namespace cohort {
namespace {

constexpr std::array<std::string_view, kWhats> kWhatNames = {
    "Input",    "Act",   "Flight", "ActGrad", "Deferred", "Leaf", "Partial", "Sum",
    "Mirrored", "Whole", "State",  "Stat",    "Folded",   "Loss", "Norm",    "Vote"};

}  // namespace

std::string_view name_of(What what) { return kWhatNames[static_cast<size_t>(what)]; }

std::string Value::text() const {
  std::string out(name_of(what));
  if (of != kNone) out += ::cohort::text(' ', of);
  if (slice != kNone) out += ::cohort::text(" slice ", slice);
  if (version != 0) out += ::cohort::text(" v", version);
  return out;
}

bool is_given(const Value& value) {
  return value.version == 0 &&
         (value.what == What::kInput || value.what == What::kState ||
          value.what == What::kWhole);
}

}  // namespace cohort
