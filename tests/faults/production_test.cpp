// SPDX-License-Identifier: Apache-2.0
// Every fault at every place of a whole run: the program's own loop, Trainer, Backup,
// Membership and checkpoint code, on ranks that are threads, with deadlines on a
// virtual clock. A run is first watched undisturbed, so that all passes of all fault
// points are known; then one fault strikes at each of them. Whatever happens, the run
// ends with the weights of an undisturbed one, or refuses with one clear line.
// COHORT_LONG=1: all cases; else some of each kind. COHORT_PART=I/N: part I of N of
// them. COHORT_POINT=NAME: of that point alone. COHORT_KIND=killed: of that kind.
// COHORT_CASE="{ rank 0 at ... }": as printed.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>

#include "cohort/core/hash.h"
#include "cohort/core/testing_folder.h"
#include "cohort/elastic/history_check.h"
#include "faults/scenario.h"
#include "faults/strike.h"
#include "faults/thread_run.h"
#include "support/ranks.h"

namespace cohort {
namespace {

using threads::FaultKind;
using threads::Model;
using threads::Plot;
using threads::Scenario;
using threads::Strike;
using threads::ThreadRun;
using threads::ThreadRunResult;

constexpr int kSlices = 6;
constexpr int64_t kBatch = 12, kSteps = 7;  // 40 samples: 4 steps per epoch

std::string new_folder() {
  static int number = 0;
  const std::string path =
      text(testing::TempDir(), "/cohort_faults_", ::getpid(), "_", number++);
  std::filesystem::create_directories(path);
  return path;
}

struct Folder {
  std::string path = new_folder();
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

TrainerOptions trainer_options(const Scenario& scenario, const std::string& folder) {
  TrainerOptions options;
  options.epochs = 2;
  options.max_steps = kSteps;
  options.batch = kBatch;
  options.slices = kSlices;
  options.seed = 3;
  options.layout = {.dp = scenario.ranks / (scenario.stages * scenario.parts),
                    .tp = scenario.parts,
                    .pp = scenario.stages,
                    .shard = scenario.shard};
  const bool interleaved = scenario.order == PipelineOrder::kInterleaved;
  options.step.pipeline = {.order = scenario.order,
                           .stages_per_place = interleaved ? 2 : 1};
  options.update = {.name = "adamw"};
  options.rate.base = 0.02;
  options.step.exact = scenario.is_exact();
  options.step.recompute =
      (scenario.model == Model::kCalling || scenario.model == Model::kGpt) &&
      scenario.shard == 3;
  options.step.elastic = true;
  options.step.bucket_bytes = 2'000;
  options.elastic = true;
  options.drift_every_steps = 2;
  options.started = std::chrono::system_clock::now();
  options.history = folder + "/history.log";
  options.sample_log = folder + "/samples";
  options.backup = {.dir = folder + "/saved",
                    .every_steps = 3,
                    .async = scenario.async,
                    .snapshot_every = 2};
  return options;
}

// What the plot itself has in store.
std::vector<Fault> faults_of(const Scenario& scenario, ThreadRun*& run) {
  const int other = scenario.ranks - 1;
  const auto at_step = [&](int64_t step, const std::function<void()>& call) {
    return Fault{.name = "engine.action",
                 .rank = 0,
                 .index = 2,
                 .count = step,
                 .action = Fault::Action::kCall,
                 .call = call};
  };
  switch (scenario.plot) {
    case Plot::kKilled: {
      Fault kill{.name = "engine.action", .rank = other, .index = 2, .count = 5};
      kill.action = Fault::Action::kCall;
      kill.call = [&run, other] { run->kill(other); };
      return {kill};
    }
    case Plot::kFlipped:
    case Plot::kHealed: {
      Fault flip{.name = "engine.action", .rank = other, .index = 0, .count = 4};
      flip.action = Fault::Action::kFlip;
      return {flip};
    }
    case Plot::kGrows:
      return {at_step(4, [&run, scenario] {
        run->resize(scenario.ranks + scenario.team().ranks());
      })};
    case Plot::kShrinks:
      return {at_step(4, [&run, scenario] {
        run->resize(scenario.ranks - scenario.team().ranks());
      })};
    default:
      return {};
  }
}

// A folder in which a run was stopped after some steps.
void begin_run(const Scenario& scenario, const std::string& folder) {
  FaultPlan none;
  TrainerOptions options = trainer_options(scenario, folder);
  options.max_steps = 5;
  ThreadRun run({.ranks = scenario.ranks,
                 .team = scenario.team(),
                 .trainer = options,
                 .faults = &none,
                 .model = scenario.model});
  EXPECT_EQ(run.run().error, "");
}

struct Ending {
  ThreadRunResult run;
  HistoryReport history;
  bool missed = false;  // some strike never came
  bool idle = false;    // none did
};

Ending play(const Scenario& scenario, const std::vector<Strike>& strikes,
            const FaultPlan::Observer& observer = nullptr) {
  Folder folder;
  TrainerOptions options = trainer_options(scenario, folder.path);
  if (scenario.plot == Plot::kResumed) {
    begin_run(scenario, folder.path);
    options.backup.resume = true;
    options.started += std::chrono::seconds(60);
  }
  ThreadRun* handle = nullptr;
  FaultPlan faults;
  if (observer) faults.observe(observer);
  for (auto& fault : faults_of(scenario, handle)) faults.arm(std::move(fault));
  int64_t armed = 0;
  for (const auto& strike : strikes)
    for (auto& fault : threads::faults_of(strike, handle)) {
      faults.arm(std::move(fault));
      ++armed;
    }
  std::string name = testing::PrintToString(scenario);
  for (const auto& strike : strikes) name += "; " + testing::PrintToString(strike);
  ThreadRun run({.ranks = scenario.ranks,
                 .team = scenario.team(),
                 .trainer = options,
                 .faults = &faults,
                 .model = scenario.model,
                 .name = name});
  handle = &run;
  Ending ending{.run = run.run(), .history = {}};
  const int64_t pending = strikes.empty() ? 0 : faults.pending();
  ending.missed = pending > 0;
  ending.idle = armed > 0 && pending >= armed;
  // A run that is refused before its first step has none.
  if (ending.run.error.empty() || std::filesystem::exists(options.history))
    ending.history = verify_history(options.history);
  return ending;
}

// Empty: weights that were healed, or that worlds of several sizes made together, have
// no bits that one could foretell.
std::string undisturbed_hash(const Scenario& scenario) {
  const bool resizes = scenario.plot == Plot::kGrows || scenario.plot == Plot::kShrinks;
  if (scenario.plot == Plot::kHealed || (scenario.model == Model::kCalling && resizes))
    return "";
  Scenario calm = scenario;
  if (calm.plot != Plot::kResumed) calm.plot = Plot::kCalm;
  const Ending ending = play(calm, {});
  EXPECT_EQ(ending.run.error, "");
  EXPECT_EQ(ending.run.generations, 0) << ending.run.notes;
  return ending.run.done ? ending.run.done->weights_hash : "none";
}

// All passes of a run with that plot, each with the faults that fit its place.
std::vector<Strike> all_strikes(const Scenario& scenario) {
  std::map<std::pair<std::string, int>, int64_t> passes;
  play(scenario, {}, [&](std::string_view name, int rank, int64_t) {
    ++passes[{std::string(name), rank}];
  });
  // A change is noticed some messages earlier or later, a newcomer comes when it can.
  const bool varies =
      (scenario.plot != Plot::kCalm && scenario.plot != Plot::kResumed) ||
      scenario.async;
  std::vector<Strike> strikes;
  for (const auto& [where, count] : passes) {
    const auto& [point, rank] = where;
    const std::vector<FaultKind> here = threads::kinds_at(point);
    if (const char* only = std::getenv("COHORT_POINT"); only && point != only) continue;
    const bool newcomer = rank >= scenario.ranks;
    // How many messages a call takes differs a little: the last ones may not come.
    const int64_t usual = point == "comm.message" ? count * 9 / 10 : count;
    const int64_t sure = newcomer ? 0 : varies ? count / 2 : usual;
    const char* const wanted = std::getenv("COHORT_KIND");
    for (int64_t pass = 1; pass <= count; ++pass)
      for (const FaultKind kind : here) {
        if (wanted &&
            wanted != std::string(threads::kKindNames[static_cast<int>(kind)]))
          continue;
        // A run that is not exact heals what has flipped, to bits of its own.
        if (scenario.model == Model::kCalling && kind == FaultKind::kFlip) continue;
        strikes.push_back({point, rank, pass, kind, pass > sure});
      }
  }
  return strikes;
}

bool is_long() { return std::getenv("COHORT_LONG") != nullptr; }

// So many, of every point and kind alike, or all.
std::vector<Strike> choose(std::vector<Strike> all, size_t most, uint64_t seed) {
  if (is_long() || all.size() <= most) return all;
  std::mt19937_64 random(seed);
  std::shuffle(all.begin(), all.end(), random);
  std::map<std::pair<std::string, FaultKind>, std::vector<Strike>> groups;
  for (auto& strike : all) groups[{strike.point, strike.kind}].push_back(strike);
  std::vector<Strike> chosen;
  for (size_t turn = 0; chosen.size() < most; ++turn)
    for (const auto& [key, group] : groups)
      if (turn < group.size() && chosen.size() < most) chosen.push_back(group[turn]);
  return chosen;
}

// Equal weights, or a refusal that says why; each step and validation told once.
void expect_undisturbed(const Ending& ending, const std::string& wanted) {
  for (const auto& breach : ending.history.breaches)
    ADD_FAILURE() << breach << '\n' << ending.run.notes;
  if (!ending.run.error.empty()) {
    EXPECT_THAT(ending.run.error, testing::HasSubstr("[")) << "no clear refusal";
    return;
  }
  ASSERT_TRUE(ending.run.done) << ending.run.notes;
  EXPECT_TRUE(wanted.empty() || ending.run.done->weights_hash == wanted)
      << ending.run.done->weights_hash << ", not " << wanted << '\n'
      << ending.run.notes;
  EXPECT_EQ(ending.run.done->steps, kSteps);
  const auto& told = ending.run.steps;
  EXPECT_EQ(std::set(told.begin(), told.end()).size(), told.size()) << "told twice";
}

// One rank or one message less: whatever that had, others have, too.
bool is_survived(const Scenario& scenario, const Strike& strike) {
  return scenario.plot != Plot::kFlipped && scenario.plot != Plot::kHealed &&
         (strike.kind == FaultKind::kKill || strike.kind == FaultKind::kFreeze ||
          strike.kind == FaultKind::kLose);
}

using Case = std::vector<Strike>;

std::vector<Case> part_of(std::vector<Case> all) {
  if (const char* const wanted = std::getenv("COHORT_CASE"))
    std::erase_if(
        all, [&](const Case& one) { return testing::PrintToString(one) != wanted; });
  const char* const part = std::getenv("COHORT_PART");
  size_t index = 0, parts = 1;
  if (part && std::sscanf(part, "%zu/%zu", &index, &parts) != 2) parts = 1;
  std::vector<Case> mine;
  for (size_t i = index; i < all.size(); i += parts) mine.push_back(std::move(all[i]));
  return mine;
}

// Plays cases in children, some at once; `make` lists them, the same in each.
size_t play_all(
    const Scenario& scenario, const std::function<std::vector<Case>()>& make,
    const std::function<void(const Case&, const std::string& wanted)>& try_it) {
  constexpr size_t kAtOnce = 10;
  const std::string folder = new_folder();
  const std::string list = folder + "/count";
  size_t count = 0;
  for (size_t first = 0;; first += kAtOnce) {
    test::run_in_child([&] {
      const auto cases = part_of(make());
      if (FILE* file = std::fopen(list.c_str(), "w"))
        std::fprintf(file, "%zu", cases.size()), std::fclose(file);
      const std::string wanted = undisturbed_hash(scenario);
      for (size_t i = first; i < std::min(cases.size(), first + kAtOnce); ++i) {
        SCOPED_TRACE(testing::PrintToString(cases[i]));
        try_it(cases[i], wanted);
      }
    });
    if (FILE* file = std::fopen(list.c_str(), "r")) {
      if (std::fscanf(file, "%zu", &count) != 1) count = 0;
      std::fclose(file);
    }
    if (first + kAtOnce >= count || testing::Test::HasFailure()) break;
  }
  std::filesystem::remove_all(folder);
  std::fprintf(stderr, "%zu cases\n", count);
  testing::Test::RecordProperty("cases", static_cast<int>(count));
  return count;
}

class FaultEnumeration : public testing::TestWithParam<Scenario> {};

TEST_P(FaultEnumeration, EveryCaseEndsAsIfThereWereNone) {
  constexpr size_t kShort = 40;
  const auto make = [] {
    std::vector<Case> cases;
    for (auto& strike : choose(all_strikes(GetParam()), kShort, 7))
      cases.push_back({std::move(strike)});
    return cases;
  };
  const auto try_it = [](const Case& one, const std::string& wanted) {
    Ending ending = play(GetParam(), one);
    if (ending.missed && one[0].point == "comm.message") ending = play(GetParam(), one);
    EXPECT_TRUE(one[0].may_miss || !ending.missed)
        << "the fault never struck: nothing was tested";
    if (is_survived(GetParam(), one[0])) {
      EXPECT_EQ(ending.run.error, "") << "nothing was lost that nobody else had";
    }
    expect_undisturbed(ending, wanted);
  };
  EXPECT_GT(play_all(GetParam(), make, try_it), 0u);
}

// Two faults in one run: in the long form every pair of one step's actions, and many
// pairs of all else. The first may keep the second from striking; one of them must.
class FaultPairs : public testing::TestWithParam<Scenario> {};

TEST_P(FaultPairs, EveryPairEndsAsIfThereWereNone) {
  const size_t many = is_long() ? 2000 : 40;
  const auto make = [many] {
    const auto all = all_strikes(GetParam());
    std::mt19937_64 random(11);
    std::vector<Case> cases;
    while (cases.size() < many) {
      const Strike& a = all[random() % all.size()];
      const Strike& b = all[random() % all.size()];
      cases.push_back({a, b});
    }
    if (GetParam().ranks > 2) return cases;
    std::vector<Strike> step;  // those of the fourth step
    int64_t passes = 0;
    for (const auto& strike : all)
      if (strike.point == "engine.action") passes = std::max(passes, strike.pass);
    const int64_t actions = passes / kSteps;
    for (const auto& strike : all)
      if (strike.point == "engine.action" && strike.pass > 3 * actions &&
          strike.pass <= 4 * actions && strike.kind != FaultKind::kFreeze)
        step.push_back(strike);
    const auto alike = [](const Strike& a, const Strike& b) {  // replicas stay equal
      return a.kind == FaultKind::kFlip && b.kind == FaultKind::kFlip &&
             a.pass == b.pass && a.rank < b.rank;
    };
    for (const auto& a : step)
      for (const auto& b : step)
        if (is_long() || alike(a, b)) cases.push_back({a, b});
    return cases;
  };
  const auto try_it = [](const Case& pair, const std::string& wanted) {
    const Ending ending = play(GetParam(), pair);
    EXPECT_FALSE(ending.idle) << "no fault struck: nothing was tested";
    expect_undisturbed(ending, wanted);
  };
  EXPECT_GT(play_all(GetParam(), make, try_it), 0u);
}

std::string name_of_case(const testing::TestParamInfo<Scenario>& info) {
  return testing::PrintToString(info.param);
}

INSTANTIATE_TEST_SUITE_P(Scenarios, FaultEnumeration,
                         testing::ValuesIn(is_long() ? threads::every_scenario()
                                                     : threads::short_scenarios()),
                         name_of_case);

const std::vector<Scenario> kPairs = {{Plot::kCalm, 2, 0}, {Plot::kCalm, 3, 3}};
INSTANTIATE_TEST_SUITE_P(Scenarios, FaultPairs, testing::ValuesIn(kPairs),
                         name_of_case);

}  // namespace
}  // namespace cohort
