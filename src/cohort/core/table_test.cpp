// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/table.h"

#include <gtest/gtest.h>

namespace cohort {
namespace {

TEST(Table, ColumnsAlignAndLinesEndWithoutBlanks) {
  EXPECT_EQ(format_table({{"seed", "0", "x"}, {"a", "1000"}, {}}),
            "seed  0     x\n"
            "a     1000\n"
            "\n");
  EXPECT_EQ(format_table({}), "");
}

}  // namespace
}  // namespace cohort
