// SPDX-License-Identifier: Apache-2.0
// How long the places of a pipeline are idle, with blocks of known duration. Blocks
// wait for a timer instead of computing, so a machine with few cores does not blur it.
// For each schedule: the idle share as measured, as the simulator foretells it and as
// the formula has it; and the most slices under way at each place, counted in the run
// and in the list. What is measured is printed: a busy machine is no failure.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "cohort/core/file.h"
#include "cohort/core/testing_folder.h"
#include "cohort/engine/executor.h"
#include "cohort/layers.h"
#include "cohort/step/checker.h"
#include "cohort/step/generator.h"
#include "cohort/step/generators/turns.h"
#include "cohort/step/gradient_target.h"
#include "cohort/step/picture/testing_stage_picture.h"
#include "cohort/step/schedule_csv.h"
#include "cohort/step/simulator.h"
#include "cohort/update_rule.h"
#include "support/ranks.h"

namespace cohort {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using SteadyClock = std::chrono::steady_clock;

constexpr int kWarmSteps = 1, kTimedSteps = 3;
constexpr const char* kScheduleNames[] = {"gpipe", "1f1b", "interleaved",
                                          "zero-bubble"};

struct Wait {
  double seconds = 0;
  void operator()() const {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  }
};

// Forward, the gradient of the input and that of the weight take equally long.
struct WaitFunction : torch::autograd::Function<WaitFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& input,
                        const Tensor& weight, double seconds, const GradCell& cell) {
    context->saved_data["seconds"] = seconds;
    context->saved_data["cell"] = reinterpret_cast<int64_t>(cell.get());
    context->save_for_backward({weight});
    Wait{seconds}();
    return input + weight;
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const Wait wait{context->saved_data["seconds"].toDouble()};
    // The flight of the block keeps its cells.
    const auto* const cell =
        reinterpret_cast<const GradTarget*>(context->saved_data["cell"].toInt());
    wait();
    const auto weight_gradient = [wait, cell, sum = grads[0].sum(0)] {
      wait();
      if (!cell || !cell->view.defined()) return sum;
      cell->accumulate ? cell->view.add_(sum) : cell->view.copy_(sum);
      return cell->view;
    };
    Tensor gradient;
    if (cell && cell->later)
      cell->later->emplace(cell, weight_gradient);
    else
      gradient = weight_gradient();
    return {grads[0], gradient, {}, {}};
  }
};

Chain waiting_chain(int blocks, double seconds) {
  Chain chain{.blocks = {}, .loss = classifier_loss()};
  for (int b = 0; b < blocks; ++b) {
    TensorLists lists;
    const std::string name = "block" + std::to_string(b);
    const Tensor weight = lists.add_parameter(name, at::zeros({10}));
    chain.blocks.push_back(std::make_unique<FunctionBlock>(
        name, std::move(lists),
        [=](const Tensor& x, Context& context) {
          const GradCell cell = context.grads ? context.grads->take(weight) : nullptr;
          return WaitFunction::apply(x, weight, seconds, cell);
        },
        b == 0 ? std::vector<std::string>{"input"} : std::vector<std::string>{}));
  }
  return chain;
}

CostTable costs_of(int blocks, double seconds) {
  CostTable costs;
  const ComputeCost one{.fixed = seconds}, two{.fixed = 2 * seconds};
  costs.blocks.assign(blocks, {.forward = one, .backward = two, .recompute = one});
  costs.links["*"] = {.latency = test::kTimedTransfer};
  return costs;
}

struct TimedRun {
  Schedule schedule;
  double step = 0;                // seconds of all timed steps
  std::vector<double> busy;       // by place
  std::vector<int> most_in_list;  // slices under way, by place
  std::vector<int> most_in_run;
  std::vector<StepTimes> steps;  // from the moment when the first rank began
};

bool computes(const Action& action) { return action.block != kNone; }

// Chunks of slices whose forward has begun and whose gradients are not whole, at most.
int most_under_way(const Role& role, const std::vector<ActionTime>* times) {
  std::vector<std::pair<double, int>> events;
  for (size_t i = 0; i < role.actions.size(); ++i) {
    const Action& action = role.actions[i];
    const auto at = static_cast<double>(i);
    if (action.kind == ActionKind::kForward)
      events.emplace_back(times ? (*times)[i].begin : at, 1);
    if (completes_gradients(action.kind))
      events.emplace_back(times ? (*times)[i].end : at, -1);
  }
  std::sort(events.begin(), events.end());
  int now = 0, most = 0;
  for (const auto& event : events) most = std::max(most, now += event.second);
  return most;
}

// What a rank saw, as lines of a file: ranks are in a child of the test, and in it they
// have one clock.
void run_rank(const Schedule& schedule, double seconds, Communicator& comm,
              const std::string& path) {
  at::set_num_threads(1);
  Chain chain = waiting_chain(static_cast<int>(schedule.blocks.size()), seconds);
  const auto rule = make_update_rule({.name = "sgd"});
  Executor executor(chain, schedule, *rule, comm, {});
  const Batch batch = Batch::of(
      {{"input", at::zeros({1, 10})}, {"target", at::zeros({1}, at::kLong)}}, {0});
  double all = 0, busy = 0;
  int most = 0;
  std::ostringstream steps;
  steps.precision(12);
  for (int step = 0; step < kWarmSteps + kTimedSteps; ++step) {
    comm.barrier().wait();
    const auto begun = SteadyClock::now();
    executor.run({.step = step, .rate = 0.01, .batch = [&](int) { return batch; }});
    comm.barrier().wait();
    if (step < kWarmSteps) continue;
    all += std::chrono::duration<double>(SteadyClock::now() - begun).count();
    for (size_t i = 0; i < executor.times().size(); ++i)
      if (computes(executor.role().actions[i]))
        busy += executor.times()[i].end - executor.times()[i].begin;
    most = std::max(most, most_under_way(executor.role(), &executor.times()));
    steps << std::chrono::duration<double>(begun.time_since_epoch()).count() << ' ';
    for (const auto& time : executor.times())
      steps << time.begin << ' ' << time.end << ' ';
    steps << '\n';
  }
  std::ofstream(path) << all << ' ' << busy << ' ' << most << '\n' << steps.str();
}

// `begun`: by place, when its rank began the step.
void begin_together(TimedRun& run, int step, const std::vector<double>& begun) {
  const double first = *std::ranges::min_element(begun);
  for (size_t r = 0; r < run.schedule.roles.size(); ++r) {
    const double late = begun[run.schedule.roles[r].ranks[0]] - first;
    for (auto& time : run.steps[step][r]) time = {time.begin + late, time.end + late};
  }
}

TimedRun timed(const std::string& name, int places, int slices, double seconds) {
  auto specs = specs_of(waiting_chain(2 * places, 0));
  for (auto& spec : specs) spec.cost = 1;
  TimedRun run{.schedule = generate(specs, {.pp = places},
                                    {.slices = slices,
                                     .pipeline = parse_pipeline({.schedule = name}),
                                     .bucket_bytes = 1})};
  check(run.schedule, {});
  const test::TempFolder folder;
  test::run_ranks({.backend = "local", .size = places}, [&](Communicator& comm) {
    run_rank(run.schedule, seconds, comm, folder / std::to_string(comm.rank()));
  });
  run.steps.assign(kTimedSteps, StepTimes(run.schedule.roles.size()));
  std::vector<std::vector<double>> begun(kTimedSteps);
  for (int place = 0; place < places; ++place) {
    double all = 0, busy = 0;
    int most = 0;
    std::ifstream file(folder / std::to_string(place));
    file >> all >> busy >> most;
    const Role& role = run.schedule.role_of(place);
    for (int step = 0; step < kTimedSteps; ++step) {
      file >> begun[step].emplace_back();
      auto& times = run.steps[step][&role - run.schedule.roles.data()];
      times.resize(role.actions.size());
      for (auto& time : times) file >> time.begin >> time.end;
    }
    run.step = std::max(run.step, all);
    run.busy.push_back(busy);
    run.most_in_run.push_back(most);
    run.most_in_list.push_back(most_under_way(role, nullptr));
  }
  for (int step = 0; step < kTimedSteps; ++step) begin_together(run, step, begun[step]);
  return run;
}

double idle_share(const std::vector<double>& busy, double step) {
  double sum = 0;
  for (const double seconds : busy) sum += 1 - seconds / step;
  return sum / static_cast<double>(busy.size());
}

double foretold_idle(const Schedule& schedule, double seconds) {
  const Simulation told =
      simulate(schedule, costs_of(static_cast<int>(schedule.blocks.size()), seconds));
  std::vector<double> busy;
  for (const auto& role : told.roles) busy.push_back(role.compute);
  return idle_share(busy, told.step);
}

// With all three parts of a slice equally long.
double formula(const std::string& name, double places, double slices) {
  if (name == "interleaved") return (places - 1) / (2 * slices + places - 1);
  if (name == "zero-bubble") return (places - 1) / (3 * slices + places - 1);
  return (places - 1) / (slices + places - 1);
}

std::string list_of(const std::vector<int>& numbers) {
  std::string out;
  for (const int number : numbers)
    out += (out.empty() ? "" : " ") + std::to_string(number);
  return out;
}

// The shortest step: others of a busy machine show what else it did.
void write_times(const std::string& name, const TimedRun& run) {
  const auto& shortest = *std::ranges::min_element(
      run.steps, {}, [](const auto& times) { return step_seconds(times); });
  std::string file = name;
  std::ranges::replace(file, '-', '_');
  const char* const source = std::getenv("COHORT_SOURCE");
  ASSERT_NE(source, nullptr) << "run through ctest";
  write_file_atomically(
      std::string(source) + "/docs/pictures/schedule_" + file + ".csv",
      to_csv(run.schedule, shortest));
}

TEST(PipelineBubbles, AreAsForetold) {
  const int places = 4;
  const bool draws = std::getenv("COHORT_UPDATE_PICTURES") != nullptr;
  const double seconds = draws ? test::kTimedBlock : 0.004;
  std::printf("schedule,slices,measured_idle,foretold_idle,formula,planned,counted\n");
  for (const int slices : {8, 16}) {
    std::map<std::string, double> idle;
    for (const char* name : kScheduleNames) {
      const TimedRun run = timed(name, places, slices, seconds);
      const double measured = idle_share(run.busy, run.step);
      const double told = foretold_idle(run.schedule, seconds);
      std::printf("%s,%d,%.3f,%.3f,%.3f,%s,%s\n", name, slices, measured, told,
                  formula(name, places, slices), list_of(run.most_in_list).c_str(),
                  list_of(run.most_in_run).c_str());
      EXPECT_NEAR(told, formula(name, places, slices), 0.03) << name;
      EXPECT_EQ(run.most_in_run, run.most_in_list) << name;
      idle[name] = told;
      if (draws && slices == 8) write_times(name, run);
    }
    EXPECT_LT(idle["zero-bubble"], idle["1f1b"]);
    EXPECT_LT(idle["interleaved"], idle["1f1b"]);
  }
}

}  // namespace
}  // namespace cohort
