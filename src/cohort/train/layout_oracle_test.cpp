// SPDX-License-Identifier: Apache-2.0
// Layouts that are right are found equal.
#include "cohort/train/layout_oracle.h"

#include <gtest/gtest.h>

#include "cohort/core/error.h"
#include "cohort/train/testing_oracle.h"

namespace cohort {
namespace {

using test::kOracleBlocks;
using test::small_gpt;
using test::Tokens;

// Four heads cannot be cut in three.
std::vector<LayoutCase> layouts_of_four() {
  auto cases = every_layout(4, kOracleBlocks, 8);
  std::erase_if(cases, [](const LayoutCase& one) { return one.layout.tp == 3; });
  return cases;
}

TEST(LayoutOracle, FindsEveryLayoutOfFourRanksEqual) {
  const Tokens data;
  LayoutOracle oracle(small_gpt(data, 0.1));
  for (const auto& one : layouts_of_four()) {
    const Verdict verdict = oracle.compare(one);
    EXPECT_FALSE(verdict.deviation) << one.text() << ": " << verdict.deviation->text();
  }
}

TEST(LayoutOracle, FindsEveryBitEqualWithAsManyParts) {
  const Tokens data;
  OracleOptions options = small_gpt(data);
  options.exact = true;
  LayoutOracle oracle(std::move(options));
  for (const auto& one : layouts_of_four()) {
    const Verdict verdict = oracle.compare(one);
    EXPECT_FALSE(verdict.deviation) << one.text() << ": " << verdict.deviation->text();
  }
}

TEST(LayoutOracle, RefusesWhatThereIsNot) {
  const Tokens data;
  LayoutOracle oracle(small_gpt(data));
  EXPECT_THROW(oracle.compare({.layout = {.tp = 3}}), ConfigError);
  EXPECT_THROW(oracle.compare({.layout = {.pp = 5}}), ConfigError);
}

}  // namespace
}  // namespace cohort
