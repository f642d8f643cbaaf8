// SPDX-License-Identifier: Apache-2.0
// What actions declare is true: while one runs, all memory of buckets that it did not
// declare is out of reach, and a touch ends the process.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <set>

#include "cohort/core/error.h"
#include "cohort/core/testing_folder.h"
#include "cohort/engine/action_watch.h"
#include "cohort/engine/executor.h"
#include "cohort/nn/models.h"
#include "cohort/optim/sgd.h"
#include "cohort/step/generator.h"
#include "support/ranks.h"

namespace cohort {
namespace {

constexpr int kDeclaredSlices = 4;
// Where a process says which action touched what it did not declare, before it ends.
char touched_path[256];
char current_action[64];

void on_touch(int) {
  const int file = ::open(touched_path, O_WRONLY | O_CREAT | O_APPEND, 0600);
  const ssize_t ignored = ::write(file, current_action, std::strlen(current_action));
  static_cast<void>(ignored);
  ::kill(::getpid(), SIGKILL);
}

bool is_gradient(What what) {
  return what == What::kLeaf || what == What::kPartial || what == What::kSum ||
         what == What::kMirrored;
}

bool is_of_bucket(What what) {
  return is_gradient(what) || what == What::kWhole || what == What::kState;
}

// Pages of the memory of buckets.
class Reach final : public ActionWatch {
 public:
  using Pages = std::set<uintptr_t>;

  // Whole pages alone: others lie between what is somebody else's.
  static Pages pages_of(const std::vector<Tensor>& memory) {
    const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
    Pages pages;
    for (const auto& tensor : memory) {
      const auto begin = reinterpret_cast<uintptr_t>(tensor.data_ptr());
      const uintptr_t end = begin + tensor.nbytes();
      for (uintptr_t at = (begin + page - 1) / page * page; at + page <= end;
           at += page)
        pages.insert(at);
    }
    return pages;
  }

  void watch(const Executor& executor) { executor_ = &executor; }
  // From here on an action of that kind is taken to declare nothing of such values.
  void forget(ActionKind kind, What what) { kind_ = kind, what_ = what; }

  void begin(const Action& action) override {
    Pages all, declared;
    for (int b = 0; b < static_cast<int>(executor_->schedule().buckets.size()); ++b)
      for (const What what : {What::kWhole, What::kState, What::kPartial})
        all.merge(pages_of(executor_->memory_of({what, b})));
    for (const auto* accesses : {&action.reads, &action.writes})
      for (const auto& [value, buffer, bytes] : *accesses)
        if (is_of_bucket(value.what) && !is_forgotten(action, value))
          declared.merge(pages_of(executor_->memory_of(value)));
    for (const uintptr_t page : all)
      if (!declared.contains(page)) hidden_.insert(page);
    std::snprintf(current_action, sizeof current_action, "%s\n",
                  std::string(name_of(action.kind)).c_str());
    set(PROT_NONE);
    ++actions;
  }
  void end(const Action&) override {
    set(PROT_READ | PROT_WRITE);
    hidden_.clear();
  }

  int64_t actions = 0;
  int64_t pages = 0;  // that were out of reach

 private:
  bool is_forgotten(const Action& action, const Value& value) const {
    const bool alike =
        value.what == what_ || (is_gradient(value.what) && is_gradient(what_));
    return kind_ && action.kind == *kind_ && alike;
  }
  void set(int protection) {
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    for (const uintptr_t at : hidden_)
      if (::mprotect(reinterpret_cast<void*>(at), page, protection) != 0)
        throw BugError("[test] mprotect");
    pages += static_cast<int64_t>(hidden_.size());
  }

  const Executor* executor_ = nullptr;
  std::optional<ActionKind> kind_;
  What what_ = What::kWhole;
  Pages hidden_;
};

struct DeclaredCase {
  int ranks = 2, stages = 1, shard = 0;
  bool elastic = false, exact = false, clip = false, shares = false;
};

std::ostream& operator<<(std::ostream& out, const DeclaredCase& c) {
  return out << "n" << c.ranks << "_pp" << c.stages << "_shard" << c.shard
             << (c.elastic ? "_elastic" : "") << (c.exact ? "_exact" : "")
             << (c.clip ? "_clip" : "") << (c.shares ? "_shares" : "");
}

// Buckets of several pages; statistics, dropout, recompute.
void run_steps(const DeclaredCase& c, Communicator& comm, Reach& reach) {
  Chain chain =
      make_mlp({.inputs = 60, .width = 64, .depth = 3, .classes = 10}, {.seed = 5});
  const auto rule = make_sgd({.momentum = 0.9});
  Executor executor(
      chain,
      generate(specs_of(chain),
               {.dp = c.ranks / c.stages, .pp = c.stages, .shard = c.shard},
               {.slices = kDeclaredSlices,
                .bucket_bytes = 20'000,
                .clip = c.clip,
                .elastic = c.elastic,
                .recompute = BlockChoice::parse("blocks=1", "test"),
                .exact = c.exact,
                .shares_memory = c.shares}),
      *rule, comm, {.clip = c.clip ? 0.5 : 0.0, .watch = &reach});
  reach.watch(executor);
  ::signal(SIGSEGV, on_touch);
  for (int64_t step = 0; step < 2; ++step)
    executor.run({.step = step,
                  .rate = 0.05,
                  .batch =
                      [](int slice) {
                        return Batch::of(
                            {{"input", at::full({3, 60}, 0.1 * (slice + 1))},
                             {"target", at::arange(3)}},
                            {3 * slice, 3 * slice + 1, 3 * slice + 2});
                      },
                  .in_turn = true});
}

std::vector<DeclaredCase> declared_cases() {
  std::vector<DeclaredCase> all;
  for (const int shard : {0, 1, 2, 3})
    for (const bool exact : {false, true})
      for (const bool elastic : {false, true}) {
        if (exact && elastic) continue;  // seals look at everything before a vote
        all.push_back({.shard = shard, .elastic = elastic, .exact = exact});
        all.push_back({.ranks = 4,
                       .stages = 2,
                       .shard = shard,
                       .elastic = elastic,
                       .exact = exact});
      }
  for (const int shard : {0, 1, 2, 3}) all.push_back({.shard = shard, .shares = true});
  for (const bool elastic : {false, true}) {
    all.push_back({.ranks = 2, .stages = 2, .elastic = elastic});
    all.push_back({.ranks = 4, .stages = 4, .elastic = elastic, .clip = true});
  }
  return all;
}

class Declarations : public testing::TestWithParam<DeclaredCase> {};

TEST_P(Declarations, NothingElseIsTouched) {
  const DeclaredCase c = GetParam();
  test::run_ranks({.backend = "shm", .size = c.ranks, .kind = test::Kind::kProcesses},
                  [&](Communicator& comm) {
                    Reach reach;
                    run_steps(c, comm, reach);
                    EXPECT_GT(reach.actions, 0);
                    EXPECT_GT(reach.pages, 0) << "nothing was out of reach";
                  });
}

INSTANTIATE_TEST_SUITE_P(Steps, Declarations, testing::ValuesIn(declared_cases()),
                         [](const auto& info) {
                           return testing::PrintToString(info.param);
                         });

// A declaration that is missing is found, in each kind of action that touches a bucket;
// but not of a Send, which whoever receives it reads through pages of its own.
struct Planted {
  ActionKind kind;
  What what;
  DeclaredCase c;
};

std::ostream& operator<<(std::ostream& out, const Planted& planted) {
  return out << name_of(planted.kind) << "_" << name_of(planted.what) << "_"
             << planted.c;
}

class PlantedViolations : public testing::TestWithParam<Planted> {};

TEST_P(PlantedViolations, AreFound) {
  const Planted& planted = GetParam();
  const test::TempFolder folder;
  const std::string path = folder / "touched";
  std::set<int> all;
  for (int r = 0; r < planted.c.ranks; ++r) all.insert(r);
  test::run_ranks(
      {.backend = "shm", .size = planted.c.ranks, .kind = test::Kind::kProcesses},
      [&](Communicator& comm, Store&) {
        std::snprintf(touched_path, sizeof touched_path, "%s", path.c_str());
        Reach reach;
        reach.forget(planted.kind, planted.what);
        try {
          run_steps(planted.c, comm, reach);
        } catch (const CommError&) {  // a peer has touched it first
        }
        ::kill(::getpid(), SIGKILL);
      },
      all);
  std::string said;
  std::ifstream(path) >> said;
  EXPECT_EQ(said, name_of(planted.kind));
}

constexpr DeclaredCase kWhole{}, kCut{.shard = 1}, kTurns{.shard = 2},
    kClipped{.clip = true}, kVoted{.elastic = true},
    kMirrored{.shard = 1, .elastic = true}, kAtOnce{.shares = true},
    kStages{.ranks = 2, .stages = 2, .elastic = true};

const std::vector<Planted> kPlanted = {
    {ActionKind::kForward, What::kWhole, kWhole},
    {ActionKind::kRecompute, What::kWhole, kWhole},
    {ActionKind::kBackward, What::kWhole, kWhole},
    {ActionKind::kBackward, What::kPartial, kWhole},
    {ActionKind::kBackward, What::kLeaf, kTurns},
    {ActionKind::kReduce, What::kPartial, kWhole},
    {ActionKind::kReduceScatter, What::kPartial, kCut},
    {ActionKind::kReduceScatter, What::kLeaf, kTurns},
    {ActionKind::kReduceUpdate, What::kState, kAtOnce},
    {ActionKind::kGather, What::kWhole, kCut},
    {ActionKind::kMirror, What::kSum, kMirrored},
    {ActionKind::kNorm, What::kPartial, kClipped},
    {ActionKind::kVote, What::kPartial, kVoted},
    {ActionKind::kUpdate, What::kState, kWhole},
    {ActionKind::kUpdate, What::kPartial, kWhole},
    {ActionKind::kRecv, What::kPartial, kStages},
};
INSTANTIATE_TEST_SUITE_P(Kinds, PlantedViolations, testing::ValuesIn(kPlanted),
                         [](const auto& info) {
                           return testing::PrintToString(info.param);
                         });

}  // namespace
}  // namespace cohort
