// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_steps.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "cli/bench_parts.h"
#include "cohort/core/error.h"
#include "cohort/core/format.h"
#include "cohort/core/json.h"

namespace cohort::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kRounds = 3;
constexpr int kCommunications = 5;  // timed alone

std::string json_row(const BenchRow& row, const BenchWork& work,
                     const Communicator& comm) {
  JsonObject object;
  object.add("case", work.name)
      .add("backend", comm.backend())
      .add("ranks", comm.size())
      .add("step_ms", 1e3 * row.step_s)
      .add("samples_per_second", work.samples / row.step_s)
      .add("comm_hidden", row.comm_hidden)
      .add("wait_ms", 1e3 * row.wait_s);
  if (row.no_comm_s)
    object.add("no_comm_step_ms", 1e3 * *row.no_comm_s)
        .add("of_no_comm", *row.no_comm_s / row.step_s);
  if (row.unsharded_s)
    object.add("data_parallel_step_ms", 1e3 * *row.unsharded_s)
        .add("over_data_parallel", row.step_s / *row.unsharded_s);
  if (row.plain_s)
    object.add("plain_step_ms", 1e3 * *row.plain_s)
        .add("over_plain", row.step_s / *row.plain_s);
  return object.text();
}

std::string text_row(const BenchRow& row, const BenchWork& work,
                     const Communicator& comm) {
  const auto ms = [](double seconds) { return format_fixed(1e3 * seconds, 2) + " ms"; };
  const auto percent = [](double x) { return format_fixed(100 * x, 1) + " %"; };
  std::string out = text(work.name, ", ", comm.size(), " ranks (", comm.backend(),
                         "): ", ms(row.step_s), " per step, ",
                         format_fixed(work.samples / row.step_s, 1), " samples/s");
  out += text("\n  waiting for others   ", ms(row.wait_s), " (",
              percent(row.comm_hidden), " of communication hidden)");
  if (row.no_comm_s)
    out += text("\n  no communication     ", ms(*row.no_comm_s), ": ",
                percent(*row.no_comm_s / row.step_s), " of its speed");
  if (row.unsharded_s)
    out += text("\n  shard=0, not exact   ", ms(*row.unsharded_s), ": ",
                format_fixed(row.step_s / *row.unsharded_s, 3), " times its step");
  if (row.plain_s)
    out += text("\n  plain LibTorch loop  ", ms(*row.plain_s),
                ", one rank: ", format_fixed(row.step_s / *row.plain_s, 3),
                " times its step");
  return out;
}

class StepTimer {
 public:
  StepTimer(const BenchWork& work, Communicator& comm,
            std::vector<BenchVariant>& variants, PlainLoop* plain)
      : work_(work), comm_(comm), variants_(variants), plain_(plain) {}

  BenchRow measure() {
    warm_up();
    for (int round = 0; round < kRounds; ++round) {
      for (auto& variant : variants_) take_turn(variant);
      if (plain_) run_plain();
    }
    std::vector<double> alone;
    for (int i = 0; i < kCommunications; ++i)
      alone.push_back(variants_[0].executor->time_communication().count());
    return row(median(alone));
  }

 private:
  void warm_up() {
    for (auto& variant : variants_) {
      for (int i = 0; i < work_.warmup; ++i) run(variant);
      variant.waits.clear();
      comm_.barrier().wait();
    }
    if (plain_ && comm_.rank() == 0)
      for (int i = 0; i < work_.warmup; ++i) plain_->step();
    comm_.barrier().wait();
  }

  void run(BenchVariant& variant) {
    const int64_t step = step_++;
    const StepResult result = variant.executor->run(
        {.step = step, .rate = work_.rate, .batch = [&](int slice) {
           return variant.batch(step, slice);
         }});
    variant.waits.push_back(result.split.wait);
  }

  void take_turn(BenchVariant& variant) {
    comm_.barrier().wait();
    for (int i = 0; i < work_.steps; ++i)
      variant.seconds.push_back(seconds_of([&] { run(variant); }));
    comm_.barrier().wait();
  }

  // The others sleep at the barrier.
  void run_plain() {
    if (comm_.rank() == 0)
      for (int i = 0; i < work_.steps; ++i)
        plain_seconds_.push_back(seconds_of([&] { plain_->step(); }));
    comm_.barrier().wait();
  }

  template <typename Step>
  static double seconds_of(const Step& step) {
    const auto begin = Clock::now();
    step();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

  BenchRow row(double communication_s) const {
    BenchRow row{.step_s = median(variants_[0].seconds),
                 .wait_s = median(variants_[0].waits)};
    if (comm_.size() > 1)
      row.comm_hidden = std::clamp(1 - row.wait_s / communication_s, 0.0, 1.0);
    if (variants_.size() > 1)
      (work_.beside_data_parallel ? row.unsharded_s : row.no_comm_s) =
          median(variants_[1].seconds);
    if (!plain_seconds_.empty()) row.plain_s = median(plain_seconds_);
    return row;
  }

  const BenchWork& work_;
  Communicator& comm_;
  std::vector<BenchVariant>& variants_;
  PlainLoop* plain_;
  std::vector<double> plain_seconds_;
  int64_t step_ = 0;
};

}  // namespace

BenchRow time_steps(const BenchWork& work, Communicator& comm,
                    std::vector<BenchVariant>& variants, PlainLoop* plain) {
  return StepTimer(work, comm, variants, plain).measure();
}

void print_row(const BenchRow& row, const BenchWork& work, const Communicator& comm,
               bool json) {
  if (comm.rank() != 0) return;
  std::puts((json ? json_row : text_row)(row, work, comm).c_str());
  std::fflush(stdout);
}

}  // namespace cohort::cli
