// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/executor.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "cohort/core/error.h"
#include "cohort/engine/agreement.h"
#include "cohort/engine/norm.h"
#include "cohort/engine/statistics.h"
#include "cohort/optim/gradient_norm.h"
#include "cohort/step/generator.h"

namespace cohort {
namespace {

using Seconds = std::chrono::duration<double>;
using Clock = std::chrono::steady_clock;

constexpr int64_t kStretch = 131'072;  // elements that are updated at once

// Adds the time until it goes out of scope to one part of the split.
class Timed {
 public:
  explicit Timed(double& sum) : sum_(sum), start_(Clock::now()) {}
  ~Timed() { sum_ += Seconds(Clock::now() - start_).count(); }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  double& sum_;
  Clock::time_point start_;
};

// Cuts the graph at a block's border: each block's backward is a graph of its own.
Values cut_graph(const Values& values, bool needs_gradient) {
  Values cut;
  for (const auto& value : values) {
    Tensor leaf = value.detach();
    leaf.requires_grad_(needs_gradient && value.is_floating_point());
    cut.push_back(std::move(leaf));
  }
  return cut;
}

// An update may follow its reduction at once, in one pass over memory, if nothing
// has to be known first: no norm to clip by, no vote.
bool can_fuse(const Role& role) {
  return std::none_of(role.actions.begin(), role.actions.end(), [](const Action& a) {
    return a.kind == ActionKind::kNorm || a.kind == ActionKind::kVote;
  });
}

bool keeps_graph(const Role& role) {
  return std::none_of(role.actions.begin(), role.actions.end(), [](const Action& a) {
    return a.kind == ActionKind::kRecompute;
  });
}

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
  // Several blocks that share a parameter would overwrite each other's.
  GradTarget take(const Tensor& parameter) override {
    const int index = executor_.state_.place_of(parameter);
    if (executor_.shared_[index] || !taken_.insert(index).second) return {};
    const Place& place = executor_.state_.places()[index];
    const auto leaf = executor_.gradients_.leaf(place.bucket, slice_);
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
      groups_((make_groups(), RankGroups{&comm_,
                                         shard_comm_ ? shard_comm_.get() : &comm_,
                                         replicate_comm_.get()})),
      options_(options),
      first_slice_(slices_of(comm.rank(), comm.size(), schedule_.slices).begin),
      fused_(options.communicate && can_fuse(role_) &&
             GradientSums::can_visit(groups_)),
      state_(chain, schedule_, rule, options.decay, comm, *groups_.shard),
      gradients_(schedule_, state_, groups_, fused_),
      sink_(std::make_unique<Sink>(*this)),
      flights_(chain.blocks.size()),
      loss_(comm.allocate({3}, at::kDouble)),
      votes_(comm.allocate({1}, at::kLong)) {
  require_equal(comm_, schedule_.hash(), "schedule");
  if (schedule_.precision.compute == at::kHalf) loss_scale_.emplace(options.loss_scale);
  start_buffers_equal();
  find_shared_places();
  visitor_ = [this](int bucket, int64_t begin, int64_t count, float* sum) {
    visit_share(bucket, begin, count, sum);
  };
  auto* peers = dynamic_cast<PeerMemory*>(groups_.shard);
  for (const auto& bucket : state_.buckets())
    if (fused_ && schedule_.shard < 3)
      peer_parameters_.push_back(peers->map_peers(bucket.whole));
}

Executor::~Executor() = default;

void Executor::make_groups() {
  if (schedule_.groups.size() < 3) return;
  shard_comm_ = comm_.split(schedule_.groups[1].first_of(comm_.rank()));
  replicate_comm_ = comm_.split(schedule_.groups[2].first_of(comm_.rank()));
}

// Rank 0's buffers are everyone's.
void Executor::start_buffers_equal() {
  for (auto& [name, tensor] : chain_.buffers()) {
    Tensor buffer = tensor;
    comm_.broadcast(buffer, 0).wait();
  }
}

void Executor::find_shared_places() {
  const auto& places = state_.places();
  shared_.assign(places.size(), false);
  written_.assign(places.size(), false);
  last_to_add_.assign(state_.buckets().size(), kNone);
  std::vector<bool> seen(places.size(), false);
  bool trained = false;
  for (int b = 0; b < static_cast<int>(chain_.blocks.size()); ++b) {
    input_has_gradient_.push_back(trained);
    for (int p : state_.places_of_block(b)) {
      if (seen[p]) shared_[p] = true;
      seen[p] = true;
      trained |= places[p].parameter.requires_grad();
      int& last = last_to_add_[places[p].bucket];
      if (last == kNone) last = b;
    }
  }
}

void Executor::begin(const Role& role) {
  pending_.clear();
  pending_.resize(role.actions.size());
  lanes_.assign(2 + schedule_.groups.size(), {});
  times_.assign(role.actions.size(), {});
  begun_ = Clock::now();
  correct_ = 0;
  loss_.zero_();
  statistics_.clear();
}

StepResult Executor::run(const StepInput& input) {
  split_ = {};
  rate_ = input.rate;
  step_ = input.step;
  skipped_ = false;
  norm_ = 0;
  begin(role_);
  gradients_.begin_step();
  loss_.data_ptr<double>()[2] = input.stop;
  for (size_t i = 0; i < role_.actions.size(); ++i) perform(role_, i, input);
  const double* sums = loss_.const_data_ptr<double>();
  return {.loss = sums[0] / sums[1],
          .count = sums[1],
          .stop = sums[2] > 0,
          .skipped = skipped_,
          .norm = norm_,
          .split = split_};
}

void Executor::perform(const Role& role, size_t index, const StepInput& input) {
  const Action& action = role.actions[index];
  for (int earlier : action.waits) finish(role, earlier);
  times_[index].begin = Seconds(Clock::now() - begun_).count();
  switch (action.kind) {
    case ActionKind::kForward:
      forward(action, input);
      break;
    case ActionKind::kRecompute:
      recompute(action);
      break;
    case ActionKind::kBackward:
      backward(action);
      break;
    case ActionKind::kReduce:
    case ActionKind::kReduceScatter:
      pending_[index] = reduce(action);
      break;
    case ActionKind::kGather:
      pending_[index] = gather(action);
      break;
    case ActionKind::kFree:
      state_.release(action.buckets[0]);
      break;
    case ActionKind::kNorm:
      norm();
      break;
    case ActionKind::kVote:
      pending_[index] = vote();
      break;
    case ActionKind::kUpdate:
      update(action);
      break;
    case ActionKind::kOffload:
    case ActionKind::kFetch:
      break;  // the host's memory is this device's
    case ActionKind::kFoldBuffers:
      fold_buffers();
      break;
    case ActionKind::kCommit:
      commit();
      break;
    default:
      throw BugError(text("[engine] no way to run ", name_of(action.kind)));
  }
  times_[index].end = Seconds(Clock::now() - begun_).count();
  if (action.lane != kComputeLane) lanes_[action.lane].push_back(static_cast<int>(index));
}

// A lane is first in, first out. Waiting for a reduction also does this rank's share of
// it, and of a fused update.
void Executor::finish(const Role& role, int index) {
  auto& lane = lanes_[role.actions[index].lane];
  const auto end = std::upper_bound(lane.begin(), lane.end(), index);
  if (end == lane.begin()) return;
  Timed timed(split_.wait);
  for (auto it = lane.begin(); it != end; ++it) {
    pending_[*it].finish();
    times_[*it].end = Seconds(Clock::now() - begun_).count();
  }
  lane.erase(lane.begin(), end);
  if (!not_finite_.empty()) throw Error(ErrorKind::kBug, not_finite_);
}

void Executor::forward(const Action& action, const StepInput& input) {
  const int slice = first_slice_ + action.slice;
  if (action.block == 0) {
    Timed timed(split_.data);
    batch_ = input.batch(slice);
    if (batch_.input.is_floating_point())
      batch_.input = batch_.input.to(schedule_.precision.compute);
    sink_->begin_slice(action.slice);
    std::fill(written_.begin(), written_.end(), false);
  }
  Flight& flight = flights_[action.block];
  flight = {};
  if (batch_.input.size(0) == 0) return;  // a short last batch has empty slices
  Timed timed(split_.forward);
  flight.inputs = action.block == 0 ? Values{batch_.input}
                                    : cut_graph(flights_[action.block - 1].outputs,
                                                input_has_gradient_[action.block]);
  const bool graph = !evaluating_ && keeps_graph(role_);
  const c10::AutoGradMode mode(graph);
  const size_t before = statistics_.size();
  flight.outputs = compute(action, flight.inputs, /*again=*/false);
  for (size_t i = before; i < statistics_.size(); ++i)
    statistics_[i].slice = action.slice;
  if (!graph && action.block > 0) flights_[action.block - 1].outputs.clear();
}

Values Executor::compute(const Action& action, const Values& inputs, bool again) {
  Context context{.step = step_,
                  .slice = first_slice_ + action.slice,
                  .sample_ids = batch_.ids,
                  .seed = options_.seed,
                  .phase = evaluating_ ? Phase::kEvaluate : Phase::kTrain,
                  .recompute = again};
  context.grads = evaluating_ ? nullptr : sink_.get();
  context.statistics = again || evaluating_ ? nullptr : &statistics_;
  Values outputs = chain_.blocks[action.block]->forward(inputs, context);
  if (action.block + 1 != static_cast<int>(chain_.blocks.size())) return outputs;

  const WeightedLoss loss = chain_.loss(outputs, batch_.target);
  if (!again) {
    double* sums = loss_.data_ptr<double>();
    sums[0] += loss.sum.item<double>();
    sums[1] += loss.count;
    correct_ += loss.correct;
  }
  return {loss.sum};
}

void Executor::recompute(const Action& action) {
  Flight& flight = flights_[action.block];
  if (flight.inputs.empty()) return;
  Timed timed(split_.backward);
  flight.outputs = compute(action, flight.inputs, /*again=*/true);
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
    const Values given = last ? Values{at::full({}, seed_scale())}
                              : std::exchange(upstream_, {});
    if (!wanted.empty())
      gradients = torch::autograd::grad(flight.outputs, wanted, given, {}, false,
                                        /*allow_unused=*/true);
  }
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < trained.size(); ++i)
    keep_gradient(trained[i], gradients[i], action.slice);
  upstream_.assign(gradients.begin() + static_cast<int64_t>(trained.size()),
                   gradients.end());
  for (int bucket : action.buckets)
    if (last_to_add_[bucket] == action.block && state_.buckets()[bucket].trained)
      gradients_.finish_slice(bucket, action.slice);
}

// A gradient that was born in its place is there already. One that was handed a place
// and came back elsewhere is the sum with a second use of the parameter, and holds all
// of it.
void Executor::keep_gradient(int index, const Tensor& gradient, int slice) {
  const Place& place = state_.places()[index];
  const auto leaf = gradients_.leaf(place.bucket, slice);
  const Tensor home = FlatState::view(leaf.memory, place);
  const bool adds = leaf.adds || written_[index];
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

PendingWork Executor::reduce(const Action& action) {
  if (!options_.communicate) return {};
  Timed timed(split_.wait);
  const int bucket = action.buckets[0];
  if (bucket == kLossBucket) return {comm_.all_reduce(loss_, ReduceOp::kSum), nullptr};
  const bool replicas =
      action.kind == ActionKind::kReduce && groups_.replicate != nullptr;
  if (replicas) return gradients_.reduce_replicas(bucket);
  return gradients_.reduce(bucket, action.slice, fused_ ? &visitor_ : nullptr);
}

PendingWork Executor::gather(const Action& action) {
  const int bucket = action.buckets[0];
  BucketState& state = state_.buckets()[bucket];
  Timed timed(split_.wait);
  if (schedule_.shard == 3) {
    state_.acquire(bucket);
    return {groups_.shard->all_gather(state.whole, state.travels), nullptr};
  }
  if (fused_) return {};  // each rank has written into all
  const Tensor share = state.whole.narrow(0, state.begin, state.count).clone();
  return {groups_.shard->all_gather(state.whole, share), [share] {}};
}

// The loss was reduced before any bucket in the same lane, so its count is global.
StepScalars Executor::scalars() const {
  double scale = 1.0 / (loss_.const_data_ptr<double>()[1] * seed_scale());
  if (options_.clip > 0) scale *= clip_factor(norm_, options_.clip);
  return {.rate = rate_, .grad_scale = scale, .step = step_ + 1};
}

// Sums over many samples overflow float16: they are scaled down by the power of two
// that keeps them near the mean.
double Executor::seed_scale() const {
  if (!loss_scale_) return 1;
  const auto count = static_cast<uint64_t>(std::max(1.0, options_.usual_count));
  return loss_scale_->value() / static_cast<double>(std::bit_ceil(count));
}

// Updates a stretch of this rank's share and hands the parameters to every other rank.
// The optimizer's state of a share is its owner's alone: nobody else reads it.
void Executor::visit_share(int bucket, int64_t begin, int64_t count, float* sum) {
  check_sum(bucket, begin, count, sum);
  BucketState& mine = state_.buckets()[bucket];
  update_range(rule_, mine, begin, count, sum, scalars());
  const float* updated = mine.master.const_data_ptr<float>() + (begin - mine.begin);
  const Tensor& visible = schedule_.shard == 3 ? mine.travels : mine.whole;
  const auto width = static_cast<int64_t>(visible.element_size());
  const int64_t at = schedule_.shard == 3 ? begin - mine.begin : begin;
  auto* const own = static_cast<std::byte*>(visible.data_ptr()) + at * width;
  if (own != reinterpret_cast<const std::byte*>(updated))
    narrow(visible.scalar_type(), updated, count, own);
  if (schedule_.shard == 3) return;
  for (int r = 0; r < groups_.shard->size(); ++r)
    if (r != groups_.shard->rank())
      std::memcpy(static_cast<std::byte*>(peer_parameters_[bucket][r].data_ptr()) +
                      begin * width,
                  own, static_cast<size_t>(count * width));
}

// Padding between parameters may hold anything; only an element of a parameter counts.
void Executor::check_sum(int bucket, int64_t begin, int64_t count, const float* sum) {
  if (all_finite(sum, count) || !not_finite_.empty()) return;
  for (const auto& place : state_.places()) {
    if (place.bucket != bucket) continue;
    const int64_t from = std::max(begin, place.offset);
    const int64_t to =
        std::min(begin + count, place.offset + place.parameter.numel());
    for (int64_t i = from; i < to; ++i) {
      if (std::isfinite(sum[i - begin])) continue;
      const auto rank = gradients_.blame(bucket, i);
      not_finite_ = text("[engine] step ", step_ + 1, ": the gradient of ", place.name,
                         rank ? text(" on rank ", *rank) : " (summed over ranks)",
                         " is ", sum[i - begin],
                         "; a lower optim.lr or a warm-up may help, and nan=skip leaves "
                         "such steps out");
      return;
    }
  }
}

void Executor::update(const Action& action) {
  if (fused_ || skipped_) return;
  Timed timed(split_.update);
  const int bucket = action.buckets[0];
  BucketState& state = state_.buckets()[bucket];
  const Tensor& sum = gradients_.sum(bucket);
  const bool wide = sum.scalar_type() == at::kFloat;
  std::vector<float> widened(wide ? 0 : std::min(kStretch, state.count));
  for (int64_t at = 0; at < state.count; at += kStretch) {
    const int64_t count = std::min(kStretch, state.count - at);
    const Tensor part = sum.narrow(0, at, count);
    if (!wide) widen(sum.scalar_type(), part.const_data_ptr(), count, widened.data());
    const float* gradient = wide ? part.const_data_ptr<float>() : widened.data();
    check_sum(bucket, state.begin + at, count, gradient);
    update_range(rule_, state, state.begin + at, count, gradient, scalars());
  }
  if (!not_finite_.empty()) throw Error(ErrorKind::kBug, not_finite_);
  state_.publish(bucket);
}

void Executor::norm() {
  Timed timed(split_.update);
  const bool cut = schedule_.shard > 0 && options_.communicate;
  norm_ = gradient_norm(state_, gradients_, cut ? groups_.shard : nullptr,
                        1 / (loss_.const_data_ptr<double>()[1] * seed_scale()));
}

bool Executor::sums_are_finite() const {
  std::vector<float> widened(kChunk);
  for (const auto& place : state_.places()) {
    const BucketState& bucket = state_.buckets()[place.bucket];
    if (!bucket.trained) continue;
    const Tensor& sum = gradients_.sum(place.bucket);
    const int64_t from = std::max<int64_t>(0, place.offset - bucket.begin);
    const int64_t to = std::min(
        bucket.count, place.offset + place.parameter.numel() - bucket.begin);
    for (int64_t at = from; at < to; at += kChunk) {
      const int64_t count = std::min(kChunk, to - at);
      widen(sum.scalar_type(), sum.narrow(0, at, count).const_data_ptr(), count,
            widened.data());
      if (!all_finite(widened.data(), count)) return false;
    }
  }
  return true;
}

PendingWork Executor::vote() {
  int64_t* const against = votes_.data_ptr<int64_t>();
  *against = sums_are_finite() ? 0 : 1;
  const auto count = [this, against] { skipped_ = *against > 0; };
  if (comm_.size() == 1 || !options_.communicate) {
    count();
    return {};
  }
  return {comm_.all_reduce(votes_, ReduceOp::kSum), count};
}

void Executor::fold_buffers() {
  Timed timed(split_.update);
  if (options_.communicate)
    statistics_ = gather_statistics(comm_, chain_.buffers(), statistics_, role_.slices);
}

void Executor::commit() {
  if (evaluating_) return;
  const c10::NoGradGuard no_grad;
  Timed timed(split_.update);
  if (!skipped_) apply_statistics(statistics_);
  if (loss_scale_) loss_scale_->commit(!skipped_);
  batch_ = {};
}

WeightedLoss Executor::evaluate(const Schedule& forward, const Batch& batch) {
  const Role& role = forward.role_of(comm_.rank());
  const StepInput input{.step = step_, .batch = [&](int) { return batch; }};
  evaluating_ = true;
  begin(role);
  for (size_t i = 0; i < role.actions.size(); ++i) perform(role, i, input);
  evaluating_ = false;
  for (auto& flight : flights_) flight = {};
  const double* sums = loss_.const_data_ptr<double>();
  return {.sum = at::full({}, sums[0], at::kDouble),
          .count = sums[1],
          .correct = correct_};
}

// The float32 weights of a whole bucket, from the ranks that own them.
Tensor Executor::master_of(int bucket) {
  const BucketState& state = state_.buckets()[bucket];
  const bool owned_apart = fused_ && schedule_.precision.compute != at::kFloat;
  if (schedule_.shard == 0 && !owned_apart) return state.master;
  if (schedule_.precision.compute == at::kFloat && schedule_.shard < 3)
    return state.whole;
  const int64_t count = state.numel / groups_.shard->size();
  const Tensor mine = schedule_.shard == 0
                          ? state.master.narrow(0, count * groups_.shard->rank(), count)
                          : state.master;
  Tensor whole = at::empty({state.numel}, at::kFloat);
  groups_.shard->all_gather(whole, mine.clone()).wait();
  return whole;
}

std::vector<NamedTensor> Executor::weights() {
  const c10::NoGradGuard no_grad;
  std::vector<NamedTensor> all(state_.places().size());
  for (int i = 0; i < static_cast<int>(state_.buckets().size()); ++i) {
    const Tensor whole = master_of(i);
    for (size_t p = 0; p < all.size(); ++p)
      if (const Place& place = state_.places()[p];
          place.bucket == i && comm_.rank() == 0)
        all[p] = {place.name, FlatState::view(whole, place)};
  }
  if (comm_.rank() != 0) return {};
  for (const auto& buffer : chain_.buffers()) all.push_back(buffer);
  return all;
}

std::chrono::duration<double> Executor::time_communication() {
  comm_.barrier().wait();
  const GradientSums::Visitor nothing = [](int, int64_t, int64_t, float*) {};
  const auto start = Clock::now();
  for (int i = 0; i < static_cast<int>(state_.buckets().size()); ++i)
    if (state_.buckets()[i].trained)
      gradients_.reduce(i, schedule_.shard >= 2 ? 0 : kNone, fused_ ? &nothing : nullptr)
          .finish();
  return Clock::now() - start;
}

}  // namespace cohort
