// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/executor.h"

#include <ATen/ATen.h>

#include <utility>

#include "cohort/core/error.h"
#include "cohort/engine/action_watch.h"
#include "cohort/engine/agreement.h"
#include "cohort/engine/cuda/device_compute.h"
#include "cohort/engine/host_compute.h"

namespace cohort {
namespace {

using SteadyClock = std::chrono::steady_clock;

// Before anything is taken or exchanged as it says.
Schedule agreed(Schedule schedule, Communicator& comm) {
  require_equal(comm, schedule.hash(), "schedule");
  return schedule;
}

}  // namespace

Executor::Executor(Chain& chain, Schedule schedule, const UpdateRule& rule,
                   Communicator& comm, const ExecutorOptions& options)
    : chain_(chain),
      schedule_(agreed(std::move(schedule), comm)),
      role_(schedule_.role_of(comm.rank())),
      comm_(comm),
      options_(options),
      updates_at_once_(options.communicate && updates_at_once(role_)),
      channels_(schedule_, comm),
      calls_(chain, {.group = [this](AxisSet axes) { return channels_.inner(axes); },
                     .rank = comm.rank(),
                     .faults = options.faults}),
      step_(comm, options.listed_samples),
      state_(chain, schedule_, rule, options.decay, channels_.groups(),
             options.takes_over),
      gradients_(schedule_, state_, channels_.groups(),
                 {.visits = updates_at_once_,
                  .seals = options.compute_on == ComputeOn::kHost}),
      compute_([&]() -> std::unique_ptr<ComputeSide> {
        if (!options.takes_over) start_buffers_equal();
        const int first = schedule_.mesh.slices(comm.rank(), schedule_.slices).begin;
        if (options.compute_on == ComputeOn::kHost)
          return std::make_unique<HostCompute>(chain, state_, gradients_, schedule_,
                                               role_, first, options.seed, calls_,
                                               step_);
        return std::make_unique<DeviceCompute>(chain, state_, gradients_, schedule_,
                                               role_, first, options_, step_);
      }()),
      updates_(schedule_, channels_.groups(), rule, state_, gradients_, step_,
               {.clip = options.clip, .at_once = updates_at_once_}),
      end_(chain, schedule_, role_, channels_.groups(), state_, gradients_, updates_,
           *compute_, step_, options_),
      transfers_(schedule_, channels_, state_, gradients_, *compute_, step_),
      view_(chain, schedule_, channels_.groups(), rule, state_, updates_at_once_),
      interpreter_(schedule_, role_, !shares_memory(comm)) {}

// Rank 0's buffers are everyone's.
void Executor::start_buffers_equal() {
  for (auto& [name, tensor] : chain_.buffers()) {
    Tensor buffer = tensor;
    comm_.broadcast(buffer, 0).wait();
  }
}

StepResult Executor::run(const StepInput& input) {
  input_ = &input;
  step_.begin(input.step, input.rate);
  step_.seed_scale = end_.seed_scale();
  end_.begin_step();
  if (input.stop) step_.sums.ask_to_stop();
  try {
    compute_->begin_step(input, step_.seed_scale);
    interpreter_.run(*this, input.in_turn);
  } catch (...) {
    abandon();
    throw;
  }
  step_.split.wait += interpreter_.waited();
  return result();
}

// Whoever recovers has use for the state alone.
void Executor::abandon() {
  channels_.leave_blocks();
  interpreter_.abandon();
  compute_->abandon();
}

StepResult Executor::result() const {
  const StepSums& sums = step_.sums;
  return {.loss = sums.loss_sum() / sums.count(),
          .count = sums.count(),
          .stop = sums.asked_to_stop(),
          .skipped = step_.skipped,
          .norm = step_.norm,
          .split = step_.split,
          .drawn = sums.drawn(),
          .samples = sums.listed()};
}

void Executor::reach(int index) {
  if (options_.faults) end_.strike(index);
}

void Executor::done(int index) {
  if (options_.watch) options_.watch->end(role_.actions[index]);
}

bool Executor::comes_late(int lane) const {
  return options_.watch && options_.watch->delays(lane);
}

PendingWork Executor::perform(int index) {
  const Action& action = role_.actions[index];
  if (options_.watch) options_.watch->begin(action);
  compute_->reach(index, interpreter_);
  switch (action.kind) {
    case ActionKind::kForward:
    case ActionKind::kRecompute:
    case ActionKind::kBackward:
      compute_->compute(action);
      break;
    case ActionKind::kReduce:
    case ActionKind::kReduceScatter:
    case ActionKind::kReduceUpdate:
      return reduce(action);
    case ActionKind::kMirror:
      return options_.communicate ? transfers_.mirror(action) : PendingWork{};
    case ActionKind::kGather:
      return transfers_.gather(action, interpreter_);
    case ActionKind::kFree:
      transfers_.free_parameters(action.buckets[0]);
      break;
    case ActionKind::kSend:
      if (options_.watch)
        if (const Tensor sent = transfers_.sent_of_bucket(action); sent.defined())
          options_.watch->gives(sent);
      return transfers_.send(action);
    case ActionKind::kRecv:
      return transfers_.receive(action);
    case ActionKind::kNorm:
      end_.norm();
      break;
    case ActionKind::kVote:
      end_.check_samples(*input_);
      return end_.vote();
    case ActionKind::kUpdate:
      end_.update(action.buckets[0]);
      break;
    case ActionKind::kOffload:
    case ActionKind::kFetch:
      break;  // the state is the host's already
    case ActionKind::kFoldBuffers:
      end_.fold_buffers();
      break;
    case ActionKind::kCommit:
      end_.check_samples(*input_);  // of a step without a vote: it is not told of
      end_.commit();
      break;
    default:
      throw BugError(text("[engine] no way to run ", name_of(action.kind)));
  }
  return {};
}

PendingWork Executor::reduce(const Action& action) {
  const bool updates = action.kind == ActionKind::kReduceUpdate;
  if (!options_.communicate) {
    if (updates) end_.update(action.buckets[0]);  // with what this rank has
    return {};
  }
  PendingWork work = transfers_.reduce(action, updates_.visitor());
  if (!updates) return work;
  return {std::move(work.work), [this, then = std::move(work.then)] {
            if (then) then();
            updates_.require_finite();
          }};
}

// Forwards alone: of a schedule of their own, with the state of this one.
class Executor::Evaluation final : public Performer {
 public:
  Evaluation(Executor& executor, const Schedule& schedule)
      : executor_(executor),
        schedule_(&schedule),
        interpreter_(schedule, schedule.role_of(executor.comm_.rank()),
                     /*moves_alone=*/true) {}

  bool is_of(const Schedule& schedule) const { return schedule_ == &schedule; }
  void run() { interpreter_.run(*this); }
  void abandon() { interpreter_.abandon(); }
  void reach(int) override {}
  PendingWork perform(int index) override {
    const Action& action = interpreter_.role().actions[index];
    switch (action.kind) {
      case ActionKind::kForward:
        executor_.compute_->compute(action);
        break;
      case ActionKind::kGather:
        return executor_.transfers_.gather(action, interpreter_);
      case ActionKind::kFree:
        executor_.transfers_.free_parameters(action.buckets[0]);
        break;
      case ActionKind::kSend:
        return executor_.transfers_.send(action);
      case ActionKind::kRecv:
        return executor_.transfers_.receive(action);
      case ActionKind::kCommit:
        break;  // nothing has changed
      default:
        throw BugError(text("[engine] no way to evaluate ", name_of(action.kind)));
    }
    return {};
  }

 private:
  Executor& executor_;
  const Schedule* schedule_;
  Interpreter interpreter_;
};

Executor::~Executor() = default;

WeightedLoss Executor::evaluate(const Schedule& forward, const Batch& batch) {
  const StepInput input{.step = step_.step, .batch = [&](int) { return batch; }};
  if (!evaluation_ || !evaluation_->is_of(forward))
    evaluation_ = std::make_unique<Evaluation>(*this, forward);
  step_.sums.clear();
  try {
    const double correct = compute_->evaluate(input, [&] { evaluation_->run(); });
    return {.sum = at::full({}, step_.sums.loss_sum(), at::kDouble),
            .count = step_.sums.count(),
            .correct = correct};
  } catch (...) {
    evaluation_->abandon();
    abandon();
    throw;
  }
}

void Executor::refresh() {
  view_.refresh(*compute_);
  end_.close_seals();
}

StepResult Executor::finish(bool skip) {
  end_.finish(skip);
  return result();
}

std::string Executor::small_state() {
  const LossScale* const scale = end_.loss_scale();
  return scale ? scale->saved() : "";
}

void Executor::set_small_state(const std::string& text) {
  if (LossScale* const scale = end_.loss_scale(); scale && !text.empty())
    scale->restore(text);
}

std::vector<Tensor> Executor::memory_of(const Value& value) const {
  const BucketState& bucket = state_.buckets()[value.of];
  std::vector<Tensor> all;
  const auto add = [&](const Tensor& tensor) {
    if (tensor.defined() && tensor.storage().data()) all.push_back(tensor);
  };
  const auto add_share = [&](const ShareState& share) {
    add(share.master);
    for (const auto& moment : share.states) add(moment);
  };
  if (value.what == What::kWhole) {
    add(bucket.whole);
  } else if (value.what == What::kState) {
    if (bucket.own) add_share(bucket);
    if (bucket.mirror) add_share(*bucket.mirror);
    add(bucket.travels);
  } else if (bucket.trained) {
    for (const auto& tensor : gradients_.memory_of(value)) add(tensor);
  }
  return all;
}

std::chrono::duration<double> Executor::time_communication() {
  comm_.barrier().wait();
  const GradientSums::Visitor nothing = [](int, int64_t, int64_t, float*) {};
  const auto start = SteadyClock::now();
  for (int i = 0; i < static_cast<int>(state_.buckets().size()); ++i)
    if (state_.buckets()[i].trained && state_.buckets()[i].own)
      gradients_
          .reduce(i, schedule_.shard >= 2 ? 0 : kNone,
                  updates_at_once_ ? &nothing : nullptr)
          .finish();
  return SteadyClock::now() - start;
}

}  // namespace cohort
