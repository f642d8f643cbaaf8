// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/schedule_csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "cohort/core/error.h"
#include "cohort/core/testing_error.h"
#include "cohort/step/checker.h"
#include "cohort/step/generator.h"
#include "cohort/step/memory_plan.h"
#include "cohort/step/testing_golden.h"
#include "cohort/step/testing_old_copies.h"
#include "cohort/step/testing_old_files.h"
#include "cohort/step/testing_pipeline.h"

namespace cohort {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Schedule sample(int ranks, int shard, int replicate = 1) {
  std::vector<BlockSpec> blocks(3);
  for (int b = 0; b < 3; ++b)
    blocks[b] = {.name = "name, with \"odd\"\nletters",
                 .parameters = {{.name = text("w", b), .shape = {2000}, .end = 2000}},
                 .frozen = {b == 1},
                 .keeps_statistics = true,
                 .activation_bytes = 1000 + b,
                 .output_bytes = 10};
  return generate(blocks, {.dp = ranks, .shard = shard, .replicate = replicate},
                  {.slices = ranks + 1, .clip = true, .vote = true});
}

void expect_equal(const Action& a, const Action& b) {
  EXPECT_EQ(a.kind, b.kind);
  EXPECT_EQ(a.lane, b.lane);
  EXPECT_EQ(a.block, b.block);
  EXPECT_EQ(a.slice, b.slice);
  EXPECT_EQ(a.buckets, b.buckets);
  EXPECT_EQ(a.bytes, b.bytes);
  EXPECT_EQ(a.scratch, b.scratch);
  EXPECT_EQ(a.calls, b.calls);
  EXPECT_EQ(a.reads, b.reads);
  EXPECT_EQ(a.writes, b.writes);
  EXPECT_EQ(a.needs, b.needs);
  EXPECT_EQ(a.waits, b.waits);
  EXPECT_EQ(a.waits_before, b.waits_before);
  EXPECT_EQ(a.batch, b.batch);
}

std::string refusal(const std::string& csv) {
  return test::message_of<ConfigError>([&] { check(from_csv(csv).schedule); });
}

// Comments for people alone; records are not.
std::string without_comments(const std::string& csv) {
  std::string kept;
  std::istringstream lines(csv);
  for (std::string line; std::getline(lines, line);)
    if (!line.starts_with("# ")) kept += line + "\n";
  return kept;
}

std::string replaced(std::string csv, const std::string& what, const std::string& by) {
  const auto at = csv.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return csv.replace(at, what.size(), by);
}

void expect_survives(const Schedule& schedule, const std::string& name) {
  SCOPED_TRACE(name);
  const std::string csv = to_csv(schedule);
  const Schedule back = from_csv(without_comments(csv)).schedule;
  EXPECT_EQ(back.mesh, schedule.mesh);
  EXPECT_EQ(back.slices, schedule.slices);
  EXPECT_EQ(back.shard, schedule.shard);
  EXPECT_EQ(back.channels, schedule.channels);
  EXPECT_EQ(back.buffers, schedule.buffers);
  ASSERT_EQ(back.buckets.size(), schedule.buckets.size());
  for (size_t b = 0; b < back.buckets.size(); ++b)
    EXPECT_EQ(back.buckets[b].cut, schedule.buckets[b].cut);
  EXPECT_EQ(back.stages, schedule.stages);
  EXPECT_EQ(back.runs_ahead, schedule.runs_ahead);
  EXPECT_EQ(back.computes_in, schedule.computes_in);
  EXPECT_EQ(back.precision, schedule.precision);
  EXPECT_EQ(back.text(), schedule.text());
  ASSERT_EQ(back.groups.size(), schedule.groups.size());
  for (size_t g = 0; g < back.groups.size(); ++g) {
    EXPECT_EQ(back.groups[g].name, schedule.groups[g].name);
    EXPECT_EQ(back.groups[g].axes, schedule.groups[g].axes);
    EXPECT_EQ(back.groups[g].places, schedule.groups[g].places);
    EXPECT_EQ(back.groups[g].mirrors, schedule.groups[g].mirrors);
  }
  ASSERT_EQ(back.roles.size(), schedule.roles.size());
  for (size_t r = 0; r < back.roles.size(); ++r) {
    EXPECT_EQ(back.roles[r].ranks, schedule.roles[r].ranks);
    EXPECT_EQ(back.roles[r].slices, schedule.roles[r].slices);
    ASSERT_EQ(back.roles[r].actions.size(), schedule.roles[r].actions.size());
    for (size_t i = 0; i < back.roles[r].actions.size(); ++i)
      expect_equal(back.roles[r].actions[i], schedule.roles[r].actions[i]);
  }
  EXPECT_EQ(check(back).largest().parts.total(),
            check(schedule).largest().parts.total());
  EXPECT_EQ(without_comments(to_csv(back)), without_comments(csv));
}

TEST(ScheduleCsv, EveryRecordSurvives) {
  expect_survives(sample(1, 0), "one rank");
  expect_survives(sample(3, 0), "3 ranks");
  expect_survives(sample(3, 2), "shard 2");
  expect_survives(sample(2, 3), "shard 3");
  expect_survives(sample(4, 3, 2), "hybrid");
}

TEST(ScheduleCsv, PipelinesSurvive) {
  for (auto [name, pipe] : test::right_pipelines()) {
    expect_survives(test::make(pipe), name);
    pipe.batched = pipe.runs_ahead = true;
    expect_survives(test::make(pipe), name + " ahead");
  }
}

TEST(ScheduleCsv, PlacesSurvive) {
  Schedule schedule = sample(2, 2);
  plan_device(schedule, Offload::kOptimizer);
  expect_survives(schedule, "on a device");
}

// As they were first written, without stages.
TEST(ScheduleCsv, FilesWithoutStagesLoad) {
  std::string csv = to_csv(test::make(test::right_pipelines()[0].pipe));
  while (csv.find("#@ stage") != csv.npos) {
    const auto at = csv.find("#@ stage");
    csv.erase(at, csv.find('\n', at) + 1 - at);
  }
  EXPECT_EQ(refusal(csv), "no error");
  EXPECT_TRUE(from_csv(csv).schedule.stages.empty());
}

// What the first release wrote loads, and means what it meant.
TEST(ScheduleCsv, OldFilesLoad) {
  const auto parts = [](const char* csv) {
    return check(from_csv(csv).schedule).largest().parts;
  };
  const MemoryParts one = parts(test::kOldOneRank);
  EXPECT_EQ(one.state, 8060928);
  EXPECT_EQ(one.activations, 1974272);
  EXPECT_EQ(one.scratch, 524288);
  const MemoryParts shared = parts(test::kOldShared);
  EXPECT_EQ(shared.state, 4554752);
  EXPECT_EQ(shared.activations, 12540864);
  EXPECT_EQ(shared.gradients, 1708032);
  EXPECT_EQ(shared.scratch, 10322432);
  const MemoryParts hybrid = parts(test::kOldHybrid);
  EXPECT_EQ(hybrid.state, 4042752);
  EXPECT_EQ(hybrid.activations, 362496);
  EXPECT_EQ(hybrid.gradients, 3227648);
  EXPECT_EQ(hybrid.parameters, 3227648);
  for (const char* old : {test::kOldOneRank, test::kOldShared, test::kOldHybrid}) {
    const std::string now = to_csv(from_csv(old).schedule);
    EXPECT_EQ(refusal(now), "no error");
    EXPECT_EQ(to_csv(from_csv(now).schedule), now);
  }
}

// Files of the time when the host updated what it held: what copied is no more, and all
// that waited for it waits for what it waited for.
TEST(ScheduleCsv, FilesWithOffloadAndFetchLoad) {
  for (const char* old :
       {test::kCopiesOneRank, test::kCopiesShared, test::kCopiesCut}) {
    const ScheduleFile file = from_csv(old);
    EXPECT_EQ(refusal(old), "no error");
    const std::string now = to_csv(file.schedule);
    EXPECT_EQ(now.find("Offload"), now.npos);
    EXPECT_EQ(now.find("Fetch"), now.npos);
    EXPECT_EQ(refusal(now), "no error");
    EXPECT_EQ(to_csv(from_csv(now).schedule), now);
  }
  const Schedule one = from_csv(test::kCopiesOneRank).schedule;
  const std::vector<Action>& actions = one.roles[0].actions;
  ASSERT_EQ(actions.size(), 9u);
  EXPECT_EQ(actions[7].kind, ActionKind::kUpdate);
  EXPECT_THAT(actions[7].writes,
              testing::ElementsAre(Access{{What::kState, 0, kNone, 1}},
                                   Access{{What::kWhole, 0, kNone, 1}}));
}

// With an update that no longer waits for the vote, through the copy, they are refused.
TEST(ScheduleCsv, FilesWithOffloadAndFetchAreChecked) {
  EXPECT_THAT(refusal(replaced(test::kCopiesShared, "Sum0.1;Mirrored0.1,9",
                               "Sum0.1;Mirrored0.1,")),
              HasSubstr("Update"));
}

TEST(ScheduleCsv, FirstFilesWithOffloadAndFetchLoad) {
  std::string old = test::kOldOneRank;
  old = replaced(old, "0,0,1,7,Update,0,,,,0,2686976,0,0,0,,",
                 "0,0,1,7,Offload,1,,,,0,2686976,0,0,0,,6\n"
                 "0,0,1,8,Update,0,,,,0,2686976,0,0,0,,7\n"
                 "0,0,1,9,Fetch,1,,,,0,2686976,0,0,0,,8");
  old = replaced(old, "0,0,1,8,Commit,0,,,,0,0,8060928,0,0,Vote,",
                 "0,0,1,10,Commit,0,,,,0,0,8060928,0,0,Vote,9");
  EXPECT_EQ(refusal(old), "no error");
  EXPECT_EQ(from_csv(old).schedule.roles[0].actions.size(), 9u);
}

TEST(ScheduleCsv, OldFilesGiveBackWhatTheyTake) {
  const std::string old = test::kOldOneRank;
  EXPECT_THAT(refusal(replaced(old, "Forward,0,,0,0,0,0,", "Forward,0,,0,0,0,0,9")),
              HasSubstr("not given back"));
  const auto at = old.find(",Backward");
  EXPECT_THAT(refusal(old.substr(0, at) +
                      replaced(old.substr(at), ",0,0,0,0,0,", ",0,0,0,0,0,9")),
              HasSubstr("gives back"));
}

TEST(ScheduleCsv, RecordsAreChecked) {
  const std::string csv = without_comments(to_csv(sample(2, 3)));
  const auto says = [&](const std::string& what, const std::string& by) {
    return refusal(replaced(csv, what, by));
  };
  EXPECT_THAT(says("number=2", "number=3"), HasSubstr("line 1: '3'; legal"));
  EXPECT_THAT(says("#@ mesh", "#@ mash"), HasSubstr("line 2: 'mash'; legal"));
  EXPECT_THAT(says("cut=2", "cut=0"), HasSubstr("'0'; legal: cut=a number from 1"));
  EXPECT_THAT(says("holds=slot", "holds=slit"), HasSubstr("'slit'; legal: slot,"));
  EXPECT_THAT(says("#@ version number=2\n", ""), HasSubstr("before that of the"));
  EXPECT_THAT(refusal(csv.substr(csv.find("\nrole"))), HasSubstr("no records before"));
  EXPECT_THAT(says("kind=copy", "kind=group,group=7"),
              HasSubstr("channel 2 is of group 7; legal: one of 1"));
  EXPECT_THAT(says("Act0/0", "Ict0/0"), HasSubstr("column writes: 'Ict0/0=10'"));
  EXPECT_THAT(says("@0", "@900"), HasSubstr("buffer 900; legal: one of"));
  EXPECT_THAT(says("ReduceScatter,1,dp", "ReduceScatter,1,pp"),
              HasSubstr("column group: 'pp'; legal: 'dp'"));
}

TEST(ScheduleCsv, TheExampleIsWhatIsWritten) {
  const std::string csv = to_csv(test::make({.places = 4,
                                             .slices = 8,
                                             .ends = {1, 2, 3, 4},
                                             .order = test::one_forward_one_backward}));
  test::expect_golden("examples/schedules/one_forward_one_backward.csv", csv);
  EXPECT_EQ(refusal(csv), "no error");
}

TEST(ScheduleCsv, TimesSurvive) {
  const Schedule schedule = sample(2, 0);
  StepTimes times(schedule.roles.size());
  for (size_t r = 0; r < times.size(); ++r)
    for (size_t i = 0; i < schedule.roles[r].actions.size(); ++i)
      times[r].push_back({i * 1e-3, i * 1e-3 + 5e-6});
  const auto back = from_csv(to_csv(schedule, times)).times;
  ASSERT_EQ(back.size(), times.size());
  EXPECT_NEAR(back[0][3].begin, 3e-3, 1e-9);
  EXPECT_NEAR(back[0][3].end, 3.005e-3, 1e-9);
}

TEST(ScheduleCsv, ALongTimeComesBackOrIsRefused) {
  const Schedule schedule = sample(1, 0);
  StepTimes times(1, std::vector<ActionTime>(schedule.roles[0].actions.size()));
  times[0].back().end = 86'399.999'999'999;
  const std::string once = without_comments(to_csv(schedule, times));
  const auto back = from_csv(once);
  EXPECT_EQ(without_comments(to_csv(back.schedule, back.times)), once);
  times[0].back().end = 86'400.001;
  EXPECT_THAT(refusal(to_csv(schedule, times)),
              AllOf(HasSubstr("column end_us"), HasSubstr("from 0 to 86400000000")));
}

TEST(ScheduleCsv, SaysWhereAndWhatIsWrong) {
  const std::string csv = without_comments(to_csv(sample(2, 0)));
  EXPECT_THAT(refusal(""), HasSubstr("no header"));
  EXPECT_THAT(refusal("epoch,loss\n1,2\n"),
              AllOf(HasSubstr("line 1"), HasSubstr("'epoch'"), HasSubstr("nearest")));
  EXPECT_THAT(refusal(replaced(csv, "Forward", "Foward")),
              AllOf(HasSubstr("line"), HasSubstr("column kind"), HasSubstr("'Foward'"),
                    HasSubstr("nearest: Forward")));
  EXPECT_THAT(refusal(replaced(csv, "role,ranks", "role,rank")), HasSubstr("'rank'"));
  EXPECT_THAT(refusal(replaced(csv, "0,0,1,0,Forward", "0,0,1,7,Forward")),
              AllOf(HasSubstr("column id"), HasSubstr("'7'; legal: 0")));
  EXPECT_THAT(refusal(csv.substr(0, csv.find("\n0,") + 1)), HasSubstr("no action"));
  EXPECT_THAT(refusal(csv.substr(0, csv.size() / 2)), HasSubstr("cells"));
}

// Whatever is in the file, the answer is a verdict or one line; never a crash.
TEST(ScheduleCsv, AnyTextGetsAVerdict) {
  constexpr uint64_t kSeed = 20;
  std::mt19937_64 random(kSeed);
  const std::string csv = without_comments(to_csv(sample(3, 3)));
  const std::string letters = "0123456789,;:-x\nFA#. \xff";
  int refused = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string wrong = csv;
    for (uint64_t k = 0; k <= random() % 4; ++k) {
      const size_t at = random() % wrong.size();
      const char letter = letters[random() % letters.size()];
      switch (random() % 4) {
        case 0:
          wrong[at] = letter;
          break;
        case 1:
          wrong.insert(at, 1, letter);
          break;
        case 2:
          wrong.erase(at, 1 + random() % 20);
          break;
        default:
          wrong.insert(at, wrong.substr(random() % wrong.size(), random() % 90));
      }
    }
    const std::string verdict = refusal(wrong);
    refused += verdict != "no error";
    EXPECT_EQ(verdict.find('\n'), std::string::npos) << "seed " << kSeed;
  }
  EXPECT_GT(refused, 1000) << "seed " << kSeed;
}

// A role of a million ranks is written in nine letters.
TEST(ScheduleCsv, ARankHasOneRole) {
  std::string csv =
      "role,ranks,slices,id,kind,lane,group,block,slice,buckets,bytes,takes,frees,"
      "scratch,needs,waits\n";
  for (int role = 0; role < 3000; ++role)
    csv += text(role, ",0-1048575,1,0,Commit,0,,,,,0,0,0,0,,\n");
  EXPECT_THAT(refusal(csv), AllOf(HasSubstr("line 3, column ranks"),
                                  HasSubstr("1048576 ranks in all")));
}

}  // namespace
}  // namespace cohort
