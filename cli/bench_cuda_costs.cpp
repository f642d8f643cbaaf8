// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_cuda_costs.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "cli/cuda_variant.h"
#include "cohort/comm/local_store.h"
#include "cohort/comm/world.h"
#include "cohort/core/error.h"
#include "cohort/core/file.h"
#include "cohort/engine/action_watch.h"
#include "cohort/step/cost_fit.h"
#include "cohort/step/step_record.h"

namespace cohort::cli {
namespace {

constexpr int kTimedSteps = 20;
constexpr double kMillisecond = 1e-3;

// Marks in the stream of the lane where each action of a step begins and ends.
class DeviceStopwatch final : public ActionWatch {
 public:
  // The actions that it will see; null: what it sees does not count.
  void attend(const Role* role) {
    role_ = role;
    marks_.clear();
    if (role) marks_.resize(role->actions.size());
  }

  void begin(const Action& action) override {
    if (role_) marks_.at(index_of(action)).begin.emplace(mark());
  }
  void end(const Action& action) override {
    if (role_) marks_.at(index_of(action)).end.emplace(mark());
  }

  // When each action of the step that was started ran: waits for its end.
  std::vector<ActionTime> times() const {
    for (const Marks& of : marks_) of.end->synchronize();
    const c10::Event& zero = *marks_.at(0).begin;
    std::vector<ActionTime> times;
    for (const Marks& of : marks_)
      times.push_back({kMillisecond * zero.elapsedTime(*of.begin),
                       kMillisecond * zero.elapsedTime(*of.end)});
    return times;
  }

 private:
  struct Marks {
    std::optional<c10::Event> begin, end;
  };

  size_t index_of(const Action& action) const {
    return static_cast<size_t>(&action - role_->actions.data());
  }

  // LibTorch's events of whatever device is there: no name of CUDA is needed here.
  static c10::Event mark() {
    const c10::impl::VirtualGuardImpl device(at::kCUDA);
    c10::Event event(at::kCUDA, c10::EventFlag::BACKEND_DEFAULT);
    event.record(device.getStream(device.getDevice()));
    return event;
  }

  const Role* role_ = nullptr;
  std::vector<Marks> marks_;
};

struct TimedSteps {
  Schedule schedule;
  StepTimes times;
  double samples = 0;
};

TimedSteps time_actions(const CudaCase& bench, const BenchTrainArgs& args,
                        int64_t samples) {
  LocalStore store;
  const auto comm = connect(World{}, store, {.backend = "local"});
  DeviceStopwatch watch;
  CudaVariant steps(bench, args, cuda_batch(bench, samples), *comm, {.watch = &watch});
  StepRecord record(1);
  for (int i = 0; i < kTimedSteps; ++i) {
    watch.attend(&steps.executor().role());
    steps.run(1);
    record[0].push_back(watch.times());
  }
  const Schedule& schedule = steps.executor().schedule();
  return {schedule, usual_costs(schedule, record), static_cast<double>(samples)};
}

// No step here computed a forward again; it costs what it cost the first time.
void fill_recompute(CostTable& costs) {
  for (auto& block : costs.blocks)
    if (block.recompute == ComputeCost()) block.recompute = block.forward;
}

}  // namespace

void write_cuda_costs(const CudaCase& bench, const BenchTrainArgs& args) {
  const int64_t whole = bench.batch_of(args), half = std::max<int64_t>(1, whole / 2);
  std::vector<TimedSteps> timed;
  for (const int64_t samples : {half, whole})
    timed.push_back(time_actions(bench, args, samples));
  std::vector<ObservedStep> observed;
  for (const auto& steps : timed)
    observed.push_back({steps.schedule, steps.times, steps.samples});
  CostTable costs = fit_costs(observed);
  costs.links.clear();  // a rank alone has seen none
  fill_recompute(costs);
  write_file_atomically(
      args.costs_out,
      text("# ", bench.name, ", ", args.precision, ", measured on one GPU at batch ",
           half, " and ", whole, ", ", kTimedSteps, " steps each\n", to_csv(costs)),
      ErrorKind::kConfig);
}

}  // namespace cohort::cli
