// SPDX-License-Identifier: Apache-2.0
#include "cohort/data_parallel.h"

#include <c10/core/GradMode.h>

#include <optional>
#include <utility>

#include "cohort/engine/bucket_reducer.h"
#include "cohort/engine/module_backward.h"
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

}  // namespace

class DataParallel::Impl {
 public:
  Impl(torch::nn::Module& module, Communicator& comm,
       const DataParallelOptions& options)
      : comm_(comm),
        backward_(module, comm, "DataParallel", [this](size_t i) { on_gradient(i); }),
        slots_(backward_.parameters().size()) {
    lay_out(schedule_of(backward_.parameters(), comm_.size(), options.bucket_bytes));
  }

  void accumulate(const WeightedLoss& loss) {
    backward_.begin_part();
    backward_.run(loss);
  }

  double backward(const WeightedLoss& loss) {
    backward_.begin_part();
    reducer_->begin();
    backward_.run(loss);
    return exchange();
  }

  const std::vector<std::string>& unused() const { return unused_; }

 private:
  struct Slot {
    Tensor home;  // its gradient's view in the bucket
    int bucket = 0;
  };

  void lay_out(const Schedule& schedule) {
    std::vector<size_t> gradients;
    for (const auto& bucket : schedule.buckets) {
      Tensor flat = comm_.allocate({bucket.numel}, bucket.dtype);
      int64_t offset = 0;
      for (int block : bucket.blocks) {
        const Tensor& parameter = backward_.parameters()[block].tensor;
        // No view to autograd: optimizers detach gradients in place.
        slots_[block] = {flat.narrow(0, offset, parameter.numel())
                             .view(parameter.sizes())
                             .variable_data(),
                         static_cast<int>(flats_.size())};
        offset += padded(parameter.numel());
      }
      flats_.push_back(std::move(flat));
      gradients.push_back(bucket.blocks.size());
    }
    reducer_.emplace(std::move(gradients), [this](int bucket) {
      return PendingWork{comm_.all_reduce(flats_[bucket], ReduceOp::kSum), nullptr};
    });
  }

  Tensor& gradient(size_t index) {
    return backward_.parameters()[index].tensor.mutable_grad();
  }

  bool is_on_host(size_t index) const {
    return backward_.parameters()[index].tensor.is_cpu();
  }

  // Autograd hands over a fresh gradient without a copy; it moves into the bucket
  // once, and later parts of the step are added to it there. One on a device stays
  // there until the backward has ended.
  void on_gradient(size_t index) {
    if (!is_on_host(index)) return;
    const c10::NoGradGuard no_grad;
    Slot& slot = slots_[index];
    if (gradient(index).data_ptr() != slot.home.data_ptr()) {
      slot.home.copy_(gradient(index));
      gradient(index) = slot.home;
    }
    reducer_->arrived(slot.bucket);
  }

  double exchange() {
    const c10::NoGradGuard no_grad;
    for (size_t i = 0; i < slots_.size(); ++i)
      if (!backward_.has_gradient(i))
        slots_[i].home.zero_();
      else if (!is_on_host(i))
        slots_[i].home.copy_(gradient(i));
    reducer_->end();
    const auto totals = backward_.end_step();
    reducer_->finish_all();
    for (auto& flat : flats_) flat.mul_(1.0 / totals.count);
    for (size_t i = 0; i < slots_.size(); ++i)
      gradient(i) = totals.used[i] ? where_parameter_is(i) : Tensor();
    unused_ = totals.unused;
    return totals.mean;
  }

  Tensor where_parameter_is(size_t index) {
    if (is_on_host(index)) return slots_[index].home;
    return slots_[index].home.to(backward_.parameters()[index].tensor.device());
  }

  Communicator& comm_;
  ModuleBackward backward_;
  std::vector<Slot> slots_;    // by parameter
  std::vector<Tensor> flats_;  // by bucket
  std::optional<BucketReducer> reducer_;
  std::vector<std::string> unused_;
};

DataParallel::DataParallel(torch::nn::Module& module, Communicator& comm,
                           const DataParallelOptions& options)
    : impl_(std::make_unique<Impl>(module, comm, options)) {}

DataParallel::~DataParallel() = default;

double DataParallel::backward(const Tensor& mean_loss, int64_t count) {
  return backward(weighted(mean_loss, count));
}

double DataParallel::backward(const WeightedLoss& loss) {
  return impl_->backward(loss);
}

void DataParallel::accumulate(const Tensor& mean_loss, int64_t count) {
  accumulate(weighted(mean_loss, count));
}

void DataParallel::accumulate(const WeightedLoss& loss) { impl_->accumulate(loss); }

const std::vector<std::string>& DataParallel::unused() const { return impl_->unused(); }

}  // namespace cohort
