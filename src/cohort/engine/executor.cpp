// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/executor.h"

#include <ATen/ATen.h>

#include <utility>

#include "cohort/core/error.h"
#include "cohort/engine/action_watch.h"
#include "cohort/engine/agreement.h"
#include "cohort/engine/cuda/kernel_search.h"
#include "cohort/step/run_ahead.h"

namespace cohort {
namespace {

// Before anything is taken or exchanged as it says.
Schedule agreed(const Chain& chain, Schedule schedule, Communicator& comm) {
  require_equal_blocks(comm, chain);
  require_equal(comm, schedule.hash(), "schedule");
  return schedule;
}

std::unique_ptr<CudaLane> lane_for(const StateHome& home,
                                   const ExecutorOptions& options) {
  if (home.on_host()) return nullptr;
  return options.compute_on == ComputeOn::kCuda ? make_cuda_lane(options.gpu)
                                                : make_host_lane();
}

}  // namespace

Executor::Executor(Chain& chain, Schedule schedule, const UpdateRule& rule,
                   Communicator& comm, const ExecutorOptions& options,
                   const ExecutorServices& services)
    : chain_(chain),
      schedule_(agreed(chain, std::move(schedule), comm)),
      role_(schedule_.role_of(comm.rank())),
      comm_(comm),
      options_(options),
      services_(services),
      updates_at_once_(options.communicate && updates_at_once(role_)),
      home_(home_of(schedule_,
                    options.compute_on == ComputeOn::kCuda ? options.gpu : kNone)),
      lane_(lane_for(home_, options)),
      ahead_(lane_ && schedule_.elastic ? actions_ahead(role_) : 0),
      channels_(schedule_, comm),
      calls_(chain, {.group = [this](AxisSet axes) { return channels_.inner(axes); },
                     .rank = comm.rank(),
                     .faults = services.faults,
                     .exact = schedule_.exact}),
      step_(comm, options.listed_samples, home_.device()),
      state_(chain, schedule_, rule, options.decay, channels_.groups(),
             options.takes_over, home_),
      gradients_(schedule_, state_, channels_.groups(),
                 {.visits = updates_at_once_,
                  .seals = options.compute_on == ComputeOn::kHost}),
      compute_(make_compute()),
      end_(make_end(rule)),
      transfers_(schedule_, channels_, lane_.get(), state_, gradients_, *compute_,
                 step_),
      view_(chain, schedule_, channels_.groups(), rule, state_, updates_at_once_),
      interpreter_(schedule_, role_, !shares_memory(comm)) {
  if (channels_.groups().part > 0) step_.sums.leave_to_others();
  // Ranks make first weights of their own parts.
  const bool lacks = has_mirrors(schedule_) && mirror_axis(schedule_) == Axis::kTensor;
  if (lacks && !options.takes_over) {
    in_lane([&] { view_.refresh_mirrors(); });
    end_->close_seals();
  }
  if (lane_) lane_->wait_for_device();
}

void Executor::start(const StepInput& input) {
  go_on();
  step_.begin(input.step, input.rate);
  if (input.stop) step_.sums.ask_to_stop();
  or_abandon([&] {
    in_lane([&] {
      end_->begin_step(input);
      compute_->begin_step(input, end_->seed());
      step_.sums.send();
      if (ahead_ > 0) run_list(0, ahead_, input);
      if (ahead_ == 0 || end_->is_settled()) return start_rest(input);
      held_back_ = input;
      held_back_->batch = nullptr;  // it is on its way
    });
  });
  if (!lane_) step_.split.wait += interpreter_.waited();
}

void Executor::start_rest(const StepInput& input) {
  end_->begin_changes(input);
  run_list(ahead_, size_of_list(), input);
  end_->leave_result();
}

void Executor::go_on() {
  if (!held_back_) return;
  COHORT_CHECK(end_->is_settled(), "step ", held_back_->step + 1,
               " goes on, and nobody has asked for the result of the one before");
  const StepInput input = *std::exchange(held_back_, std::nullopt);
  or_abandon([&] { in_lane([&] { start_rest(input); }); });
}

StepResult Executor::result() {
  if (end_->is_settled()) go_on();
  or_abandon([&] { in_lane([&] { end_->settle(); }); });
  return sums_of_step();
}

template <typename Work>
void Executor::or_abandon(const Work& work) {
  try {
    work();
  } catch (...) {
    abandon();
    throw;
  }
}

void Executor::in_lane(const std::function<void()>& work) {
  if (lane_)
    lane_->run(work);
  else
    work();
}

void Executor::run_list(int first, int end, const StepInput& input) {
  if (!graph_) return interpreter_.run(*this, input.in_turn);
  // How long it took to start each part says nothing.
  const StepSplit before = step_.split;
  const bool ends = end == size_of_list();
  const bool replayed = graph_->run(first > 0 ? 1 : 0, input.whole, [&] {
    if (lanes_) lanes_->begin(first);
    interpreter_.run_to(end, *this, input.in_turn);
    if (lanes_) ends ? lanes_->end() : lanes_->pause();
  });
  if (replayed && ends) end_->has_replayed();
  step_.split = before;
}

// A rank that recovers has use for the state alone.
void Executor::abandon() {
  channels_.leave_blocks();
  interpreter_.abandon();
  if (graph_) graph_->drop();
  compute_->abandon();
  held_back_.reset();
}

// Nobody will go on with it, and its activations take room.
void Executor::drop_held_back() {
  if (held_back_) abandon();
}

VoteState Executor::vote_state() {
  drop_held_back();
  return end_->vote_state();
}

StepResult Executor::sums_of_step() const {
  const StepSums& sums = step_.sums;
  return {.loss = sums.loss_sum() / sums.count(),
          .count = sums.count(),
          .stop = sums.asked_to_stop(),
          .skipped = step_.skipped,
          .norm = step_.norm,
          .split = lane_ ? step_.settled_split : step_.split,
          .drawn = sums.drawn(),
          .samples = sums.listed()};
}

void Executor::reach(int index) {
  if (services_.faults) end_->strike(*services_.faults, index);
}

void Executor::done(int index) {
  if (services_.watch) services_.watch->end(role_.actions[index]);
}

bool Executor::comes_late(int lane) const {
  return services_.watch && services_.watch->delays(lane);
}

// In streams nothing is ever in flight as the host sees it: what comes next in one
// begins behind what is there, also what is done with the result of communication.
PendingWork Executor::perform(int index) {
  if (!lanes_) return act(index);
  lanes_->run(index, [&] { act(index).finish(); });
  return {};
}

PendingWork Executor::act(int index) {
  const Action& action = role_.actions[index];
  if (services_.watch) services_.watch->begin(action);
  switch (action.kind) {
    case ActionKind::kForward:
    case ActionKind::kRecompute:
    case ActionKind::kBackward:
    case ActionKind::kBackwardInput:
    case ActionKind::kBackwardWeight:
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
      if (services_.watch)
        if (const Tensor sent = transfers_.sent_of_bucket(action); sent.defined())
          services_.watch->gives(sent);
      return transfers_.send(action);
    case ActionKind::kRecv:
      return transfers_.receive(action);
    case ActionKind::kNorm:
      end_->norm();
      break;
    case ActionKind::kVote:
      return end_->vote(services_.faults);
    case ActionKind::kUpdate:
      end_->update(action.buckets[0]);
      break;
    case ActionKind::kFoldBuffers:
      end_->fold_buffers();
      break;
    case ActionKind::kCommit:
      end_->commit();
      break;
    default:
      throw BugError(text("[engine] no way to run ", name_of(action.kind)));
  }
  return {};
}

PendingWork Executor::reduce(const Action& action) {
  const bool updates = action.kind == ActionKind::kReduceUpdate;
  if (!options_.communicate) {
    if (updates) end_->update(action.buckets[0]);  // with what this rank has
    return {};
  }
  PendingWork work = transfers_.reduce(action, end_->visitor());
  if (!updates) return work;
  return {std::move(work.work), [this, then = std::move(work.then)] {
            if (then) then();
            end_->require_finite();
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
      case ActionKind::kGather: {
        PendingWork work = executor_.transfers_.gather(action, interpreter_);
        // Blocks of an evaluation wait for the device, and that has no deadline.
        if (executor_.lane_) work.work.wait();
        return work;
      }
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

// What the lane still does with the state is over before its memory goes. A rank that
// has lost a peer has ended that already.
Executor::~Executor() {
  if (!lane_) return;
  try {
    in_lane([&] { comm_.so_far().wait(); });
  } catch (const std::exception&) {
  }
  try {
    lane_->wait_at_most(kDrainTime);
  } catch (const std::exception&) {
  }
}

// `outputs`: what the last block gives, where someone asks.
ComputeSide::Answers Executor::run_forwards(const Schedule& forward, const Batch& batch,
                                            Block* last, Values* outputs) {
  const StepInput input{.step = step_.step, .batch = [&](int) { return batch; }};
  if (!evaluation_ || !evaluation_->is_of(forward))
    evaluation_ = std::make_unique<Evaluation>(*this, forward);
  step_.sums.clear();
  const auto run = [&] {
    evaluation_->run();
    if (!outputs) return;
    const int end = static_cast<int>(chain_.blocks.size()) - 1;
    for (const auto& given : compute_->blocks().output(end, /*slice=*/0))
      outputs->push_back(given.to(at::kCPU));
  };
  try {
    ComputeSide::Answers answers;
    in_lane([&] {
      const NoKernelSearch rare(true);
      step_.sums.send();
      answers = compute_->evaluate(input, last, run);
      comm_.so_far().wait();
      step_.sums.settle();
    });
    return answers;
  } catch (...) {
    evaluation_->abandon();
    abandon();
    throw;
  }
}

WeightedLoss Executor::evaluate(const Schedule& forward, const Batch& batch) {
  auto answers = run_forwards(forward, batch, nullptr, nullptr);
  if (!step_.sums.counts()) answers = {};  // another rank has the same
  return {.sum = at::full({}, step_.sums.loss_sum(), at::kDouble),
          .count = step_.sums.count(),
          .correct = answers.correct,
          .named = std::move(answers.named)};
}

Values Executor::outputs(const Schedule& forward, const Batch& batch, Block& last) {
  Values given;
  run_forwards(forward, batch, &last, &given);
  return given;
}

// What wrote it did so in no lane.
void Executor::refresh() {
  if (lane_) lane_->wait_for_device();
  in_lane([&] { view_.refresh(); });
  if (lane_) lane_->wait();
  end_->close_seals();
}

StepResult Executor::finish(bool skip) {
  drop_held_back();
  in_lane([&] { end_->finish(skip); });
  return sums_of_step();
}

}  // namespace cohort
