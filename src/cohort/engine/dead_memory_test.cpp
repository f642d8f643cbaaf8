// SPDX-License-Identifier: Apache-2.0
// Values live no longer than actions declare: memory in which nothing lies that a later
// action reads is filled with NaN, and the weights come out as ever.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <set>

#include "cohort/core/error.h"
#include "cohort/core/testing_folder.h"
#include "cohort/engine/testing_declared.h"
#include "support/ranks.h"

namespace cohort {
namespace {

using test::DeclaredCase;

// Fills dead memory when an action has ended.
class DeadMemory final : public test::ExecutorWatch {
 public:
  explicit DeadMemory(std::optional<test::Forgotten> forgotten = {})
      : forgotten_(forgotten) {}

  void watch(const Executor& executor) override {
    ExecutorWatch::watch(executor);
    find_lives(executor.role().actions);
  }
  void begin(const Action&) override {}
  void end(const Action& action) override {
    const c10::NoGradGuard no_grad;
    std::set<const void*> live;
    for (const Value& value : live_[index_of(action)])
      for (const auto& tensor : executor().memory_of(value))
        live.insert(tensor.const_data_ptr());
    for (int b = 0; b < static_cast<int>(executor().schedule().buckets.size()); ++b)
      for (Tensor& tensor : memory_of_bucket(b)) {
        if (live.contains(tensor.const_data_ptr())) continue;
        tensor.fill_(std::numeric_limits<double>::quiet_NaN());
        ++filled;
      }
  }

  int64_t filled = 0;

 private:
  using Values = std::set<Value>;

  // By action: what lives when it has ended. The list runs again and again, so twice
  // through it from behind finds all; a Free uses nothing of what it drops.
  void find_lives(const std::vector<Action>& actions) {
    live_.assign(actions.size(), {});
    Values live;
    for (size_t left = 2 * actions.size(); left-- > 0;) {
      const size_t i = left % actions.size();
      const Action& action = actions[i];
      live_[i] = live;
      for (const auto& access : action.writes) live.erase(access.value.any_version());
      if (action.kind == ActionKind::kFree) continue;
      for (const auto& access : action.reads)
        if (test::is_of_bucket(access.value.what) &&
            !test::is_forgotten(forgotten_, action, access.value))
          live.insert(access.value.any_version());
    }
  }

  // But for the state, and for whole parameters that are the state seen once more.
  std::vector<Tensor> memory_of_bucket(int bucket) const {
    std::vector<Tensor> all;
    for (const What what :
         {What::kLeaf, What::kPartial, What::kSum, What::kMirrored, What::kWhole}) {
      if (what == What::kWhole && executor().schedule().buckets[bucket].joined)
        continue;
      for (const auto& tensor : executor().memory_of({what, bucket}))
        all.push_back(tensor);
    }
    return all;
  }

  const std::optional<test::Forgotten> forgotten_;
  std::vector<Values> live_;
};

class DeadMemoryOf : public testing::TestWithParam<DeclaredCase> {};

TEST_P(DeadMemoryOf, IsReadByNobody) {
  const DeclaredCase c = GetParam();
  test::run_ranks({.backend = "shm", .size = c.ranks, .kind = test::Kind::kProcesses},
                  [&](Communicator& comm) {
                    const uint64_t usual = test::train_declared(c, comm);
                    DeadMemory dead;
                    EXPECT_EQ(test::train_declared(c, comm, {.watch = &dead}), usual);
                    EXPECT_GT(dead.filled, 0) << "nothing was dead";
                  });
}

INSTANTIATE_TEST_SUITE_P(Steps, DeadMemoryOf, testing::ValuesIn(test::declared_cases()),
                         [](const auto& info) {
                           return testing::PrintToString(info.param);
                         });

// A life that is declared too short is found: an action reads what nobody was to read.
struct TooShort {
  ActionKind kind;  // kind of the last reader, which does not say that it reads
  What what;
  DeclaredCase c;
};

std::ostream& operator<<(std::ostream& out, const TooShort& life) {
  return out << name_of(life.kind) << "_" << name_of(life.what) << "_" << life.c;
}

class LivesTooShort : public testing::TestWithParam<TooShort> {};

TEST_P(LivesTooShort, AreFound) {
  const TooShort& life = GetParam();
  test::run_ranks(
      {.backend = "shm", .size = life.c.ranks, .kind = test::Kind::kProcesses},
      [&](Communicator& comm) {
        const uint64_t usual = test::train_declared(life.c, comm);
        DeadMemory dead({{life.kind, life.what}});
        bool found = false;
        try {
          found = test::train_declared(life.c, comm, {.watch = &dead}) != usual;
        } catch (const Error&) {  // a gradient is no number, here or at a peer
          found = true;
        }
        EXPECT_TRUE(found);
      });
}

const std::vector<TooShort> kTooShort = {
    {ActionKind::kForward, What::kWhole, {.shard = 3}},
    {ActionKind::kBackward, What::kWhole, {.shard = 3}},
    {ActionKind::kBackward, What::kPartial, {}},
    {ActionKind::kReduce, What::kPartial, {}},
    {ActionKind::kReduce, What::kPartial, {.exact = true}},
    {ActionKind::kReduceScatter, What::kPartial, {.shard = 1}},
    {ActionKind::kReduceScatter, What::kLeaf, {.shard = 2}},
    {ActionKind::kReduceScatter, What::kLeaf, {.shard = 2, .exact = true}},
    {ActionKind::kReduceUpdate, What::kPartial, {.shares = true}},
    {ActionKind::kReduceUpdate, What::kSum, {.shard = 2, .shares = true}},
    {ActionKind::kUpdate, What::kSum, {}},
    {ActionKind::kUpdate, What::kSum, {.shard = 3, .exact = true}},
    {ActionKind::kUpdate, What::kMirrored, {.shard = 1, .elastic = true}},
    {ActionKind::kUpdate, What::kPartial, {.ranks = 2, .stages = 2, .elastic = true}},
};
INSTANTIATE_TEST_SUITE_P(Kinds, LivesTooShort, testing::ValuesIn(kTooShort),
                         [](const auto& info) {
                           return testing::PrintToString(info.param);
                         });

}  // namespace
}  // namespace cohort
