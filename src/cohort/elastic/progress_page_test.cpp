// SPDX-License-Identifier: Apache-2.0
#include "cohort/elastic/progress_page.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "cohort/core/error.h"

namespace cohort {
namespace {

TEST(ProgressPage, KeepsTheHighestStepOfAnyRank) {
  ProgressPage page;
  EXPECT_EQ(page.highest(), 0);
  page.commit(2, 10);
  page.commit(0, 9);
  EXPECT_EQ(page.highest(), 10);
  EXPECT_EQ(page.committed(2), 10);
  EXPECT_EQ(page.committed(0), 9);
  EXPECT_EQ(page.generation(), 0);
  page.commit(0, 9, 3);
  page.commit(2, 10, 2);  // a late one, of a world that is over
  EXPECT_EQ(page.generation(), 3);
  page.commit(2, 4);  // a rollback is no progress
  EXPECT_EQ(page.highest(), 10);
  EXPECT_EQ(page.committed(2), 4);
}

TEST(ProgressPage, AValidationIsToldOfOnce) {
  ProgressPage page;
  ProgressPage other(UniqueFd(::dup(page.fd())));
  EXPECT_EQ(page.validated(), 0);
  EXPECT_TRUE(page.validate(2));
  EXPECT_FALSE(other.validate(2));
  EXPECT_FALSE(other.validate(1));
  EXPECT_TRUE(other.validate(3));
  EXPECT_EQ(page.validated(), 3);
  EXPECT_EQ(page.highest(), 0);
}

TEST(ProgressPage, HoldsTheLastWordOfAProcessThatDied) {
  ProgressPage page;
  const pid_t child = ::fork();
  if (child == 0) {
    ProgressPage(UniqueFd(::dup(page.fd()))).commit(1, 77);
    ::kill(::getpid(), SIGKILL);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(page.committed(1), 77);
  EXPECT_EQ(page.highest(), 77);
}

TEST(ProgressPage, RefusesOtherMemory) {
  EXPECT_THROW(ProgressPage{UniqueFd(::memfd_create("test", MFD_CLOEXEC))}, CommError);
  const ProgressPage page;
  UniqueFd other(::memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(other.get(), 64 * (ProgressPage::kMostRanks + 1)), 0);
  EXPECT_THROW(ProgressPage{std::move(other)}, CommError);
}

TEST(ProgressPage, TakesNoNoticeOfARankBeyondItsPlaces) {
  ProgressPage page;
  page.commit(ProgressPage::kMostRanks, 5);
  EXPECT_EQ(page.highest(), 5);
}

}  // namespace
}  // namespace cohort
