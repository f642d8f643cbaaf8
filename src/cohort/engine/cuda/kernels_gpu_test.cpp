// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/cuda/cuda_lane.h"
#include "cohort/engine/cuda/testing_kernels.h"

namespace cohort {

std::vector<test::KernelsUnderTest> test::kernels_under_test() {
  return {{"Cuda", why_no_cuda, [] { return make_cuda_kernels(); }}};
}

namespace {

using test::same_bits;
using test::values_of;

class KernelsGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_cuda(); !why.empty()) GTEST_SKIP() << why;
  }
};

constexpr int64_t kCapturedShard = 9000;
constexpr double kLimit = 0.25;

// All of a step behind the backward: sum, norm, clipping, sums over tensors, update.
class WholeStep {
 public:
  WholeStep(StateKernels& kernels, const std::string& rule)
      : kernels_(kernels), options_{.name = rule} {
    update_ = kernels.make_shard_update(
        {.rule = options_,
         .ranges = {{0, 5000, {0.01, true}, 0, 0}, {5120, kCapturedShard, {0, false}}},
         .gradient = at::kFloat,
         .published = at::kBFloat16});
    const auto real = at::TensorOptions(at::kFloat).device(kernels.device());
    for (uint64_t i = 0; i < 3; ++i)
      slices.push_back(values_of(kCapturedShard, i).to(real));
    for (const Tensor& slice : slices) inputs_.push_back(slice);
    shard.master = values_of(kCapturedShard, 7).to(real);
    for (size_t k = 0; k < make_update_rule(options_)->states().size(); ++k)
      shard.states.push_back(at::zeros({kCapturedShard}, real));
    shard.published = at::zeros({kCapturedShard}, real.dtype(at::kBFloat16));
    sum_ = at::zeros({kCapturedShard}, real);
    squares_ = at::zeros({9}, real.dtype(at::kDouble));
    sums_ = at::zeros({5, 2}, real.dtype(at::kDouble));
    totals_ = at::zeros({1, 2}, real.dtype(at::kDouble));
    std::vector<kernels::Chunk> chunks;
    for (int64_t c = 0; c < 9; ++c)
      chunks.push_back(
          {c * 1024, std::min<int64_t>(1024, kCapturedShard - c * 1024), c});
    chunks_ = kernels.chunk_table(chunks);
    tensors_ = kernels.tensor_table(std::vector<kernels::TensorChunks>{{0, 5}});
    numbers = make_step_numbers(kernels.device());
    hindered_ = at::zeros({1}, real.dtype(at::kBool));
    word_ = at::zeros({1}, real.dtype(at::kLong));
  }

  void send(int64_t step, double rate) {
    send_step_numbers(
        numbers, step_numbers_of(options_,
                                 {.rate = rate, .grad_scale = 1.0 / 24, .step = step}));
  }

  void launch() {
    kernels_.sum_in_order(inputs_, sum_);
    kernels_.mark_not_finite(sum_, not_finite_of(numbers));
    kernels_.square_sums(sum_, chunks_, squares_);
    kernels_.norm(squares_, kLimit, numbers);
    kernels_.cast_vote(numbers, hindered_, Tensor(), word_);
    kernels_.count_votes(word_, numbers);
    update_->reduce(shard, sum_, numbers, sums_);
    kernels_.add_chunks(sums_, tensors_, totals_);
    update_->apply(shard, sum_, numbers, totals_);
  }

  void expect_same(const WholeStep& other) const {
    EXPECT_TRUE(same_bits(shard.master, other.shard.master));
    EXPECT_TRUE(same_bits(shard.published, other.shard.published));
    for (size_t k = 0; k < shard.states.size(); ++k)
      EXPECT_TRUE(same_bits(shard.states[k], other.shard.states[k]));
    EXPECT_EQ(read_step_numbers(numbers).norm, read_step_numbers(other.numbers).norm);
  }

  std::vector<Tensor> slices;
  ShardMemory shard;
  Tensor numbers;

 private:
  StateKernels& kernels_;
  UpdateOptions options_;
  std::unique_ptr<ShardUpdate> update_;
  std::vector<Tensor> inputs_;
  Tensor sum_, squares_, sums_, totals_, chunks_, tensors_, hindered_, word_;
};

// A replay reads rate, step, gradients and gate as they are then.
TEST_F(KernelsGpuTest, AReplayGivesTheBitsOfTheHostAtEveryStep) {
  const auto lane = make_cuda_lane();
  const auto gpu = make_cuda_kernels(), host = make_host_kernels();
  for (const char* rule : {"sgd", "adam", "adamw", "lars", "lamb"}) {
    SCOPED_TRACE(rule);
    std::unique_ptr<WholeStep> captured;
    lane->run([&] { captured = std::make_unique<WholeStep>(*gpu, rule); });
    WholeStep plain(*host, rule);
    const int graph = lane->capture([&] { captured->launch(); });
    for (int64_t step = 1; step <= 4; ++step) {
      const double rate = 0.1 / static_cast<double>(step);
      const Tensor fresh = values_of(kCapturedShard, 50 + static_cast<uint64_t>(step));
      plain.slices[1].copy_(fresh);
      plain.send(step, rate);
      plain.launch();
      lane->run([&] {
        captured->slices[1].copy_(fresh);
        captured->send(step, rate);
      });
      lane->replay(graph);
      lane->wait();
      captured->expect_same(plain);
    }
    const Tensor before = captured->shard.master.cpu();
    lane->run([&] {
      captured->send(5, 0.1);
      captured->slices[2][77].fill_(std::numeric_limits<float>::infinity());
    });
    lane->replay(graph);
    lane->wait();
    EXPECT_TRUE(same_bits(captured->shard.master, before));
    EXPECT_EQ(read_step_numbers(captured->numbers).gate, 0);
  }
}

// What comes of so many elements that every block of a grid has several turns.
struct LargeResults {
  Tensor sum, squares, hash, flag;
  ShardMemory shard;
};

LargeResults run_large(StateKernels& kernels, const Tensor& values) {
  const int64_t count = values.numel();
  const auto real = at::TensorOptions(at::kFloat).device(kernels.device());
  LargeResults made{
      .sum = at::zeros({count}, real),
      .squares = at::zeros({(count + 1023) / 1024}, real.dtype(at::kDouble)),
      .hash = at::zeros({1}, real.dtype(at::kLong)),
      .flag = at::zeros({1}, real.dtype(at::kInt))};
  const Tensor gradient = values.to(real);
  const Tensor inputs[] = {gradient, gradient.flip(0)};
  kernels.sum_in_order(inputs, made.sum);
  std::vector<kernels::Chunk> chunks;
  for (int64_t at = 0; at < count; at += 1024)
    chunks.push_back({at, std::min<int64_t>(1024, count - at), at / 1024});
  kernels.square_sums(made.sum, kernels.chunk_table(chunks), made.squares);
  kernels.sum_elements(made.sum, 5, 1, 17, made.hash);
  ShardUpdateOptions options;
  options.rule.name = "adamw";
  options.ranges = {{0, count / 3, {0.01, false}}, {count / 3, count, {0, false}}};
  options.published = at::kBFloat16;
  made.shard = {.master = gradient.clone(),
                .states = {at::zeros({count}, real), at::zeros({count}, real)},
                .published = at::zeros({count}, real.dtype(at::kBFloat16))};
  const Tensor numbers = make_step_numbers(kernels.device());
  send_step_numbers(numbers, step_numbers_of(options.rule, {.rate = 0.1, .step = 1}));
  kernels.make_shard_update(options)->apply(made.shard, made.sum, numbers, {});
  made.sum[count - 1] = std::numeric_limits<float>::quiet_NaN();
  kernels.mark_not_finite(made.sum, made.flag);
  return made;
}

TEST_F(KernelsGpuTest, BlocksWithSeveralTurnsLeaveNothingOut) {
  const Tensor values = values_of(18'000'001, 3);
  const LargeResults gpu = run_large(*make_cuda_kernels(), values);
  const LargeResults host = run_large(*make_host_kernels(), values);
  EXPECT_TRUE(same_bits(gpu.sum, host.sum));
  EXPECT_TRUE(same_bits(gpu.squares, host.squares));
  EXPECT_EQ(gpu.hash.item<int64_t>(), host.hash.item<int64_t>());
  EXPECT_EQ(gpu.flag.item<int>(), 1);
  EXPECT_TRUE(same_bits(gpu.shard.master, host.shard.master));
  for (size_t k = 0; k < 2; ++k)
    EXPECT_TRUE(same_bits(gpu.shard.states[k], host.shard.states[k]));
  EXPECT_TRUE(same_bits(gpu.shard.published, host.shard.published));
}

}  // namespace
}  // namespace cohort
