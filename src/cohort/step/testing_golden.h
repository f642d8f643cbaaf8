// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "cohort/core/file.h"

namespace cohort::test {

// A file of the checkout is what is made anew. With COHORT_UPDATE_PICTURES set, writes
// it instead.
inline void expect_golden(const std::string& file, const std::string& made) {
  const char* const source = std::getenv("COHORT_SOURCE");
  ASSERT_NE(source, nullptr) << "run through ctest";
  const auto path = std::filesystem::path(source) / file;
  if (std::getenv("COHORT_UPDATE_PICTURES")) write_file_atomically(path, made);
  EXPECT_TRUE(std::filesystem::exists(path) && read_file(path) == made)
      << path << " is not what is made; COHORT_UPDATE_PICTURES=1 writes it";
}

}  // namespace cohort::test
