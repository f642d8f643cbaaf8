// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/schedule_csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "cohort/core/error.h"
#include "cohort/step/checker.h"
#include "cohort/step/generator.h"

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
                  {.slices = ranks + 1, .clip = true, .vote = true, .offload = true});
}

void expect_equal(const Action& a, const Action& b) {
  EXPECT_EQ(a.kind, b.kind);
  EXPECT_EQ(a.lane, b.lane);
  EXPECT_EQ(a.block, b.block);
  EXPECT_EQ(a.slice, b.slice);
  EXPECT_EQ(a.buckets, b.buckets);
  EXPECT_EQ(a.bytes, b.bytes);
  EXPECT_EQ(a.takes, b.takes);
  EXPECT_EQ(a.frees, b.frees);
  EXPECT_EQ(a.scratch, b.scratch);
  EXPECT_EQ(a.needs, b.needs);
  EXPECT_EQ(a.waits, b.waits);
}

std::string refusal(const std::string& csv) {
  try {
    check(from_csv(csv).schedule);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

std::string without_comments(const std::string& csv) {
  std::string kept;
  std::istringstream lines(csv);
  for (std::string line; std::getline(lines, line);)
    if (line.empty() || line[0] != '#') kept += line + "\n";
  return kept;
}

std::string replaced(std::string csv, const std::string& what, const std::string& by) {
  const auto at = csv.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return csv.replace(at, what.size(), by);
}

TEST(ScheduleCsv, RolesActionsAndGroupsSurvive) {
  for (const Schedule& schedule :
       {sample(1, 0), sample(3, 0), sample(3, 2), sample(2, 3), sample(4, 3, 2)}) {
    const Schedule back = from_csv(without_comments(to_csv(schedule))).schedule;
    EXPECT_EQ(back.mesh, schedule.mesh);
    EXPECT_EQ(back.slices, schedule.slices);
    ASSERT_EQ(back.groups.size(), schedule.groups.size());
    for (size_t g = 0; g < back.groups.size(); ++g) {
      EXPECT_EQ(back.groups[g].name, schedule.groups[g].name);
      EXPECT_EQ(back.groups[g].axes, schedule.groups[g].axes);
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
  }
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
              AllOf(HasSubstr("line 2"), HasSubstr("column kind"),
                    HasSubstr("'Foward'"), HasSubstr("nearest: Forward")));
  EXPECT_THAT(refusal(replaced(csv, "dp:2x1", "dp:2")), HasSubstr("column group"));
  EXPECT_THAT(refusal(replaced(csv, "role,ranks", "role,rank")), HasSubstr("'rank'"));
  EXPECT_THAT(refusal(replaced(csv, "0,0,1,0,Forward", "0,0,1,7,Forward")),
              AllOf(HasSubstr("column id"), HasSubstr("'7'; legal: 0")));
  EXPECT_THAT(refusal(csv.substr(0, csv.find('\n') + 1)), HasSubstr("no action"));
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
    refused += verdict != "accepted";
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
