// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/data_parallel.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <utility>

#include "cohort/core/error.h"
#include "cohort/core/hash.h"
#include "cohort/engine/agreement.h"
#include "cohort/step/generator.h"

namespace cohort {
namespace {

// A module that is no chain: every parameter is a block of its own, so that the
// generator cuts the buckets and orders the reductions.
Schedule schedule_of(const std::vector<NamedTensor>& parameters, int ranks,
                     int64_t bucket_bytes) {
  std::vector<BlockSpec> blocks;
  for (const auto& [name, tensor] : parameters)
    blocks.push_back({.name = name, .parameters = {spec_of(name, tensor)}});
  return generate(blocks, {.dp = ranks},
                  {.slices = ranks, .bucket_bytes = bucket_bytes});
}

uint64_t hash_of(const std::vector<NamedTensor>& parameters) {
  Hasher hasher;
  for (const auto& [name, tensor] : parameters) {
    hasher.add(name).add(static_cast<int64_t>(tensor.scalar_type()));
    for (int64_t size : tensor.sizes()) hasher.add(size);
  }
  return hasher.digest();
}

}  // namespace

class DataParallel::Impl {
 public:
  Impl(torch::nn::Module& module, Communicator& comm,
       const DataParallelOptions& options)
      : comm_(comm) {
    for (const auto& item : module.named_parameters())
      if (item.value().requires_grad())
        parameters_.push_back({item.key(), item.value()});
    if (parameters_.empty())
      throw ConfigError("[engine] DataParallel: the module has no parameter to train");
    require_equal(comm_, hash_of(parameters_), "model (names, shapes and dtypes)");
    schedule_ = schedule_of(parameters_, comm_.size(), options.bucket_bytes);
    start_equal(module);
    lay_out();
    for (size_t i = 0; i < slots_.size(); ++i)
      torch::autograd::impl::set_post_acc_grad_hooks(slots_[i].parameter,
                                                     std::make_unique<Hook>(*this, i));
  }

  ~Impl() {
    for (auto& slot : slots_)
      torch::autograd::impl::set_post_acc_grad_hooks(slot.parameter, nullptr);
  }

  void accumulate(const WeightedLoss& loss) {
    begin_step();
    add_part(loss);
  }

  double backward(const WeightedLoss& loss) {
    begin_step();
    exchanging_ = true;
    for (auto& bucket : buckets_) bucket.missing = bucket.slots.size();
    started_ = 0;
    add_part(loss);
    exchanging_ = false;
    in_step_ = false;
    return exchange();
  }

  const std::vector<std::string>& unused() const { return unused_; }

 private:
  struct Slot {
    std::string name;
    Tensor parameter;
    Tensor home;  // its gradient's view in the bucket
    int bucket = 0;
    bool has_gradient = false;  // in this step, on this rank
  };

  struct BucketInFlight {
    Tensor flat;
    std::vector<size_t> slots;
    size_t missing = 0;  // gradients of this backward
    Work work;
  };

  // Tells the wrapper that autograd has put a gradient into parameter.grad().
  struct Hook final : torch::autograd::PostAccumulateGradHook {
    Hook(Impl& impl, size_t slot) : impl(impl), slot(slot) {}
    void operator()(const Tensor&) override { impl.on_gradient(slot); }
    Impl& impl;
    size_t slot;
  };

  void start_equal(torch::nn::Module& module) {
    for (const auto& item : module.named_parameters()) {
      Tensor tensor = item.value().detach();
      comm_.broadcast(tensor, 0).wait();
    }
    for (const auto& item : module.named_buffers()) {
      Tensor tensor = item.value().detach();
      comm_.broadcast(tensor, 0).wait();
    }
  }

  void lay_out() {
    for (const auto& bucket : schedule_.buckets) {
      BucketInFlight flight{.flat = comm_.allocate({bucket.numel}, bucket.dtype)};
      int64_t offset = 0;
      for (int block : bucket.blocks) {
        const auto& [name, parameter] = parameters_[block];
        // No view to autograd: optimizers detach gradients in place.
        const Tensor home = flight.flat.narrow(0, offset, parameter.numel())
                                .view(parameter.sizes())
                                .variable_data();
        offset += padded(parameter.numel());
        flight.slots.push_back(slots_.size());
        slots_.push_back({name, parameter, home, static_cast<int>(buckets_.size())});
      }
      buckets_.push_back(std::move(flight));
    }
  }

  void begin_step() {
    if (std::exchange(in_step_, true)) return;
    sum_ = count_ = 0;
    for (auto& slot : slots_) {
      slot.parameter.mutable_grad().reset();
      slot.has_gradient = false;
    }
  }

  // A rank without samples in this step has no graph to go back through.
  void add_part(const WeightedLoss& loss) {
    count_ += loss.count;
    if (!loss.sum.defined() || loss.count == 0) return;
    sum_ += loss.sum.item<double>();
    loss.sum.backward();
  }

  // Autograd hands over a fresh gradient without a copy; it moves into the bucket
  // once, and later parts of the step are added to it there.
  void on_gradient(size_t index) {
    const c10::NoGradGuard no_grad;
    Slot& slot = slots_[index];
    Tensor& gradient = slot.parameter.mutable_grad();
    if (gradient.data_ptr() != slot.home.data_ptr()) {
      slot.home.copy_(gradient);
      gradient = slot.home;
    }
    slot.has_gradient = true;
    if (!exchanging_) return;
    --buckets_[slot.bucket].missing;
    while (started_ < buckets_.size() && buckets_[started_].missing == 0) start_next();
  }

  void start_next() {
    BucketInFlight& bucket = buckets_[started_++];
    bucket.work = comm_.all_reduce(bucket.flat, ReduceOp::kSum);
  }

  double exchange() {
    const c10::NoGradGuard no_grad;
    for (auto& slot : slots_)
      if (!slot.has_gradient) slot.home.zero_();
    while (started_ < buckets_.size()) start_next();
    const Tensor totals = reduce_totals();
    for (auto& bucket : buckets_) bucket.work.wait();

    const double* sums = totals.const_data_ptr<double>();
    if (sums[1] == 0)
      throw ConfigError("[engine] DataParallel: no rank had a sample in this step");
    for (auto& bucket : buckets_) bucket.flat.mul_(1.0 / sums[1]);
    hand_out(sums + 2);
    return sums[0] / sums[1];
  }

  // Sum and count of the loss, and on how many ranks each parameter had a gradient.
  Tensor reduce_totals() {
    Tensor totals = at::empty({2 + static_cast<int64_t>(slots_.size())}, at::kDouble);
    double* values = totals.data_ptr<double>();
    values[0] = sum_;
    values[1] = count_;
    for (size_t i = 0; i < slots_.size(); ++i) values[2 + i] = slots_[i].has_gradient;
    comm_.all_reduce(totals, ReduceOp::kSum).wait();
    return totals;
  }

  void hand_out(const double* users) {
    unused_.clear();
    for (size_t i = 0; i < slots_.size(); ++i) {
      const bool used = users[i] > 0;
      slots_[i].parameter.mutable_grad() = used ? slots_[i].home : Tensor();
      if (!used) unused_.push_back(slots_[i].name);
    }
  }

  Communicator& comm_;
  std::vector<NamedTensor> parameters_;
  Schedule schedule_;
  std::vector<Slot> slots_;  // in the order of the buckets
  std::vector<BucketInFlight> buckets_;
  std::vector<std::string> unused_;
  size_t started_ = 0;  // buckets whose reduction has begun
  bool in_step_ = false;
  bool exchanging_ = false;
  double sum_ = 0;
  double count_ = 0;
};

DataParallel::DataParallel(torch::nn::Module& module, Communicator& comm,
                           const DataParallelOptions& options)
    : impl_(std::make_unique<Impl>(module, comm, options)) {}

DataParallel::~DataParallel() = default;

double DataParallel::backward(const Tensor& mean_loss, int64_t count) {
  return backward(WeightedLoss{mean_loss * static_cast<double>(count),
                               static_cast<double>(count)});
}

double DataParallel::backward(const WeightedLoss& loss) { return impl_->backward(loss); }

void DataParallel::accumulate(const Tensor& mean_loss, int64_t count) {
  accumulate(
      WeightedLoss{mean_loss * static_cast<double>(count), static_cast<double>(count)});
}

void DataParallel::accumulate(const WeightedLoss& loss) { impl_->accumulate(loss); }

const std::vector<std::string>& DataParallel::unused() const { return impl_->unused(); }

}  // namespace cohort
