// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/lateness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/ranks.h"

namespace cohort {
namespace {

using testing::HasSubstr;
using testing::Optional;

// After ten steps of 0.1 s.
std::optional<std::string> look(LatenessWatch& watch, Communicator& comm,
                                std::span<const ActionWait> waits) {
  for (int i = 0; i < 10; ++i) watch.add(0.1);
  return watch.look(comm, waits);
}

// Three ranks; the others wait for rank `slow` by 0.2 s of 1 s, most at the second.
std::vector<ActionWait> waits_of(int rank, int slow) {
  const double late = rank == slow ? 0 : 0.1;
  return {{"Reduce of the loss", 0.01 + late / 2},
          {"Reduce of bucket 0", 0.02 + 1.5 * late}};
}

TEST(Lateness, ARankThatStaysLateIsNamedOnceWithWhere) {
  test::run_ranks({"local", 3}, [](Communicator& comm) {
    LatenessWatch watch;
    const auto look_for = [&](int slow) {
      return look(watch, comm, waits_of(comm.rank(), slow));
    };
    EXPECT_EQ(look_for(1), std::nullopt);  // once may be chance
    const auto said = look_for(1);
    EXPECT_THAT(said, Optional(HasSubstr("rank 1 is slow: the others wait 20.0 ms of a "
                                         "step of 100 ms for it")));
    EXPECT_THAT(said, Optional(HasSubstr("most at Reduce of bucket 0 (15.0 ms)")));
    EXPECT_EQ(look_for(1), std::nullopt);
    EXPECT_EQ(look_for(2), std::nullopt);
    EXPECT_THAT(look_for(2), Optional(HasSubstr("rank 2 is slow")));
  });
}

TEST(Lateness, NobodyIsNamedWhereAllWaitAlike) {
  test::run_ranks({"local", 3}, [](Communicator& comm) {
    LatenessWatch watch;
    for (int i = 0; i < 4; ++i)
      EXPECT_EQ(look(watch, comm, waits_of(comm.rank(), 7)), std::nullopt);
  });
}

TEST(Lateness, TwoWhoAreLateInTurnsAreNotNamed) {
  test::run_ranks({"local", 3}, [](Communicator& comm) {
    LatenessWatch watch;
    for (int i = 0; i < 6; ++i)
      EXPECT_EQ(look(watch, comm, waits_of(comm.rank(), i % 2)), std::nullopt);
  });
}

}  // namespace
}  // namespace cohort
