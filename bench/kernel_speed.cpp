// SPDX-License-Identifier: Apache-2.0
// What the kernels of a device cost beside LibTorch's own:
//   kernel_speed [MILLIONS]...     default: 25 and 100 million parameters
// Prints one row per kernel: medians in microseconds, the bytes that must be read and
// written per second, and how it compares. All take turns, so that drift hits all
// alike. Needs a GPU.
#include <ATen/ATen.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cohort/engine/cuda/cuda_lane.h"
#include "cohort/engine/state_kernels.h"

namespace {

using cohort::Tensor;

constexpr int kRounds = 15;
constexpr int kLaunches = 20;  // in a round: one waits for the last of them only

struct Row {
  std::string name;
  double bytes = 0;  // that a launch must read and write
  std::function<void()> launch;
  std::string beside;  // the row it is compared with
  std::vector<double> seconds;

  double median() {
    std::sort(seconds.begin(), seconds.end());
    return seconds[seconds.size() / 2];
  }
};

class Race {
 public:
  Race(cohort::CudaLane& lane, cohort::StateKernels& kernels, int64_t count)
      : lane_(lane), kernels_(kernels), count_(count) {
    lane_.run([&] {
      for (auto* tensor : {&master_, &gradient_, &first_, &second_, &out_})
        *tensor = at::rand({count_}, at::TensorOptions(at::kFloat).device(at::kCUDA));
      narrow_ = gradient_.to(at::kBFloat16);
      rate_ = at::full({1}, 1e-3, master_.options());
      step_ = at::ones({1}, master_.options());
    });
    add_sums();
    add_rule("sgd");
    add_rule("adamw");
  }

  void run() {
    for (Row& row : rows_) time(row);  // the first is no measure
    for (Row& row : rows_) row.seconds.clear();
    for (int round = 0; round < kRounds; ++round)
      for (Row& row : rows_) time(row);
    std::printf("%lld million elements\n", static_cast<long long>(count_ / 1'000'000));
    for (Row& row : rows_) print(row);
  }

 private:
  void add(std::string name, double bytes_of_element, std::string beside,
           std::function<void()> launch) {
    rows_.push_back({std::move(name),
                     bytes_of_element * static_cast<double>(count_),
                     std::move(launch),
                     std::move(beside),
                     {}});
  }

  void add_sums() {
    add("at::add", 12, "", [this] { at::add_out(out_, first_, second_); });
    add("sum_in_order of 2", 12, "at::add", [this] {
      const Tensor inputs[] = {first_, second_};
      kernels_.sum_in_order(inputs, out_);
    });
    const std::vector<cohort::TreeNode> nodes = {{0, 0}, {0, 1}};
    fold_ = std::make_unique<cohort::TreeFold>(2, nodes);
    add("fold of 2", 12, "at::add", [this] {
      const Tensor inputs[] = {first_, second_};
      kernels_.fold(*fold_, inputs, std::span(&out_, 1));
    });
    add("at::add_, bfloat16", 10, "", [this] { out_.add_(narrow_); });
    add("widen_add, bfloat16", 10, "at::add_, bfloat16",
        [this] { kernels_.widen_add(narrow_, out_); });
    add("at::copy_, bfloat16", 6, "", [this] { narrow_.copy_(gradient_); });
    add("narrow, bfloat16", 6, "at::copy_, bfloat16",
        [this] { kernels_.narrow(gradient_, narrow_); });
    std::vector<cohort::kernels::Chunk> chunks;
    for (int64_t at = 0; at < count_; at += cohort::kernels::kNormChunk)
      chunks.push_back({at, std::min<int64_t>(cohort::kernels::kNormChunk, count_ - at),
                        at / cohort::kernels::kNormChunk});
    lane_.run([&] {
      chunks_ = kernels_.chunk_table(chunks);
      squares_ = at::zeros({chunks_.size(0)}, master_.options().dtype(at::kDouble));
      flag_ = at::zeros({1}, master_.options().dtype(at::kInt));
      numbers_ = cohort::make_step_numbers(kernels_.device());
    });
    add("at::sum", 4, "", [this] { at::sum_out(rate_out_, gradient_, {0}, true); });
    rate_out_ = at::zeros({1}, master_.options());
    add("square_sums", 4, "at::sum",
        [this] { kernels_.square_sums(gradient_, chunks_, squares_); });
    add("mark_not_finite", 4, "at::sum",
        [this] { kernels_.mark_not_finite(gradient_, flag_); });
    add("norm of the sums", 8.0 / 1024, "",
        [this] { kernels_.norm(squares_, 1, numbers_); });
  }

  void add_rule(const std::string& name) {
    const bool adam = name == "adamw";
    const double bytes = adam ? 28 : 20;
    cohort::ShardUpdateOptions options;
    options.rule.name = name;
    options.ranges = {{0, count_, {.weight_decay = 0.01}}};
    updates_.push_back(kernels_.make_shard_update(options));
    options.published = at::kBFloat16;
    updates_.push_back(kernels_.make_shard_update(options));
    auto& plain = *updates_[updates_.size() - 2];
    auto& publishing = *updates_.back();
    cohort::ShardMemory shard{.master = master_, .states = {first_}};
    if (adam) shard.states.push_back(second_);
    cohort::ShardMemory published = shard;
    published.published = narrow_;
    add("at::_fused_" + name + "_", bytes, "", [this, adam] { fused(adam); });
    add(name, bytes, "at::_fused_" + name + "_",
        [this, &plain, shard] { plain.apply(shard, gradient_, numbers_, {}); });
    add(name + ", publishing", bytes + 2, "at::_fused_" + name + "_",
        [this, &publishing, published] {
          publishing.apply(published, gradient_, numbers_, {});
        });
  }

  void fused(bool adam) {
    if (adam)
      at::_fused_adamw_({master_}, {gradient_}, {first_}, {second_}, {}, {step_}, rate_,
                        0.9, 0.999, 0.01, 1e-8, /*amsgrad=*/false, /*maximize=*/false);
    else
      at::_fused_sgd_({master_}, {gradient_}, {first_}, 0.01, 0.9, rate_,
                      /*dampening=*/0, /*nesterov=*/false, /*maximize=*/false,
                      /*is_first_step=*/false);
  }

  void time(Row& row) {
    lane_.run(row.launch);
    lane_.wait();
    const auto begin = std::chrono::steady_clock::now();
    lane_.run([&] {
      for (int i = 0; i < kLaunches; ++i) row.launch();
    });
    lane_.wait();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    row.seconds.push_back(took.count() / kLaunches);
  }

  void print(Row& row) {
    const double seconds = row.median();
    std::printf("  %-28s %9.1f us %8.0f GB/s", row.name.c_str(), 1e6 * seconds,
                1e-9 * row.bytes / seconds);
    for (Row& other : rows_)
      if (other.name == row.beside)
        std::printf("   %.3f of the bytes per second of %s",
                    row.bytes / seconds / (other.bytes / other.median()),
                    other.name.c_str());
    std::printf("\n");
  }

  cohort::CudaLane& lane_;
  cohort::StateKernels& kernels_;
  int64_t count_;
  Tensor master_, gradient_, first_, second_, out_, narrow_, rate_, step_, rate_out_;
  Tensor chunks_, squares_, flag_, numbers_;
  std::unique_ptr<cohort::TreeFold> fold_;
  std::vector<std::unique_ptr<cohort::ShardUpdate>> updates_;
  std::vector<Row> rows_;
};

}  // namespace

int main(int argc, char** argv) {
  if (const std::string why = cohort::why_no_cuda(); !why.empty()) {
    std::fprintf(stderr, "kernel_speed: %s\n", why.c_str());
    return 1;
  }
  std::vector<int64_t> millions;
  for (int i = 1; i < argc; ++i) millions.push_back(std::atoll(argv[i]));
  if (millions.empty()) millions = {25, 100};
  const auto lane = cohort::make_cuda_lane();
  const auto kernels = cohort::make_cuda_kernels();
  for (const int64_t count : millions) Race(*lane, *kernels, count * 1'000'000).run();
  return 0;
}
