// SPDX-License-Identifier: Apache-2.0
// What actions declare is true: while one runs, all memory of buckets that it did not
// declare is out of reach, and what it only reads cannot be written; a touch ends the
// process.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <set>

#include "cohort/core/error.h"
#include "cohort/core/testing_folder.h"
#include "cohort/engine/testing_declared.h"
#include "support/ranks.h"

namespace cohort {
namespace {

using test::DeclaredCase;

// Where a process says which action touched what it did not declare, before it ends.
char touched_path[256];
char current_action[64];

void on_touch(int) {
  const int file = ::open(touched_path, O_WRONLY | O_CREAT | O_APPEND, 0600);
  const ssize_t ignored = ::write(file, current_action, std::strlen(current_action));
  static_cast<void>(ignored);
  ::kill(::getpid(), SIGKILL);
}

// Pages of the memory of buckets.
class Reach final : public test::ExecutorWatch {
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

  explicit Reach(std::optional<test::Forgotten> forgotten = {})
      : forgotten_(forgotten) {}

  void begin(const Action& action) override {
    const auto of_reads = forgotten_ && forgotten_->reads_stay
                              ? std::optional<test::Forgotten>()
                              : forgotten_;
    const Pages read = declared(action, action.reads, of_reads);
    const Pages written = declared(action, action.writes, forgotten_);
    Pages looked_at;
    for (int b = 0; b < static_cast<int>(executor().schedule().buckets.size()); ++b)
      for (const What what : {What::kWhole, What::kState, What::kLeaf, What::kPartial,
                              What::kSum, What::kMirrored}) {
        const Pages pages = pages_of(executor().memory_of({what, b}));
        if (is_sealed(action, what)) looked_at.insert(pages.begin(), pages.end());
        for (const uintptr_t page : pages)
          if (!written.contains(page)) watched_[page] = PROT_NONE;
      }
    for (auto& [page, protection] : watched_)
      if (read.contains(page) || looked_at.contains(page)) protection = PROT_READ;
    std::snprintf(current_action, sizeof current_action, "%s\n",
                  std::string(name_of(action.kind)).c_str());
    for (const auto& [page, protection] : watched_) {
      protect(page, protection);
      ++(protection == PROT_NONE ? hidden : kept);
    }
    ++actions;
  }
  void gives(const Tensor& memory) override {
    const at::Tensor ignored = memory.sum();  // as its receiver reads all of it
  }
  void end(const Action&) override {
    for (const auto& [page, protection] : watched_)
      protect(page, PROT_READ | PROT_WRITE);
    watched_.clear();
  }

  int64_t actions = 0;
  int64_t hidden = 0, kept = 0;  // pages that were out of reach, or only to be read

 private:
  Pages declared(const Action& action, const std::vector<Access>& accesses,
                 const std::optional<test::Forgotten>& forgotten) const {
    Pages pages;
    for (const auto& [value, buffer, bytes] : accesses)
      if (test::is_of_bucket(value.what) &&
          !test::is_forgotten(forgotten, action, value))
        pages.merge(pages_of(executor().memory_of(value)));
    return pages;
  }
  // In exact, elastic steps a Vote looks whether any of the state has changed by
  // itself. That is no value of the step, and nobody has to wait for it: an exception.
  bool is_sealed(const Action& action, What what) const {
    const Schedule& schedule = executor().schedule();
    return schedule.exact && schedule.elastic && action.kind == ActionKind::kVote &&
           (what == What::kState || what == What::kWhole);
  }
  static void protect(uintptr_t at, int protection) {
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    if (::mprotect(reinterpret_cast<void*>(at), page, protection) != 0)
      throw BugError("[test] mprotect");
  }

  const std::optional<test::Forgotten> forgotten_;
  std::map<uintptr_t, int> watched_;  // pages, and how they may be used now
};

class Declarations : public testing::TestWithParam<DeclaredCase> {};

TEST_P(Declarations, NothingElseIsTouched) {
  const DeclaredCase c = GetParam();
  test::run_ranks({.backend = "shm", .size = c.ranks, .kind = test::Kind::kProcesses},
                  [&](Communicator& comm) {
                    Reach reach;
                    ::signal(SIGSEGV, on_touch);
                    test::train_declared(c, comm, {.watch = &reach});
                    EXPECT_GT(reach.actions, 0);
                    EXPECT_GT(reach.hidden, 0) << "nothing was out of reach";
                    EXPECT_GT(reach.kept, 0) << "nothing was only to be read";
                  });
}

INSTANTIATE_TEST_SUITE_P(Steps, Declarations, testing::ValuesIn(test::declared_cases()),
                         [](const auto& info) {
                           return testing::PrintToString(info.param);
                         });

// A declaration that is missing is found, in each kind of action that touches a bucket.
struct Planted {
  ActionKind kind;
  What what;
  DeclaredCase c;
  bool reads_stay = false;  // only that it writes is missing
};

std::ostream& operator<<(std::ostream& out, const Planted& planted) {
  return out << name_of(planted.kind) << "_" << name_of(planted.what) << "_"
             << planted.c << (planted.reads_stay ? "_writes" : "");
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
        ::signal(SIGSEGV, on_touch);
        Reach reach({{planted.kind, planted.what, planted.reads_stay}});
        try {
          test::train_declared(planted.c, comm, {.watch = &reach});
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
    kSealed{.shard = 1, .elastic = true, .exact = true},
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
    {ActionKind::kUpdate, What::kState, kSealed},
    {ActionKind::kSend, What::kPartial, kStages},
    {ActionKind::kRecv, What::kPartial, kStages},
    {ActionKind::kBackward, What::kPartial, kWhole, true},
    {ActionKind::kGather, What::kWhole, kCut, true},
    {ActionKind::kUpdate, What::kState, kSealed, true},
};
INSTANTIATE_TEST_SUITE_P(Kinds, PlantedViolations, testing::ValuesIn(kPlanted),
                         [](const auto& info) {
                           return testing::PrintToString(info.param);
                         });

}  // namespace
}  // namespace cohort
