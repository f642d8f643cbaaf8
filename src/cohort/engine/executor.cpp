// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/executor.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstring>
#include <unordered_set>
#include <utility>

#include "cohort/core/error.h"
#include "cohort/engine/agreement.h"
#include "cohort/engine/statistics.h"

namespace cohort {
namespace {

using Seconds = std::chrono::duration<double>;
using Clock = std::chrono::steady_clock;

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
Values detach(const Values& values) {
  Values cut;
  for (const auto& value : values) {
    Tensor leaf = value.detach();
    leaf.requires_grad_(value.requires_grad());
    cut.push_back(std::move(leaf));
  }
  return cut;
}

// An update may follow its reduction at once, in one pass over memory, if nothing
// has to be known first: no norm to clip by, no vote.
bool can_fuse(const Role& role) {
  for (const auto& action : role.actions)
    if (action.kind == ActionKind::kNorm || action.kind == ActionKind::kVote)
      return false;
  return true;
}

}  // namespace

struct Executor::Flight {
  Values inputs;
  Values outputs;  // empty: nothing was computed
};

// Hands out the places in the buckets, once a slice.
class Executor::Sink final : public GradSink {
 public:
  explicit Sink(const FlatState& state) : state_(state) {}

  void begin_slice(bool first) {
    first_ = first;
    taken_.clear();
  }
  GradTarget take(const Tensor& parameter) override {
    if (!taken_.insert(parameter.unsafeGetTensorImpl()).second) return {};
    return {state_.place_of(parameter).gradient, !first_};
  }
  bool was_taken(const Tensor& parameter) const {
    return taken_.count(parameter.unsafeGetTensorImpl()) != 0;
  }

 private:
  const FlatState& state_;
  bool first_ = true;
  std::unordered_set<const void*> taken_;
};

Executor::Executor(Chain& chain, Schedule schedule, const UpdateRule& rule,
                   Communicator& comm, const ExecutorOptions& options)
    : chain_(chain),
      schedule_(std::move(schedule)),
      role_(schedule_.role_of(comm.rank())),
      rule_(rule),
      comm_(comm),
      peer_memory_(nullptr),
      options_(options),
      state_(chain, schedule_, rule, options.decay, comm),
      sink_(std::make_unique<Sink>(state_)),
      flights_(chain.blocks.size()),
      loss_(comm.allocate({3}, at::kDouble)),
      works_(role_.actions.size()) {
  require_equal(comm_, schedule_.hash(), "schedule");
  start_equal();
  if (comm_.size() > 1 && options_.communicate && can_fuse(role_))
    peer_memory_ = dynamic_cast<PeerMemory*>(&comm_);
  if (peer_memory_) map_bucket_peers();
}

Executor::~Executor() = default;

// Rank 0's weights and buffers are everyone's.
void Executor::start_equal() {
  for (auto& bucket : state_.buckets()) comm_.broadcast(bucket.parameters, 0).wait();
  for (auto& [name, tensor] : chain_.buffers()) {
    Tensor buffer = tensor;
    comm_.broadcast(buffer, 0).wait();
  }
}

void Executor::map_bucket_peers() {
  for (auto& bucket : state_.buckets())
    peer_parameters_.push_back(peer_memory_->map_peers(bucket.parameters));
}

StepResult Executor::run(const StepInput& input) {
  split_ = {};
  rate_ = input.rate;
  step_ = input.step;
  statistics_.clear();
  loss_.zero_();
  loss_.data_ptr<double>()[2] = input.stop;
  for (size_t i = 0; i < role_.actions.size(); ++i) perform(i, input);
  const double* sums = loss_.const_data_ptr<double>();
  return {.loss = sums[0] / sums[1],
          .count = sums[1],
          .stop = sums[2] > 0,
          .split = split_};
}

void Executor::perform(size_t index, const StepInput& input) {
  const Action& action = role_.actions[index];
  wait_for(action);
  switch (action.kind) {
    case ActionKind::kForward:
      return forward(action, input);
    case ActionKind::kBackward:
      return backward(action);
    case ActionKind::kReduce:
      return reduce(index, action);
    case ActionKind::kUpdate:
      return update(action);
    case ActionKind::kFoldBuffers:
      return fold_buffers();
    case ActionKind::kCommit:
      return commit();
    default:
      throw BugError(text("[engine] no way to run ", name_of(action.kind)));
  }
}

// Waiting for a reduction also does this rank's share of it, and of a fused update.
void Executor::wait_for(const Action& action) {
  if (action.waits.empty()) return;
  Timed timed(split_.wait);
  for (int index : action.waits) works_[index].wait();
}

void Executor::forward(const Action& action, const StepInput& input) {
  const int slice = options_.first_slice + action.slice;
  if (action.block == 0) {
    Timed timed(split_.data);
    batch_ = input.batch(slice);
    sink_->begin_slice(action.slice == 0);
  }
  if (batch_.input.size(0) == 0) return;  // a short last batch has empty slices
  Timed timed(split_.forward);
  Flight& flight = flights_[action.block];
  flight.inputs =
      action.block == 0 ? Values{batch_.input} : detach(flights_[action.block - 1].outputs);
  Context context{.step = step_, .slice = slice, .seed = options_.seed};
  context.grads = sink_.get();
  context.statistics = &statistics_;
  const size_t before = statistics_.size();
  flight.outputs = chain_.blocks[action.block]->forward(flight.inputs, context);
  for (size_t i = before; i < statistics_.size(); ++i)
    statistics_[i].slice = action.slice;
  if (action.block + 1 != static_cast<int>(chain_.blocks.size())) return;

  const WeightedLoss loss = chain_.loss(flight.outputs, batch_.target);
  flight.outputs = {loss.sum};
  double* sums = loss_.data_ptr<double>();
  sums[0] += loss.sum.item<double>();
  sums[1] += loss.count;
}

void Executor::backward(const Action& action) {
  Timed timed(split_.backward);
  Flight flight = std::exchange(flights_[action.block], {});
  const auto& places = state_.places_of_block(action.block);
  if (flight.outputs.empty()) {
    for (const auto& place : places) keep_gradient(place, {}, action.slice == 0);
    return;
  }
  Values wanted;
  for (const auto& place : places) wanted.push_back(place.parameter);
  for (const auto& value : flight.inputs)
    if (value.requires_grad()) wanted.push_back(value);

  const bool last = action.block + 1 == static_cast<int>(chain_.blocks.size());
  const Values given = last ? Values{} : std::exchange(upstream_, {});
  Values gradients =
      wanted.empty() ? Values{}
                     : torch::autograd::grad(flight.outputs, wanted, given, {}, false,
                                             /*allow_unused=*/true);
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < places.size(); ++i)
    keep_gradient(places[i], gradients[i], action.slice == 0);
  upstream_.assign(gradients.begin() + static_cast<int64_t>(places.size()),
                   gradients.end());
}

// A gradient that was born in its bucket is there already. One that was handed a
// target and came back elsewhere is the sum with a second use of the parameter, and
// holds all of it.
void Executor::keep_gradient(const Place& place, const Tensor& gradient, bool first) {
  const Tensor& home = place.gradient;
  if (!gradient.defined()) {
    if (first) home.zero_();
  } else if (gradient.data_ptr() == home.data_ptr()) {
    return;
  } else if (first || sink_->was_taken(place.parameter)) {
    home.copy_(gradient);
  } else {
    home.add_(gradient);
  }
}

void Executor::reduce(size_t index, const Action& action) {
  if (!options_.communicate) return;
  Timed timed(split_.wait);
  if (action.bucket == kLossBucket) {
    works_[index] = comm_.all_reduce(loss_, ReduceOp::kSum);
    return;
  }
  Tensor& gradients = state_.buckets()[action.bucket].gradients;
  works_[index] =
      peer_memory_
          ? peer_memory_->reduce_shares(
                gradients,
                [this, bucket = action.bucket](int64_t begin, int64_t count,
                                               float* sum) {
                  visit_share(bucket, begin, count, sum);
                })
          : comm_.all_reduce(gradients, ReduceOp::kSum);
}

// The loss was reduced before any bucket in the same lane, so its count is global.
StepScalars Executor::scalars() const {
  return {.rate = rate_,
          .grad_scale = 1.0 / loss_.const_data_ptr<double>()[1],
          .step = step_ + 1};
}

// Updates this rank's share in its own copy and hands the parameters to every other
// rank. The optimizer's state of a share is its owner's alone: nobody else reads it.
void Executor::visit_share(int bucket, int64_t begin, int64_t count, float* sum) {
  BucketState& mine = state_.buckets()[bucket];
  update_range(rule_, mine, begin, count, sum, scalars());
  const float* updated = mine.parameters.const_data_ptr<float>() + begin;
  for (int r = 0; r < comm_.size(); ++r)
    if (r != comm_.rank())
      std::memcpy(peer_parameters_[bucket][r].data_ptr<float>() + begin, updated,
                  static_cast<size_t>(count) * sizeof(float));
}

void Executor::update(const Action& action) {
  if (peer_memory_) return;  // done with the reduction
  Timed timed(split_.update);
  BucketState& bucket = state_.buckets()[action.bucket];
  update_range(rule_, bucket, 0, bucket.gradients.numel(),
               bucket.gradients.const_data_ptr<float>(), scalars());
}

void Executor::fold_buffers() {
  Timed timed(split_.update);
  if (options_.communicate)
    statistics_ = gather_statistics(comm_, chain_.buffers(), statistics_, role_.slices);
}

void Executor::commit() {
  const c10::NoGradGuard no_grad;
  Timed timed(split_.update);
  apply_statistics(statistics_);
}

WeightedLoss Executor::evaluate(const Batch& batch) {
  const c10::NoGradGuard no_grad;
  Context context{.step = step_, .seed = options_.seed, .phase = Phase::kEvaluate};
  Values values{batch.input};
  for (auto& block : chain_.blocks) values = block->forward(values, context);
  return chain_.loss(values, batch.target);
}

std::chrono::duration<double> Executor::time_communication() {
  comm_.barrier().wait();
  const auto start = Clock::now();
  for (auto& bucket : state_.buckets())
    if (peer_memory_)
      peer_memory_->reduce_shares(bucket.gradients, [](int64_t, int64_t, float*) {})
          .wait();
    else
      comm_.all_reduce(bucket.gradients, ReduceOp::kSum).wait();
  return Clock::now() - start;
}

}  // namespace cohort
