// SPDX-License-Identifier: Apache-2.0
#include "cohort/sharded.h"

#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include <utility>

#include "cohort/core/error.h"
#include "cohort/engine/bucket_reducer.h"
#include "cohort/engine/gradient_sums.h"
#include "cohort/engine/module_backward.h"
#include "cohort/engine/norm.h"
#include "cohort/engine/state_view.h"
#include "cohort/engine/tensor_totals.h"
#include "cohort/optim/gradient_norm.h"
#include "cohort/step/generator.h"

namespace cohort {
namespace {

// A parameter of a module that is no chain is a block of its own.
class ParameterBlock final : public Block {
 public:
  explicit ParameterBlock(NamedTensor parameter) : parameters_{std::move(parameter)} {}
  const std::string& name() const override { return parameters_[0].name; }
  std::span<const NamedTensor> parameters() const override { return parameters_; }
  std::span<const NamedTensor> buffers() const override { return {}; }
  std::span<const std::string> fields() const override { return {}; }
  Values forward(const Values&, Context&) override {
    throw BugError("[engine] the module computes, not its parameters");
  }

 private:
  std::vector<NamedTensor> parameters_;
};

Chain chain_of(const std::vector<NamedTensor>& parameters) {
  Chain chain;
  for (const auto& parameter : parameters) {
    if (parameter.tensor.scalar_type() != at::kFloat)
      throw ConfigError(text("[engine] Sharded: ", parameter.name, " is ",
                             c10::toString(parameter.tensor.scalar_type()),
                             "; legal: float32"));
    if (!parameter.tensor.is_cpu())
      throw ConfigError(text("[engine] Sharded: ", parameter.name, " is on ",
                             parameter.tensor.device().str(),
                             "; legal: the host (DataParallel takes any device)"));
    chain.blocks.push_back(std::make_unique<ParameterBlock>(parameter));
  }
  return chain;
}

Schedule schedule_of(const Chain& chain, int ranks, const ShardedOptions& options) {
  if (options.level < 0 || options.level > 2)
    throw ConfigError(text("[engine] Sharded: level ", options.level,
                           "; legal: 0, 1, 2 (3 needs a Chain)"));
  const auto rule = make_update_rule(options.update);
  const GeneratorOptions step{
      .slices = ranks,
      .bucket_bytes = options.bucket_bytes,
      .tensor_sums = rule->reductions() > 0,
      .optimizer_states = static_cast<int>(rule->states().size())};
  return generate(specs_of(chain), {.dp = ranks, .shard = options.level}, step);
}

}  // namespace

class Sharded::Impl {
 public:
  Impl(torch::nn::Module& module, Communicator& comm, const ShardedOptions& options)
      : module_(module),
        comm_(comm),
        options_(options),
        backward_(module, comm, "Sharded", [this](size_t i) { on_gradient(i); }),
        chain_(chain_of(backward_.parameters())),
        schedule_(schedule_of(chain_, comm.size(), options)),
        rule_(make_update_rule(options.update)),
        state_(chain_, schedule_, *rule_, options.decay, RankGroups::of(comm),
               /*takes_over=*/false),
        gradients_(schedule_, state_, RankGroups::of(comm_), {}),
        totals_(state_, *rule_),
        reducer_(gradients_in_buckets(),
                 [this](int bucket) { return reduce(bucket); }) {}

  void accumulate(const WeightedLoss& loss) {
    backward_.begin_part();
    backward_.run(loss);
  }

  double backward(const WeightedLoss& loss) {
    const c10::NoGradGuard no_grad;
    backward_.begin_part();
    gradients_.begin_step();
    reducer_.begin();
    {
      const c10::AutoGradMode grad(true);
      backward_.run(loss);
    }
    reducer_.end();
    const auto totals = backward_.end_step();
    reducer_.finish_all();
    count_ = totals.count;
    unused_ = totals.unused;
    return totals.mean;
  }

  void step(double rate) {
    const c10::NoGradGuard no_grad;
    StepScalars scalars{.rate = rate, .grad_scale = 1 / count_, .step = ++steps_};
    const Sharers sharers{.group = schedule_.shard > 0 ? &comm_ : nullptr};
    if (options_.clip > 0) {
      const double norm = gradient_norm(state_, gradients_, sharers, 1 / count_);
      scalars.grad_scale *= clip_factor(norm, options_.clip);
    }
    totals_.add_up(gradients_, scalars, sharers);
    for (size_t i = 0; i < state_.buckets().size(); ++i)
      update(static_cast<int>(i), scalars);
  }

  const std::vector<std::string>& unused() const { return unused_; }

  std::vector<StatePiece> pieces(Holding which) {
    const RankGroups groups = RankGroups::of(comm_);
    return StateView(chain_, schedule_, groups, *rule_, state_, /*at_once=*/false)
        .pieces(which);
  }

  torch::nn::Module& module() const { return module_; }
  int64_t updates() const { return steps_; }
  void set_updates(int64_t updates) { steps_ = updates; }

  void publish() {
    for (auto& bucket : state_.buckets()) share(bucket);
  }

 private:
  // Places are in the order of the parameters: both follow the chain.
  void on_gradient(size_t index) { reducer_.arrived(state_.places()[index].bucket); }

  std::vector<size_t> gradients_in_buckets() const {
    std::vector<size_t> counts(state_.buckets().size(), 0);
    for (const auto& place : state_.places()) ++counts[place.bucket];
    return counts;
  }

  // A bucket's gradients move into its memory when all are there, or none will come;
  // from then on autograd's own are not needed.
  PendingWork reduce(int bucket) {
    const c10::NoGradGuard no_grad;
    for (int i = 0; schedule_.shard >= 2 && i < bucket; ++i)
      if (schedule_.buckets[i].slot == schedule_.buckets[bucket].slot)
        reducer_.finish(i);
    const auto leaf = gradients_.leaf(bucket, 0);
    for (const auto& place : state_.places()) {
      if (place.bucket != bucket) continue;
      const Tensor home = FlatState::view(leaf.memory, place);
      Tensor& gradient = place.parameter.mutable_grad();
      if (gradient.defined())
        home.copy_(gradient);
      else
        home.zero_();
      gradient.reset();
    }
    gradients_.finish_slice(bucket, 0);
    return gradients_.reduce(bucket, schedule_.shard >= 2 ? 0 : kNone, nullptr);
  }

  void update(int index, const StepScalars& scalars) {
    BucketState& bucket = state_.buckets()[index];
    update_range(*rule_, bucket.ranges, bucket, bucket.begin, bucket.count,
                 gradients_.sum(index).const_data_ptr<float>(), totals_, scalars);
    share(bucket);
  }

  // Each rank has changed its own part of the weights.
  void share(BucketState& bucket) {
    if (schedule_.shard > 0)
      comm_.all_gather(bucket.whole, bucket.master.clone()).wait();
  }

  torch::nn::Module& module_;
  Communicator& comm_;
  ShardedOptions options_;
  ModuleBackward backward_;
  Chain chain_;
  Schedule schedule_;
  std::unique_ptr<UpdateRule> rule_;
  FlatState state_;
  GradientSums gradients_;
  TensorTotals totals_;
  BucketReducer reducer_;
  std::vector<std::string> unused_;
  double count_ = 1;
  int64_t steps_ = 0;
};

Sharded::Sharded(torch::nn::Module& module, Communicator& comm,
                 const ShardedOptions& options)
    : impl_(std::make_unique<Impl>(module, comm, options)) {}

Sharded::~Sharded() = default;

double Sharded::backward(const Tensor& mean_loss, int64_t count) {
  return backward(weighted(mean_loss, count));
}

double Sharded::backward(const WeightedLoss& loss) { return impl_->backward(loss); }

void Sharded::accumulate(const Tensor& mean_loss, int64_t count) {
  accumulate(weighted(mean_loss, count));
}

void Sharded::accumulate(const WeightedLoss& loss) { impl_->accumulate(loss); }

void Sharded::step(double rate) { impl_->step(rate); }

const std::vector<std::string>& Sharded::unused() const { return impl_->unused(); }

std::vector<StatePiece> Sharded::pieces(bool owned) const {
  return impl_->pieces(owned ? Holding::kOwned : Holding::kHeld);
}

torch::nn::Module& Sharded::module() const { return impl_->module(); }
int64_t Sharded::updates() const { return impl_->updates(); }
void Sharded::set_updates(int64_t updates) { impl_->set_updates(updates); }
void Sharded::publish() { impl_->publish(); }

}  // namespace cohort
