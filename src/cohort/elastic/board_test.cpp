// SPDX-License-Identifier: Apache-2.0
#include "cohort/elastic/board.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "cohort/core/error.h"

namespace cohort {
namespace {

TEST(Board, KeepsTheHighestStepOfAnyRank) {
  Board board;
  EXPECT_EQ(board.highest(), 0);
  board.commit(2, 10);
  board.commit(0, 9);
  EXPECT_EQ(board.highest(), 10);
  EXPECT_EQ(board.committed(2), 10);
  EXPECT_EQ(board.committed(0), 9);
  EXPECT_EQ(board.generation(), 0);
  board.commit(0, 9, 3);
  board.commit(2, 10, 2);  // a late one, of a world that is over
  EXPECT_EQ(board.generation(), 3);
  board.commit(2, 4);  // a rollback is no progress
  EXPECT_EQ(board.highest(), 10);
  EXPECT_EQ(board.committed(2), 4);
}

TEST(Board, AValidationIsToldOfOnce) {
  Board board;
  Board other(UniqueFd(::dup(board.fd())));
  EXPECT_EQ(board.validated(), 0);
  EXPECT_TRUE(board.validate(2));
  EXPECT_FALSE(other.validate(2));
  EXPECT_FALSE(other.validate(1));
  EXPECT_TRUE(other.validate(3));
  EXPECT_EQ(board.validated(), 3);
  EXPECT_EQ(board.highest(), 0);
}

TEST(Board, HoldsTheLastWordOfAProcessThatDied) {
  Board board;
  const pid_t child = ::fork();
  if (child == 0) {
    Board(UniqueFd(::dup(board.fd()))).commit(1, 77);
    ::kill(::getpid(), SIGKILL);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(board.committed(1), 77);
  EXPECT_EQ(board.highest(), 77);
}

TEST(Board, RefusesOtherMemory) {
  EXPECT_THROW(Board{UniqueFd(::memfd_create("test", MFD_CLOEXEC))}, CommError);
  const Board board;
  UniqueFd other(::memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(other.get(), 64 * (Board::kMostRanks + 1)), 0);
  EXPECT_THROW(Board{std::move(other)}, CommError);
}

TEST(Board, TakesNoNoticeOfARankBeyondItsPlaces) {
  Board board;
  board.commit(Board::kMostRanks, 5);
  EXPECT_EQ(board.highest(), 5);
}

}  // namespace
}  // namespace cohort
