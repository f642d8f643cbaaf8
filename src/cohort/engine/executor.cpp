// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/executor.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "cohort/core/error.h"
#include "cohort/engine/agreement.h"
#include "cohort/engine/cuda/device_side.h"
#include "cohort/engine/cuda/kernel_search.h"
#include "cohort/engine/timed.h"
#include "cohort/step/buckets.h"
#include "cohort/step/derive.h"
#include "cohort/step/generator.h"

namespace cohort {
namespace {

using Seconds = std::chrono::duration<double>;
using SteadyClock = std::chrono::steady_clock;

}  // namespace

struct Executor::Flight {
  Values inputs;
  Values outputs;  // empty: nothing was computed
};

// Hands out the places of gradients, once a slice.
class Executor::Sink final : public GradSink {
 public:
  explicit Sink(const Executor& executor) : executor_(executor) {}

  void begin_slice(int slice) {
    slice_ = slice;
    taken_.clear();
  }
  // Several blocks that share a parameter would overwrite each other's; one that is
  // frozen has no place.
  GradTarget take(const Tensor& parameter) override {
    if (!parameter.requires_grad()) return {};
    const int index = executor_.state_.place_of(parameter);
    if (executor_.shared_[index] || !taken_.insert(index).second) return {};
    const Place& place = executor_.state_.places()[index];
    const auto leaf = executor_.leaf(place.bucket, slice_);
    return {FlatState::view(leaf.memory, place), leaf.adds};
  }
  bool was_taken(int place) const { return taken_.count(place) != 0; }

 private:
  const Executor& executor_;
  int slice_ = 0;
  std::unordered_set<int> taken_;
};

Executor::Executor(Chain& chain, Schedule schedule, const UpdateRule& rule,
                   Communicator& comm, const ExecutorOptions& options)
    : chain_(chain),
      schedule_(std::move(schedule)),
      role_(schedule_.role_of(comm.rank())),
      rule_(rule),
      comm_(comm),
      groups_(
          (make_groups(), RankGroups{&comm_, shard_comm_ ? shard_comm_.get() : &comm_,
                                     replicate_comm_.get()})),
      options_(options),
      first_slice_(schedule_.mesh.slices(comm.rank(), schedule_.slices).begin),
      fused_(options.communicate && updates_at_once(role_)),
      moves_alone_(!shares_memory(comm)),
      recomputed_(recomputed_blocks(role_, chain.blocks.size())),
      inputs_in_lane_(writers_in_lane(role_.actions)),
      state_(chain, schedule_, rule, options.decay,
             options.takes_over ? nullptr : &comm, *groups_.shard),
      gradients_(schedule_, state_, groups_,
                 {.visits = fused_, .seals = options.compute_on == ComputeOn::kHost}),
      sink_(std::make_unique<Sink>(*this)),
      last_to_add_(last_to_add(bucket_uses(specs_of(chain), schedule_.buckets),
                               schedule_.buckets.size())),
      flights_(chain.blocks.size()),
      sums_(comm, options.listed_samples),
      votes_(comm.allocate({1}, at::kLong)) {
  require_equal(comm_, schedule_.hash(), "schedule");
  COHORT_CHECK(!fused_ || GradientSums::can_visit(groups_),
               "the step updates in its reductions, and ranks share no memory");
  if (schedule_.precision.compute == at::kHalf) loss_scale_.emplace(options.loss_scale);
  if (!options.takes_over) start_buffers_equal();
  find_shared_places();
  waits_.assign(role_.actions.size(), 0);
  visitor_ = [this](int bucket, int64_t begin, int64_t count, float* sum) {
    visit_share(bucket, begin, count, sum);
  };
  auto* peers = dynamic_cast<PeerMemory*>(groups_.shard);
  for (const auto& bucket : state_.buckets())
    if (fused_ && schedule_.shard < 3)
      peer_parameters_.push_back(peers->map_peers(bucket.whole));
  if (options.compute_on != ComputeOn::kHost) set_up_device();
  if (gradients_.seals())
    seal_ = std::make_unique<StateSeal>(state_, chain_, schedule_.shard);
  if (seal_ && !options.takes_over) seal_->close_all();
}

Executor::~Executor() = default;

void Executor::begin(const Role& role) {
  pending_.clear();
  pending_.resize(role.actions.size());
  lanes_.assign(schedule_.channels.size(), {});
  lane_ends_.assign(lanes_.size(), 0);
  times_.assign(role.actions.size(), {});
  begun_ = SteadyClock::now();
  correct_ = 0;
  sums_.clear();
  statistics_.clear();
}

// Whoever recovers has use for the state alone. Communication that is in flight ends at
// once, for it is broken, or with the peers, who have come to it or will.
void Executor::abandon() {
  pending_.clear();
  for (auto& flight : flights_) flight = {};
  upstream_.clear();
  evaluating_ = false;
}

StepResult Executor::run(const StepInput& input) {
  split_ = {};
  rate_ = input.rate;
  step_ = input.step;
  skipped_ = false;
  norm_ = 0;
  standing_ = {.phase = Standing::Phase::kBefore};
  updated_.assign(schedule_.buckets.size(), false);
  begin(role_);
  gradients_.begin_step();
  as_expected_ = false;
  if (input.stop) sums_.ask_to_stop();
  try {
    if (device_) start_device_step(input);
    for (size_t i = 0; i < role_.actions.size(); ++i) perform(role_, i, input);
  } catch (...) {
    abandon();
    throw;
  }
  return result();
}

StepResult Executor::result() const {
  return {.loss = sums_.loss_sum() / sums_.count(),
          .count = sums_.count(),
          .stop = sums_.asked_to_stop(),
          .skipped = skipped_,
          .norm = norm_,
          .split = split_,
          .drawn = sums_.drawn(),
          .samples = sums_.listed()};
}

void Executor::perform(const Role& role, size_t index, const StepInput& input) {
  const Action& action = role.actions[index];
  // At a Commit all that the step changes is changed.
  const bool ends = action.kind == ActionKind::kCommit;
  const bool struck = options_.faults && !evaluating_;
  if (struck && !ends) strike(static_cast<int64_t>(index));
  finish_inputs(role, index);
  if (struck && ends) strike(static_cast<int64_t>(index));
  times_[index].begin = Seconds(SteadyClock::now() - begun_).count();
  if (runs_ahead()) launch_ahead(static_cast<int>(index), input);
  switch (action.kind) {
    case ActionKind::kForward:
    case ActionKind::kRecompute:
    case ActionKind::kBackward:
      if (!runs_ahead()) compute(action, input);
      break;
    case ActionKind::kReduce:
    case ActionKind::kReduceScatter:
    case ActionKind::kReduceUpdate:
      pending_[index] = reduce(action);
      break;
    case ActionKind::kMirror:
      pending_[index] = mirror(action);
      break;
    case ActionKind::kGather:
      pending_[index] = gather(action);
      break;
    case ActionKind::kFree:
      free_parameters(action.buckets[0]);
      break;
    case ActionKind::kNorm:
      norm();
      break;
    case ActionKind::kVote:
      check_samples(input);
      pending_[index] = vote();
      break;
    case ActionKind::kUpdate:
      update(action.buckets[0]);
      break;
    case ActionKind::kOffload:
    case ActionKind::kFetch:
      break;  // the state is the host's already
    case ActionKind::kFoldBuffers:
      fold_buffers();
      break;
    case ActionKind::kCommit:
      check_samples(input);  // of a step without a vote: it is not told of or kept
      commit();
      break;
    default:
      throw BugError(text("[engine] no way to run ", name_of(action.kind)));
  }
  if (input.in_turn) pending_[index].finish();
  times_[index].end = Seconds(SteadyClock::now() - begun_).count();
  if (action.lane != kComputeLane)
    lanes_[action.lane].push_back(static_cast<int>(index));
}

// A lane is first in, first out. Waiting for a reduction also does this rank's share of
// it, and of a fused update.
void Executor::finish_action(const Role& role, int index) {
  auto& lane = lanes_[role.actions[index].lane];
  const auto end = std::upper_bound(lane.begin(), lane.end(), index);
  if (end == lane.begin()) return;
  Timed timed(split_.wait);
  double now = Seconds(SteadyClock::now() - begun_).count();
  for (auto it = lane.begin(); it != end; ++it) {
    const bool was_done = !pending_[*it].work.in_flight();
    pending_[*it].finish();
    if (runs_ahead() && sums_shares(role.actions[*it].kind))
      slot_taken_[schedule_.buckets[role.actions[*it].buckets[0]].slot] = false;
    const double turned =
        std::exchange(now, Seconds(SteadyClock::now() - begun_).count());
    if (was_done) continue;
    if (!evaluating_) waits_[*it] += now - turned;
    double& lane_end = lane_ends_[role.actions[*it].lane];
    times_[*it] = {moves_alone_ ? std::max(times_[*it].begin, lane_end) : turned, now};
    lane_end = now;
  }
  lane.erase(lane.begin(), end);
  if (!not_finite_.empty()) throw Error(ErrorKind::kBug, not_finite_);
}

void Executor::compute(const Action& action, const StepInput& input) {
  if (device_ && evaluating_) device_->lane().join_uploads();
  if (action.kind == ActionKind::kForward) return forward(action, input);
  action.kind == ActionKind::kRecompute ? recompute(action) : backward(action);
}

void Executor::load_slice(const Action& action, const StepInput& input) {
  Timed timed(split_.data);
  sink_->begin_slice(action.slice);
  std::fill(written_.begin(), written_.end(), false);
  if (runs_ahead()) {
    const DeviceSlice& slice = device_->batch().slice(action.slice);
    batch_ = {slice.input, slice.target, slice.ids};
    return;
  }
  batch_ = input.batch(first_slice_ + action.slice);
  if (!evaluating_) sums_.draw(input.sample_key, batch_.ids);
  if (batch_.input.is_floating_point())
    batch_.input = batch_.input.to(schedule_.precision.compute);
}

void Executor::forward(const Action& action, const StepInput& input) {
  if (action.block == 0) load_slice(action, input);
  Flight& flight = flights_[action.block];
  flight = {};
  if (batch_.input.size(0) == 0) return;  // a short last batch has empty slices
  Timed timed(split_.forward);
  flight.inputs = action.block == 0 ? Values{batch_.input}
                                    : cut_graph(flights_[action.block - 1].outputs,
                                                input_has_gradient_[action.block]);
  const auto keeps_graph = [this](int block) {
    return !evaluating_ && !recomputed_[block];
  };
  const c10::AutoGradMode mode(keeps_graph(action.block));
  const size_t before = statistics_.size();
  flight.outputs = run_block(action, flight.inputs, /*again=*/false);
  for (size_t i = before; i < statistics_.size(); ++i)
    statistics_[i].slice = action.slice;
  if (action.block > 0 && !keeps_graph(action.block - 1))
    flights_[action.block - 1].outputs.clear();
}

Values Executor::run_block(const Action& action, const Values& inputs, bool again) {
  Context context{.step = step_,
                  .slice = first_slice_ + action.slice,
                  .sample_ids = batch_.ids,
                  .seed = options_.seed,
                  .phase = evaluating_ ? Phase::kEvaluate : Phase::kTrain,
                  .recompute = again};
  context.grads = evaluating_ ? nullptr : sink_.get();
  context.random =
      runs_ahead() ? device_->batch().slice(action.slice).keys.get() : nullptr;
  context.statistics = again || evaluating_ ? nullptr : &statistics_;
  Values outputs = chain_.blocks[action.block]->forward(inputs, context);
  if (action.block + 1 != static_cast<int>(chain_.blocks.size())) return outputs;

  // Where nothing may wait, right answers are not counted.
  const c10::AutoGradMode mode(runs_ahead() || c10::GradMode::is_enabled());
  const WeightedLoss loss = chain_.loss(outputs, batch_.target);
  if (!again) keep_loss(action, loss);
  return {loss.sum};
}

void Executor::keep_loss(const Action& action, const WeightedLoss& loss) {
  if (runs_ahead()) return device_->keep_loss(action.slice, loss);
  sums_.add_loss(loss.sum.item<double>(), loss.count);
  correct_ += loss.correct;
}

void Executor::recompute(const Action& action) {
  Flight& flight = flights_[action.block];
  if (flight.inputs.empty()) return;
  Timed timed(split_.backward);
  flight.outputs = run_block(action, flight.inputs, /*again=*/true);
}

void Executor::backward(const Action& action) {
  Timed timed(split_.backward);
  Flight flight = std::exchange(flights_[action.block], {});
  const auto& places = state_.places_of_block(action.block);
  std::vector<int> trained;
  for (int p : places)
    if (state_.places()[p].parameter.requires_grad()) trained.push_back(p);
  Values gradients(trained.size());
  if (!flight.outputs.empty()) {
    Values wanted;
    for (int p : trained) wanted.push_back(state_.places()[p].parameter);
    for (const auto& value : flight.inputs)
      if (value.requires_grad()) wanted.push_back(value);
    const bool last = action.block + 1 == static_cast<int>(chain_.blocks.size());
    const Values given =
        !last ? std::exchange(upstream_, {})
              : Values{device_ ? device_->seed() : at::full({}, seed_scale())};
    if (!wanted.empty())
      gradients = torch::autograd::grad(flight.outputs, wanted, given, {}, false,
                                        /*allow_unused=*/true);
  }
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < trained.size(); ++i) {
    keep_gradient(trained[i], gradients[i], action.slice);
    if (seal_) gradients_.close_born(trained[i], action.slice);
  }
  upstream_.assign(gradients.begin() + static_cast<int64_t>(trained.size()),
                   gradients.end());
  if (device_) return;  // they are not on the host yet
  for (int bucket : action.buckets)
    if (last_to_add_[bucket] == action.block && state_.buckets()[bucket].trained)
      gradients_.finish_slice(bucket, action.slice);
}

// A gradient that was born in its place is there already. One that was handed a place
// and came back elsewhere is the sum with a second use of the parameter, and holds all
// of it.
void Executor::keep_gradient(int index, const Tensor& gradient, int slice) {
  const Place& place = state_.places()[index];
  const auto [memory, adds_slices] = leaf(place.bucket, slice);
  const Tensor home = FlatState::view(memory, place);
  const bool adds = adds_slices || written_[index];
  if (seal_ && adds) gradients_.open_born(index, slice);
  written_[index] = true;
  if (!gradient.defined()) {
    if (!adds) home.zero_();
  } else if (gradient.data_ptr() == home.data_ptr()) {
    return;
  } else if (!adds || sink_->was_taken(index)) {
    home.copy_(gradient);
  } else {
    home.add_(gradient);
  }
}

WeightedLoss Executor::evaluate(const Schedule& forward, const Batch& batch) {
  const Role& role = forward.role_of(comm_.rank());
  const StepInput input{.step = step_, .batch = [&](int) { return on_device(batch); }};
  evaluating_ = true;
  begin(role);
  const auto run = [&] {
    for (size_t i = 0; i < role.actions.size(); ++i) perform(role, i, input);
  };
  const NoKernelSearch rare(device_ != nullptr);
  try {
    device_ ? device_->lane().run(run) : run();
  } catch (...) {
    abandon();
    throw;
  }
  abandon();
  return {.sum = at::full({}, sums_.loss_sum(), at::kDouble),
          .count = sums_.count(),
          .correct = correct_};
}

}  // namespace cohort
