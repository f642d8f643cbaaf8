// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/gloo/quiet.h"

#include <gtest/gtest.h>

#include <iostream>
#include <optional>
#include <sstream>

namespace cohort::gloo_backend {
namespace {

TEST(QuietConnect, KeepsGloosLinesBackAndPassesAllOthersOnce) {
  std::ostringstream seen;
  std::streambuf* const before = std::cout.rdbuf(seen.rdbuf());
  std::optional<QuietConnect> one(std::in_place), two(std::in_place);
  std::cout << "a\n[Gloo] Rank 0 is connected\nb\n";
  one.reset();
  std::cout << "[Gloo] again\nc" << std::flush;
  two.reset();
  std::cout << "\n[Gloo] not ours any more\n";
  std::cout.rdbuf(before);
  EXPECT_EQ(seen.str(), "a\nb\nc\n[Gloo] not ours any more\n");
}

}  // namespace
}  // namespace cohort::gloo_backend
