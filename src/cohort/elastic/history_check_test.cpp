// SPDX-License-Identifier: Apache-2.0
#include "cohort/elastic/history_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/core/error.h"
#include "cohort/elastic/testing_history.h"

namespace cohort {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using namespace cohort::test;  // NOLINT: a test

class HistoryVerify : public HistoryFolder {
 protected:
  std::vector<std::string> breaches(const std::vector<HistoryRecord>& records) {
    write_history(path_, records);
    return verify_history(path_).breaches;
  }
};

// Six steps, back to step 4, and on to 7.
std::vector<HistoryRecord> with_rollback() {
  auto records = small_history(6);
  records.emplace_back(HistoryRollback{6, 4, "the snapshot"});
  records.emplace_back(small_world(1, 4));
  for (int64_t step = 5; step <= 7; ++step) records.emplace_back(small_step(step, 1));
  records.emplace_back(HistoryEnd{7, 0, RecordedHash{107}});
  return records;
}

TEST_F(HistoryVerify, AnUndisturbedRunHolds) {
  write_history(path_, small_history(7));
  const auto report = verify_history(path_);
  EXPECT_THAT(report.breaches, IsEmpty());
  EXPECT_EQ(report.records, 9);
  EXPECT_EQ(report.steps, 7);
  EXPECT_EQ(report.epochs, 2);
  EXPECT_EQ(report.worlds, 1);
}

TEST_F(HistoryVerify, ARecordedRollbackHolds) {
  write_history(path_, with_rollback());
  const auto report = verify_history(path_);
  EXPECT_THAT(report.breaches, IsEmpty());
  EXPECT_EQ(report.steps, 7);
  EXPECT_EQ(report.rollbacks, 1);
  EXPECT_EQ(report.steps_undone, 2);
  EXPECT_EQ(report.steps_compared, 3);  // steps 5 and 6, and the end
  EXPECT_EQ(report.epochs, 2);
}

TEST_F(HistoryVerify, ADoubledStepIsNamed) {
  auto records = small_history(3);
  records.insert(records.begin() + 4, small_step(2));
  EXPECT_THAT(breaches(records),
              ElementsAre("record 4, step 2: is committed again; expected step 3",
                          "record 4, step 2: uses samples from epoch 0 place 4 on a "
                          "second time; expected epoch 0 place 8"));
}

TEST_F(HistoryVerify, AMissingStepIsNamed) {
  auto records = small_history(4);
  records.erase(records.begin() + 3);
  EXPECT_THAT(breaches(records),
              ElementsAre("record 3, step 3: is committed; expected step 2, missing",
                          "record 3, step 3: uses samples from epoch 0 place 8 on; "
                          "expected epoch 0 place 4, left out"));
}

TEST_F(HistoryVerify, ASampleUsedTwiceIsNamed) {
  auto records = small_history(3);
  std::get<HistoryStep>(records[3]).first = 3;
  EXPECT_THAT(breaches(records),
              ElementsAre("record 3, step 2: uses samples from epoch 0 place 3 on a "
                          "second time; expected epoch 0 place 4",
                          "record 4, step 3: uses samples from epoch 0 place 8 on; "
                          "expected epoch 0 place 7, left out"));
}

TEST_F(HistoryVerify, SamplesBeyondTheDataSetAreNamed) {
  auto records = small_history(3);
  std::get<HistoryStep>(records[4]).count = 3;
  EXPECT_THAT(breaches(records),
              ElementsAre("record 4, step 3: uses 3 samples from epoch 0 place 8 on; "
                          "expected 2"));
}

// Six steps: an epoch as it was drawn, and one of which a step is not known.
TEST_F(HistoryVerify, WhatTheRanksDrewIsProvedAndCounted) {
  std::vector<HistoryRecord> records = {small_run(), small_world()};
  for (int64_t step = 1; step <= 6; ++step) records.emplace_back(drawn_step(step));
  std::get<HistoryStep>(records[6]).drawn = {};
  write_history(path_, records);
  const auto report = verify_history(path_);
  EXPECT_THAT(report.breaches, IsEmpty());
  EXPECT_EQ(report.epochs, 2);
  EXPECT_EQ(report.epochs_drawn, 1);
  EXPECT_EQ(report.steps_drawn, 5);
  EXPECT_EQ(report.steps_not_drawn, 1);
}

TEST_F(HistoryVerify, ASampleThatWasDrawnTwiceMissingOrAnotherIsNamedWithItsStep) {
  const Sampler sampler({.size = 10, .batch = 4, .slices = 1, .seed = 7});
  const uint64_t key = sample_key(7, 0);
  const auto right = sampler.slice({0, 1}, 0);
  const auto named = [&](std::vector<int64_t> ids) {
    std::vector<HistoryRecord> records = {small_run(), small_world(), drawn_step(1),
                                          drawn_step(2), drawn_step(3)};
    std::get<HistoryStep>(records[3]).drawn = sum_samples(key, ids);
    return breaches(records);
  };
  auto doubled = right, other = right;
  doubled[1] = doubled[0];
  other[2] = sampler.slice({0, 0}, 0)[0];
  EXPECT_THAT(named(right), IsEmpty());
  EXPECT_THAT(named({right[1], right[0], right[3], right[2]}), IsEmpty());
  EXPECT_THAT(named(doubled),
              ElementsAre(HasSubstr("record 3, step 2: the ranks drew 4 "
                                    "samples with the sum")));
  EXPECT_THAT(named(other), ElementsAre(HasSubstr("record 3, step 2: the ranks drew")));
  EXPECT_THAT(named({right[0], right[1], right[2]}),
              ElementsAre(HasSubstr("the ranks drew 3 samples")));
  EXPECT_EQ(verify_history(path_).steps_drawn, 2);
  EXPECT_EQ(verify_history(path_).steps_not_drawn, 0);
}

TEST_F(HistoryVerify, AnOldHistoryHoldsAndSaysThatWhatWasDrawnIsNotKnown) {
  write_history(path_, small_history(6));
  const auto report = verify_history(path_);
  EXPECT_TRUE(report.holds());
  EXPECT_EQ(report.steps_drawn, 0);
  EXPECT_EQ(report.steps_not_drawn, 6);
  EXPECT_EQ(report.epochs, 2);
  EXPECT_EQ(report.epochs_drawn, 0);
}

TEST_F(HistoryVerify, AnEpochThatEndsEarlyIsNamed) {
  auto records = small_history(2);
  auto early = small_step(4);
  early.step = 3;
  records.emplace_back(early);
  EXPECT_THAT(breaches(records),
              ElementsAre("record 4, step 3: uses samples from epoch 1 place 0 on; "
                          "expected epoch 0 place 8, left out"));
}

TEST_F(HistoryVerify, AWrongHashAfterARollbackIsNamed) {
  auto records = with_rollback();
  std::get<HistoryStep>(records[10]).hash = RecordedHash{1};
  EXPECT_THAT(breaches(records),
              ElementsAre("record 10, step 5: hash 0000000000000001; expected "
                          "0000000000000069, as in record 6"));
}

TEST_F(HistoryVerify, AWrongLossAfterARollbackIsNamed) {
  auto records = with_rollback();
  std::get<HistoryStep>(records[11]).loss = 0.125;
  EXPECT_THAT(breaches(records),
              ElementsAre(HasSubstr("record 11, step 6: loss 0.125 (bits")));
}

TEST_F(HistoryVerify, StepsThatWereUndoneForDamageMayBeMadeWithOtherBits) {
  auto records = with_rollback();
  std::get<HistoryRollback>(records[8]).damaged = true;
  std::get<HistoryStep>(records[10]).hash = RecordedHash{1};
  std::get<HistoryStep>(records[11]).loss = 0.125;
  EXPECT_THAT(breaches(records), IsEmpty());
}

TEST_F(HistoryVerify, ARunThatIsNotExactMayMakeAStepWithOtherBits) {
  auto records = with_rollback();
  std::get<HistoryRun>(records[0]).exact = false;
  std::get<HistoryStep>(records[10]).hash = RecordedHash{1};
  EXPECT_THAT(breaches(records), IsEmpty());
}

TEST_F(HistoryVerify, AnEndWithOtherWeightsThanItsStepIsNamed) {
  auto records = with_rollback();
  std::get<HistoryEnd>(records.back()).weights_hash = RecordedHash{3};
  EXPECT_THAT(breaches(records),
              ElementsAre(HasSubstr("step 7: weights hash 0000000000000003")));
}

TEST_F(HistoryVerify, AnUnrecordedRollbackIsNamed) {
  auto records = with_rollback();
  records.erase(records.begin() + 8);
  const auto found = breaches(records);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0], "record 8: generation 1 begins at step 4; expected 6");
  EXPECT_THAT(found, testing::Contains(
                         "record 9, step 5: is committed again; expected step 7"));
}

TEST_F(HistoryVerify, ARollbackFromAnotherStepOrForwardIsNamed) {
  auto records = with_rollback();
  std::get<HistoryRollback>(records[8]) = {5, 4, ""};
  EXPECT_THAT(breaches(records),
              ElementsAre("record 8: a rollback from step 5; expected from 6"));
  std::get<HistoryRollback>(records[8]) = {6, 8, ""};
  EXPECT_THAT(breaches(records)[0],
              HasSubstr("a rollback from step 6 to 8; expected to one before it"));
}

TEST_F(HistoryVerify, GenerationsThatDoNotCountUpAreNamed) {
  auto records = small_history(2);
  records.emplace_back(small_world(0, 2));
  EXPECT_THAT(breaches(records),
              ElementsAre("record 4: generation 0; expected one above 0"));
}

// A clock that is set tells nothing of the order of commands; the file does.
TEST_F(HistoryVerify, AClockThatStepsBackIsNoBreach) {
  auto records = small_history(2);
  records.emplace_back(small_world(3, 2, 999));
  records.emplace_back(small_step(3, 3));
  records.emplace_back(small_world(0, 3, -5));
  EXPECT_THAT(breaches(records), IsEmpty());
  EXPECT_EQ(verify_history(path_).commands, 3);
}

TEST_F(HistoryVerify, ACommandThatAnotherHasFollowedIsNamed) {
  auto records = small_history(2);
  records.emplace_back(small_world(0, 2, 2000));
  records.emplace_back(small_world(1, 2, 1000));
  EXPECT_THAT(breaches(records),
              ElementsAre("record 5: a world of the command of record 1, which another "
                          "has followed; expected a later command"));
}

TEST_F(HistoryVerify, AStepOfAnotherGenerationIsNamed) {
  auto records = small_history(1);
  records.emplace_back(small_step(2, 5));
  EXPECT_THAT(breaches(records),
              ElementsAre("record 3, step 2: is of generation 5; expected 0"));
}

TEST_F(HistoryVerify, AStepAfterTheEndIsNamed) {
  auto records = small_history(1);
  records.emplace_back(HistoryEnd{1, 0, {}});
  records.emplace_back(small_step(2));
  EXPECT_THAT(breaches(records),
              ElementsAre("record 4, step 2: is committed after the end; expected a "
                          "world before it"));
}

TEST_F(HistoryVerify, EveryTruncationIsATornTailAndNoBreach) {
  const std::string whole = bytes_of(with_rollback());
  const size_t first = kHistoryMagic.size() + history_bytes(small_run(), 0).size();
  for (size_t length = 0; length < whole.size(); ++length) {
    put_file(path_, whole.substr(0, length));
    if (length < first) {
      EXPECT_THROW((void)verify_history(path_), DataError) << length;
      continue;
    }
    const auto report = verify_history(path_);
    EXPECT_THAT(report.breaches, IsEmpty()) << length;
    EXPECT_LT(report.torn_bytes, 64) << length;
  }
}

TEST_F(HistoryVerify, EveryFlippedBitIsNamed) {
  const std::string whole = bytes_of(with_rollback());
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string bytes = whole;
    bytes[bit / 8] ^= static_cast<char>(1 << bit % 8);
    put_file(path_, bytes);
    if (bit / 8 < kHistoryMagic.size())
      EXPECT_THROW((void)verify_history(path_), DataError) << bit;
    else
      EXPECT_FALSE(verify_history(path_).holds()) << bit;
  }
}

TEST_F(HistoryVerify, ARecordCutOutIsNamed) {
  const std::string whole = bytes_of(small_history(4));
  const size_t step = history_bytes(small_step(1), 0).size();
  put_file(path_, whole.substr(0, whole.size() - 2 * step) +
                      whole.substr(whole.size() - step));
  EXPECT_THAT(verify_history(path_).breaches,
              ElementsAre(HasSubstr("or the record before it is gone")));
}

TEST_F(HistoryVerify, TwoRunsThatAgreeHold) {
  write_history(path_, with_rollback());
  const std::string other = folder_ / "other.log";
  auto undisturbed = small_history(7);
  undisturbed.push_back(HistoryEnd{7, 0, RecordedHash{107}});
  write_history(other, undisturbed);
  const auto report = verify_history(path_, other);
  EXPECT_THAT(report.breaches, IsEmpty());
  EXPECT_EQ(report.steps_compared, 3);
  EXPECT_EQ(report.values_compared, 14);
  EXPECT_EQ(report.steps_shared, 7);
}

TEST_F(HistoryVerify, TwoRunsWithDifferentHashesAreNamed) {
  write_history(path_, small_history(3));
  const std::string other = folder_ / "other.log";
  auto records = small_history(3);
  std::get<HistoryStep>(records[3]).hash = RecordedHash{1};
  write_history(other, records);
  EXPECT_THAT(verify_history(path_, other).breaches,
              ElementsAre(text(other,
                               ": record 3, step 2: weights hash 0000000000000001; "
                               "expected 0000000000000066, as in ",
                               path_)));
}

// An older program's hashes are of another kind: equal among themselves, and no
// breach where they meet newer ones.
TEST_F(HistoryVerify, HashesAreComparedWithThoseOfTheirKindAlone) {
  const std::string other = folder_ / "other.log";
  const auto stream_history = [](bool with_losses) {
    std::vector<HistoryRecord> records = {small_run(), small_world()};
    for (int64_t step = 1; step <= 3; ++step) {
      HistoryStep record = stream_step(step);
      if (!with_losses) record.loss = {};
      records.emplace_back(record);
    }
    return records;
  };
  auto old_one = stream_history(true);
  write_history(path_, old_one);
  std::get<HistoryStep>(old_one[3]).hash->value = 1;
  write_history(other, old_one);
  EXPECT_THAT(verify_history(path_, other).breaches,
              ElementsAre(HasSubstr("step 2: weights hash 0000000000000001")));

  write_history(path_, small_history(3));
  const auto by_losses = verify_history(path_, other);
  EXPECT_TRUE(by_losses.holds());
  EXPECT_EQ(by_losses.hashes_apart, 3);
  EXPECT_EQ(by_losses.values_compared, 3);

  write_history(other, stream_history(false));
  const auto by_nothing = verify_history(path_, other);
  EXPECT_THAT(by_nothing.breaches, IsEmpty());
  EXPECT_THAT(by_nothing.nothing, HasSubstr("the hashes of 3 are of two kinds"));
}

TEST_F(HistoryVerify, AnOlderProgramsRunGoesOnWithHashesOfTheNewKind) {
  auto records = with_rollback();
  for (size_t i = 2; i < 8; ++i)
    if (auto* step = std::get_if<HistoryStep>(&records[i]))
      step->hash = RecordedHash{900 + i, HashKind::kStream};
  write_history(path_, records);
  const auto report = verify_history(path_);
  EXPECT_THAT(report.breaches, IsEmpty());
  EXPECT_EQ(report.hashes_apart, 2);
}

TEST_F(HistoryVerify, WhatIsNoHistoryIsRefused) {
  EXPECT_THROW((void)verify_history(path_), DataError);
  put_file(path_, "");
  EXPECT_THROW((void)verify_history(path_), DataError);
  put_file(path_, "epoch step rank sample_id\n");
  EXPECT_THROW((void)verify_history(path_), DataError);
}

}  // namespace
}  // namespace cohort
