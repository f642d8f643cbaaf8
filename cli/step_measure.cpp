// SPDX-License-Identifier: Apache-2.0
#include "cli/step_measure.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <span>

#include "cli/step_options.h"
#include "cli/step_setting.h"
#include "cohort/comm/backends.h"
#include "cohort/comm/peer_memory.h"
#include "cohort/comm/world.h"
#include "cohort/core/error.h"
#include "cohort/core/freed_memory.h"
#include "cohort/core/memory.h"
#include "cohort/data/sampler.h"
#include "cohort/engine/executor.h"
#include "cohort/step/checker.h"
#include "cohort/step/checks/role_view.h"
#include "cohort/step/cost_fit.h"
#include "cohort/step/step_record.h"
#include "cohort/train/checked_recipe.h"
#include "cohort/train/model_counts.h"

namespace cohort::cli {
namespace {

constexpr int kTurn = 5;    // steps of one kind before the next has its turn
constexpr int kWarmUp = 2;  // before those that count, each turn
constexpr int kLinkTrials = 10;

using Steps = std::vector<std::vector<ActionTime>>;

// Batches and times of one kind of step on this rank.
struct Series {
  int64_t batch;
  bool in_turn;
  Sampler sampler;
  Steps steps = {};
};

// What blocks need, seen at the size of the step's own slices: kernels that pack their
// operands do so from some size on.
std::vector<BlockMeasure> measure_at(const StepSetting& setting, const Chain& chain,
                                     const Dataset& data) {
  const double samples = setting.samples(setting.batch());
  const auto batch = [&](int64_t count) { return some_samples(chain, data, count); };
  auto measures =
      measure_blocks(chain, batch, std::max<int64_t>(1, std::llround(samples / 2)));
  if (const auto counts =
          count_model(*setting.recipe, setting.config,
                      tensor_part(setting.config, setting.layout, 0), data))
    take_flops(*counts, measures);
  return measures;
}

class Measurement {
 public:
  Measurement(const StepSetting& setting, Chain& chain, const Dataset& data,
              Communicator& comm, MemoryCounter& counter)
      : setting_(setting),
        data_(data),
        comm_(comm),
        rule_(make_update_rule(update_options(*setting.recipe, setting.config))),
        measures_(measure_at(setting, chain, data)),
        specs_(specs_of(chain)),
        counter_(counter),
        executor_(chain, schedule_of(setting, specs_, measures_, setting.batch()),
                  *rule_, comm, executor_options(setting.config)),
        fields_(fields_of(chain, executor_.schedule().role_of(comm.rank()))) {}

  void run(const std::vector<int64_t>& costs_at, int steps) {
    for (int64_t batch : costs_at) add(batch, /*in_turn=*/true);
    add(setting_.batch(), /*in_turn=*/false);
    for (int done = 0; done < steps; done += kTurn)
      for (auto& series : series_) take_turn(series, std::min(kTurn, steps - done));
  }

  // Collective; the rest is for rank 0.
  void gather_all() {
    for (const auto& series : series_) records_.push_back(gather(series.steps));
    time_links();
    Tensor most = at::full({1}, peak_, at::kLong);
    comm_.all_reduce(most, ReduceOp::kMax).wait();
    peak_ = most.item<int64_t>();
  }

  CostTable costs() const {
    std::vector<StepTimes> times;
    for (size_t s = 0; s + 1 < series_.size(); ++s) {
      times.push_back(usual_costs(executor_.schedule(), records_[s]));
      set_transfers(times.back());
    }
    std::vector<ObservedStep> steps;
    for (size_t s = 0; s < times.size(); ++s)
      steps.push_back({.schedule = executor_.schedule(),
                       .times = times[s],
                       .samples = setting_.samples(series_[s].batch),
                       .hidden = !shares_memory(comm_)});
    return fit_costs(steps);
  }

  StepTimes times() const { return usual_times(records_.back()); }
  const Schedule& schedule() const { return executor_.schedule(); }
  int64_t peak() const { return peak_; }

 private:
  // In a step a Recv mostly waits for what the other end computes; so what each link
  // takes is timed with nothing beside it. Collective.
  void time_links() {
    const Schedule& schedule = executor_.schedule();
    link_seconds_ = at::zeros({schedule.lanes()}, at::kDouble);
    for (int lane = 0; lane < schedule.lanes(); ++lane) {
      const Channel& link = schedule.channels[lane];
      if (link.kind != Channel::Kind::kLink) continue;
      Tensor value = comm_.allocate({largest_transfer(lane)}, at::kByte);
      const int from = schedule.mesh.with(0, Axis::kPipe, link.from);
      const int to = schedule.mesh.with(0, Axis::kPipe, link.to);
      double least = std::numeric_limits<double>::infinity();
      for (int i = 0; i < kLinkTrials; ++i) {
        comm_.barrier().wait();
        const auto begin = std::chrono::steady_clock::now();
        const Transfer send{to, value}, receive{from, value};
        if (comm_.rank() == from) comm_.exchange(std::span(&send, 1), {}).wait();
        if (comm_.rank() == to) comm_.exchange({}, std::span(&receive, 1)).wait();
        const std::chrono::duration<double> took =
            std::chrono::steady_clock::now() - begin;
        if (comm_.rank() == to) least = std::min(least, took.count());
      }
      if (comm_.rank() == to) link_seconds_[lane] = least;
    }
    comm_.all_reduce(link_seconds_, ReduceOp::kSum).wait();
  }

  int64_t largest_transfer(int lane) const {
    int64_t most = 0;
    for (const auto& role : executor_.schedule().roles)
      for (const auto& action : role.actions)
        if (action.lane == lane) most = std::max(most, action.bytes);
    return most;
  }

  void set_transfers(StepTimes& times) const {
    const auto& roles = executor_.schedule().roles;
    for (size_t r = 0; r < roles.size(); ++r)
      for (size_t i = 0; i < times[r].size(); ++i)
        if (const Action& action = roles[r].actions[i]; is_transfer(action))
          times[r][i] = {0, link_seconds_[action.lane].item<double>()};
  }

  void add(int64_t batch, bool in_turn) {
    series_.push_back({.batch = batch,
                       .in_turn = in_turn,
                       .sampler = Sampler({.size = data_.size(),
                                           .batch = batch,
                                           .slices = setting_.options.slices})});
  }

  void take_turn(Series& series, int steps) {
    for (int i = 0; i < kWarmUp; ++i) step(series);
    counter_.reset_peak();
    for (int i = 0; i < steps; ++i) {
      step(series);
      series.steps.push_back(executor_.times());
    }
    if (!series.in_turn) peak_ = std::max(peak_, counter_.peak());
  }

  // With a rate of 0 the weights stay, and cost as much.
  void step(Series& series) {
    const Position position{.step = step_++ % series.sampler.steps_per_epoch()};
    executor_.run({.step = step_,
                   .rate = 0,
                   .batch =
                       [&](int slice) {
                         return data_.gather(series.sampler.slice(position, slice),
                                             fields_);
                       },
                   .in_turn = series.in_turn});
  }

  // Lists of ranks differ in length: the longest counts.
  StepRecord gather(const Steps& steps) {
    size_t longest = 0;
    for (const auto& role : executor_.schedule().roles)
      longest = std::max(longest, role.actions.size());
    const auto count = static_cast<int64_t>(steps.size() * longest);
    Tensor mine = at::zeros({count, 2}, at::kDouble);
    Tensor all = at::zeros({comm_.size() * count, 2}, at::kDouble);
    auto own = mine.accessor<double, 2>();
    for (size_t s = 0; s < steps.size(); ++s)
      for (size_t i = 0; i < steps[s].size(); ++i) {
        const auto row = static_cast<int64_t>(s * longest + i);
        own[row][0] = steps[s][i].begin;
        own[row][1] = steps[s][i].end;
      }
    comm_.all_gather(all, mine).wait();
    const auto rows = all.accessor<double, 2>();
    StepRecord record(comm_.size(), Steps(steps.size()));
    for (int r = 0; r < comm_.size(); ++r) {
      const size_t actions = executor_.schedule().role_of(r).actions.size();
      for (size_t s = 0; s < steps.size(); ++s)
        for (size_t i = 0; i < actions; ++i) {
          const auto row = r * count + static_cast<int64_t>(s * longest + i);
          record[r][s].push_back({rows[row][0], rows[row][1]});
        }
    }
    return record;
  }

  const StepSetting& setting_;
  const Dataset& data_;
  Communicator& comm_;
  std::unique_ptr<UpdateRule> rule_;
  std::vector<BlockMeasure> measures_;
  std::vector<BlockSpec> specs_;
  MemoryCounter& counter_;
  Executor executor_;
  std::vector<std::string> fields_;  // those of a batch that this rank computes with
  std::vector<Series> series_;       // the last one is the step as it is
  std::vector<StepRecord> records_;  // by series
  Tensor link_seconds_;              // by lane
  int64_t step_ = 0;
  int64_t peak_ = 0;
};

// At half the batch and the batch itself, unless asked otherwise.
std::vector<int64_t> batches_of(const StepArgs& args, const StepSetting& setting) {
  std::vector<int64_t> batches = args.costs_at;
  if (batches.empty()) {
    if (setting.batch() / 2 >= setting.options.slices)
      batches.push_back(setting.batch() / 2);
    batches.push_back(setting.batch());
  }
  for (int64_t batch : batches)
    if (batch < setting.options.slices)
      throw ConfigError(text("[step] --costs-at ", batch, " cannot be cut into ",
                             setting.options.slices, " slices; legal: at least ",
                             setting.options.slices));
  return batches;
}

std::string sources(const std::vector<int64_t>& batches, int steps,
                    std::string_view backend) {
  std::string list;
  for (int64_t batch : batches) list += text(list.empty() ? "" : " and ", batch);
  return text("measured here at batch ", list, ", ", steps, " steps each, ", backend);
}

StepView view_of(const StepArgs& args, const StepSetting& setting,
                 const Measurement& measured, const std::vector<int64_t>& batches,
                 std::string_view backend) {
  StepView view;
  view.name = args.recipe;
  view.layout = setting.layout_text();
  view.schedule = by_rank(measured.schedule());
  view.report = check(view.schedule, check_options(setting.config));
  view.costs = measured.costs();
  view.costs_from = sources(batches, args.measure, backend);
  view.measured = measured.times();
  view.measured_peak = measured.peak();
  view.samples = setting.samples(setting.batch());
  complete(args, view);
  return view;
}

int measure_rank(const StepArgs& args, StepSetting setting,
                 void (*show)(const StepArgs&, const StepView&)) {
  keep_freed_memory();
  const World world = world_from_env();
  // The others sleep while rank 0 draws: that is no failure.
  const ConnectOptions options{.backend = args.backend,
                               .timeout = std::chrono::minutes(10)};
  auto loading = begin_loading(*setting.recipe, setting.config, world.local_rank == 0);
  const auto store = join(world, options);
  const auto comm = connect(world, *store, options);
  const DataSets data = finish_loading(*setting.recipe, *loading, comm.get());
  MemoryCounter counter;
  const TensorMemoryScope scope(counter);
  Chain chain = setting.make_chain(world.rank);
  setting.options.shares_memory = shares_memory(*comm);
  setting.options.join_alignment = join_alignment(*comm);
  const std::vector<int64_t> batches = batches_of(args, setting);
  Measurement measurement(setting, chain, *data.train, *comm, counter);
  measurement.run(batches, args.measure);
  measurement.gather_all();
  if (world.rank == 0)
    show(args, view_of(args, setting, measurement, batches, comm->backend()));
  comm->barrier().wait();
  return 0;
}

}  // namespace

int measure_step(const StepArgs& args, const RecipeList& recipes,
                 void (*show)(const StepArgs&, const StepView&)) {
  if (args.recipe.empty() || !args.from.empty())
    throw ConfigError("[step] --measure runs a recipe; legal: cohort step RECIPE");
  const StepSetting setting = setting_of(args, recipes);
  batches_of(args, setting);
  find_backend(args.backend, World{});
  if (!args.costs.empty()) read_costs(args.costs);
  return launch_ranks(setting, args.backend, args.json,
                      [&] { return measure_rank(args, setting, show); });
}

}  // namespace cohort::cli
