// SPDX-License-Identifier: Apache-2.0
// An executor whose state lies on the GPU.
#include <gmock/gmock.h>

#include <limits>

#include "cohort/core/error.h"
#include "cohort/engine/cuda/train_steps_test.h"

namespace cohort {
namespace {

class ResidentGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string why = why_no_cuda();
    if (!why.empty()) GTEST_SKIP() << why;
    set_cuda_math({.tf32 = false, .search = false, .exact = true});
  }
};

struct ResidentWay {
  std::string rule = "sgd";
  at::ScalarType dtype = at::kFloat;
  bool on_gpu = true;
  bool capture = true;
  int slices = 1;
  bool vote = false;
  int shard = 0;
  bool exact = false;
  double clip = 0;
};

// An executor of one rank alone, with its chain and its world.
class Resident {
 public:
  explicit Resident(const ResidentWay& way)
      : chain_(test::small_resnet()),
        update_{.name = way.rule, .eps = 1e-3, .trust = 0.1},
        rule_(make_update_rule(update_)),
        store_(join(world_, {})),
        comm_(connect(world_, *store_, {.backend = "local"})) {
    GeneratorOptions step{.slices = way.slices,
                          .clip = way.clip > 0,
                          .tensor_sums = rule_->reductions() > 0,
                          .vote = way.vote,
                          .exact = way.exact,
                          .precision = {.compute = way.dtype},
                          .optimizer_states = static_cast<int>(rule_->states().size())};
    if (way.on_gpu) step.memory = MemoryIn::kDevice;
    ExecutorOptions options{.update = update_, .decay = {.weight_decay = 0.01}};
    options.clip = way.clip;
    options.compute_on = way.on_gpu ? ComputeOn::kCuda : ComputeOn::kHost;
    options.capture = way.capture;
    options.usual_count = test::kBatch;
    executor_ = std::make_unique<Executor>(
        chain_, generate(specs_of(chain_), Layout{.shard = way.shard}, step), *rule_,
        *comm_, options);
    slices_ = way.slices;
  }

  StepResult run(int64_t step, double rate = test::kRate / 10, double pixels = 0) {
    return executor_->run({.step = step, .rate = rate, .batch = [=, this](int slice) {
                             return part_of(step, slice, pixels);
                           }});
  }
  Executor& executor() { return *executor_; }
  std::vector<NamedTensor> weights() {
    return test::gathered_weights(*executor_, *comm_);
  }

 private:
  Batch part_of(int64_t step, int slice, double pixels) const {
    Batch batch = test::batch_of(step);
    const int64_t rows = test::kBatch / slices_;
    for (auto& [name, tensor] : batch.fields)
      tensor = tensor.narrow(0, slice * rows, rows);
    if (pixels != 0) batch.at("input").fill_(pixels);
    batch.count = rows;
    return batch;
  }

  Chain chain_;
  UpdateOptions update_;
  std::unique_ptr<UpdateRule> rule_;
  World world_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Communicator> comm_;
  std::unique_ptr<Executor> executor_;
  int slices_ = 1;
};

test::Trained train(const ResidentWay& way, int steps = 7) {
  Resident resident(way);
  test::Trained trained;
  for (int64_t step = 0; step < steps; ++step)
    trained.losses.push_back(resident.run(step).loss);
  trained.weights = resident.weights();
  EXPECT_EQ(resident.executor().captured(), way.on_gpu && way.capture);
  return trained;
}

TEST_F(ResidentGpuTest, TrainsAsAnExecutorOnTheHost) {
  for (const char* rule : {"sgd", "adam", "adamw", "lars", "lamb"})
    for (const double clip : {0.0, 0.5}) {
      SCOPED_TRACE(testing::Message() << rule << " clip " << clip);
      test::expect_near(train({.rule = rule, .clip = clip}),
                        train({.rule = rule, .on_gpu = false, .clip = clip}), 1e-3,
                        1e-2);
    }
}

TEST_F(ResidentGpuTest, CapturedStepsGiveTheBitsOfUncapturedOnes) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const int slices : {1, 2})
      for (const int shard : {0, 3}) {
        SCOPED_TRACE(testing::Message() << dtype << " " << slices << " " << shard);
        ResidentWay way{.dtype = dtype, .slices = slices, .vote = true, .shard = shard};
        const auto captured = train(way);
        way.capture = false;
        test::expect_near(captured, train(way), 0, 0);
      }
}

TEST_F(ResidentGpuTest, ABadStepLeavesNoTraceInAReplay) {
  Resident resident({.vote = true});
  for (int64_t i = 0; i < 5; ++i) resident.run(i);
  ASSERT_TRUE(resident.executor().captured());
  const auto before = resident.weights();
  const StepResult bad =
      resident.run(5, test::kRate, std::numeric_limits<double>::quiet_NaN());
  EXPECT_TRUE(bad.skipped);
  const auto after = resident.weights();
  for (size_t i = 0; i < before.size(); ++i)
    EXPECT_TRUE(before[i].tensor.equal(after[i].tensor)) << before[i].name;
  EXPECT_FALSE(resident.run(6).skipped);
  EXPECT_FALSE(resident.weights()[0].tensor.equal(before[0].tensor));
}

TEST_F(ResidentGpuTest, AReplayUsesTheRateItIsGiven) {
  Resident resident({});
  for (int64_t i = 0; i < 5; ++i) resident.run(i);
  const auto before = resident.weights();
  resident.run(5, 0);
  EXPECT_TRUE(resident.weights().front().tensor.equal(before.front().tensor));
  resident.run(6, test::kRate);
  EXPECT_FALSE(resident.weights().front().tensor.equal(before.front().tensor));
}

TEST_F(ResidentGpuTest, StepsOfThisKindAgreeWithTheWrittenOne) {
  CudaStepOptions options;
  options.decay.weight_decay = 0.01;
  options.update = {.name = "adamw", .eps = 1e-3};
  const auto whole = test::train_by_step(options, 7);
  test::expect_near(train({.rule = "adamw"}), whole, 1e-4, 1e-4);
}

}  // namespace
}  // namespace cohort
