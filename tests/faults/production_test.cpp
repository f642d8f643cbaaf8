// SPDX-License-Identifier: Apache-2.0
// Every fault at every place of a whole run: the program's own loop, Trainer, Backup,
// Membership and checkpoint code, on ranks that are threads, with deadlines on a
// virtual clock. A run is first watched undisturbed, so that all passes of all fault
// points are known; then one fault strikes at each of them. Whatever happens, the run
// ends with the weights of an undisturbed one, or refuses with one clear line.
// COHORT_LONG=1: all cases; else what faults/cases.h says. COHORT_PART=I/N: part I of N
// of them. COHORT_POINT=NAME: of that point alone. COHORT_KIND=killed: of that kind.
// COHORT_CASE="{ rank 0 at ... }": as printed.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "cohort/core/testing_folder.h"
#include "cohort/core/testing_long_form.h"
#include "cohort/elastic/history_check.h"
#include "faults/cases.h"
#include "faults/scenario.h"
#include "faults/strike.h"
#include "faults/thread_run.h"
#include "support/ranks.h"

namespace cohort {
namespace {

using threads::Case;
using threads::FaultKind;
using threads::Model;
using threads::Passes;
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

// A run without strikes, and all that it passes.
struct Watched {
  Ending ending;
  Passes passes;
};

Watched watch(const Scenario& scenario) {
  Watched watched;
  watched.ending = play(scenario, {}, [&](std::string_view name, int rank, int64_t) {
    ++watched.passes[{std::string(name), rank}];
  });
  return watched;
}

// Empty: weights that were healed, or that worlds of several sizes made together, have
// no bits that one could foretell.
std::string wanted_hash(const Scenario& scenario, const Ending& undisturbed) {
  EXPECT_EQ(undisturbed.run.error, "");
  EXPECT_EQ(undisturbed.run.generations, 0) << undisturbed.run.notes;
  const bool resizes = scenario.plot == Plot::kGrows || scenario.plot == Plot::kShrinks;
  if (scenario.plot == Plot::kHealed || (scenario.model == Model::kCalling && resizes))
    return "";
  return undisturbed.run.done ? undisturbed.run.done->weights_hash : "none";
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

// All passes of a run with the plot, and of an undisturbed one.
using MakeCases =
    std::function<std::vector<Case>(const Passes& passes, const Passes& undisturbed)>;

void list_cases(const Scenario& scenario, const MakeCases& make,
                const std::string& path) {
  const Watched watched = watch(scenario);
  const Scenario calm = threads::undisturbed(scenario);
  const Watched undisturbed = calm.plot == scenario.plot ? watched : watch(calm);
  threads::write_cases(path, {wanted_hash(scenario, undisturbed.ending),
                              part_of(make(watched.passes, undisturbed.passes))});
}

// Plays cases in children, some after another in each; one lists them before. Ranks
// wait for one another most of the time: two children fill two cores.
size_t play_all(
    const Scenario& scenario, const MakeCases& make,
    const std::function<void(const Case&, const std::string& wanted)>& try_it) {
  constexpr size_t kChildren = 2, kAtOnce = 10 * kChildren;
  const Folder folder;
  const std::string path = folder.path + "/cases";
  test::run_in_child([&] { list_cases(scenario, make, path); });
  const auto [wanted, cases] = threads::read_cases(path);
  for (size_t first = 0; first < cases.size() && !testing::Test::HasFailure();
       first += kAtOnce) {
    const size_t end = std::min(cases.size(), first + kAtOnce);
    test::run_in_children(kChildren, [&](size_t child) {
      for (size_t i = first + child; i < end; i += kChildren) {
        SCOPED_TRACE(testing::PrintToString(cases[i]));
        try_it(cases[i], wanted);
      }
    });
  }
  std::fprintf(stderr, "%zu cases\n", cases.size());
  testing::Test::RecordProperty("cases", static_cast<int>(cases.size()));
  return cases.size();
}

class FaultEnumeration : public testing::TestWithParam<Scenario> {};

TEST_P(FaultEnumeration, EveryCaseEndsAsIfThereWereNone) {
  const auto make = [](const Passes& passes, const Passes& undisturbed) {
    std::vector<Case> cases;
    for (auto& strike :
         choose(threads::all_strikes(GetParam(), passes), GetParam(), undisturbed))
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
  const size_t many = test::is_long() ? 2000 : 25;
  const auto make = [many](const Passes& passes, const Passes&) {
    const auto all = threads::all_strikes(GetParam(), passes);
    std::mt19937_64 random(11);
    std::vector<Case> cases;
    while (cases.size() < many) {
      const Strike& a = all[random() % all.size()];
      const Strike& b = all[random() % all.size()];
      cases.push_back({a, b});
    }
    if (GetParam().ranks > 2) return cases;
    std::vector<Strike> step;  // those of the fourth step
    int64_t most = 0;
    for (const auto& strike : all)
      if (strike.point == "engine.action") most = std::max(most, strike.pass);
    const int64_t actions = most / kSteps;
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
        if (test::is_long() || alike(a, b)) cases.push_back({a, b});
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
                         testing::ValuesIn(test::is_long()
                                               ? threads::every_scenario()
                                               : threads::short_scenarios()),
                         name_of_case);

const std::vector<Scenario> kPairs = {{Plot::kCalm, 2, 0}, {Plot::kCalm, 3, 3}};
INSTANTIATE_TEST_SUITE_P(Scenarios, FaultPairs, testing::ValuesIn(kPairs),
                         name_of_case);

}  // namespace
}  // namespace cohort
