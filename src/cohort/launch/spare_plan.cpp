// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/spare_plan.h"

#include <algorithm>

namespace cohort::process {
namespace {

constexpr std::chrono::milliseconds kSpareDelay{500};
constexpr int kMostSpareDeaths = 3;

}  // namespace

void SparePlan::lose_one() {
  if (replaces_) return;
  int& those = counts_.waiting > 0 ? counts_.waiting : counts_.wanted;
  those = std::max(0, those - 1);
}

bool SparePlan::died_on_its_way() { return ++deaths_ == kMostSpareDeaths; }

bool SparePlan::is_given_up() const { return deaths_ >= kMostSpareDeaths; }

void SparePlan::start_later(Clock::time_point now) { start_at_ = now + kSpareDelay; }

void SparePlan::start_soon(Clock::time_point now) {
  start_at_ = std::min(start_at_, now + kSpareDelay);
}

}  // namespace cohort::process
