// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/running_statistics.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "cohort/core/error.h"

namespace cohort {

RunningStatistics::RunningStatistics(const Chain& chain, at::Device device)
    : buffers_(chain.buffers()) {
  const c10::NoGradGuard no_grad;
  int64_t count = 0;
  for (const auto& [name, tensor] : buffers_) {
    COHORT_CHECK(tensor.scalar_type() == at::kFloat && tensor.is_contiguous(), name,
                 " is no float32 buffer");
    count += tensor.numel();
  }
  running_ = at::empty({count}, at::TensorOptions(at::kFloat).device(device));
  folded_ = at::empty_like(running_);
  int64_t offset = 0;
  for (size_t i = 0; i < buffers_.size(); ++i) {
    Tensor& buffer = buffers_[i].tensor;
    const Tensor view = running_.narrow(0, offset, buffer.numel()).view(buffer.sizes());
    view.copy_(buffer);
    index_.emplace(buffer.unsafeGetTensorImpl(), i);
    offset += buffer.numel();
    buffer.set_data(view);
  }
}

// In the order of the buffers.
Tensor RunningStatistics::row_of(const std::vector<const Statistic*>& found) const {
  std::vector<Tensor> values;
  for (size_t i = 0; i < buffers_.size(); ++i)
    values.push_back((found[i] ? found[i]->value : buffers_[i].tensor)
                         .detach()
                         .to(at::kFloat)
                         .reshape({-1}));
  return at::cat(values);
}

const RunningStatistics::Weights& RunningStatistics::weights_of(
    const std::vector<const Statistic*>& found) {
  std::vector<double> momenta;
  for (const auto* statistic : found)
    momenta.push_back(statistic ? statistic->momentum : 0);
  Weights& known = weights_[momenta];
  if (known.kept.defined()) return known;
  std::vector<Tensor> kept, taken;
  for (size_t i = 0; i < buffers_.size(); ++i) {
    const int64_t count = buffers_[i].tensor.numel();
    kept.push_back(at::full({count}, 1 - momenta[i], running_.options()));
    taken.push_back(at::full({count}, momenta[i], running_.options()));
  }
  return known = {at::cat(kept), at::cat(taken)};
}

void RunningStatistics::fold(const std::vector<Statistic>& learned, int rows,
                             Communicator* comm) {
  if (buffers_.empty()) return;
  const c10::NoGradGuard no_grad;
  std::vector<std::vector<const Statistic*>> found(
      rows, std::vector<const Statistic*>(buffers_.size()));
  for (const auto& statistic : learned)
    found[statistic.slice][index_.at(statistic.buffer.unsafeGetTensorImpl())] =
        &statistic;
  std::vector<Tensor> each;  // kept, taken and values, in turn
  for (int slice = 0; slice < rows; ++slice) {
    const Weights& weights = weights_of(found[slice]);
    each.insert(each.end(), {weights.kept, weights.taken, row_of(found[slice])});
  }
  if (comm) {
    const Tensor mine = at::stack(each);
    Tensor all = at::empty({comm->size() * mine.size(0), mine.size(1)}, mine.options());
    comm->all_gather(all, mine).join();
    each = all.unbind(0);
  }
  // As apply_statistics(): so the bits do not depend on where the state is.
  folded_.copy_(running_);
  for (size_t i = 0; i < each.size(); i += 3)
    folded_.mul_(each[i]).addcmul_(each[i + 2], each[i + 1]);
}

void RunningStatistics::commit(const Tensor& gate) {
  if (buffers_.empty()) return;
  const c10::NoGradGuard no_grad;
  running_.copy_(at::where(gate != 0, folded_, running_));
}

}  // namespace cohort
