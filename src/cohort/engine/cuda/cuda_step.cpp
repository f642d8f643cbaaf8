// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/cuda/cuda_step.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "cohort/core/error.h"
#include "cohort/engine/block_runner.h"
#include "cohort/engine/cuda/kernel_search.h"
#include "cohort/nn/first_value.h"
#include "cohort/optim/gradient_norm.h"
#include "cohort/step/generator.h"

namespace cohort {

void set_cuda_math(const CudaMath& math) {
  auto& context = at::globalContext();
  context.setAllowTF32CuDNN(math.tf32);
  context.setAllowTF32CuBLAS(math.tf32);
  context.setBenchmarkCuDNN(math.search);
  context.setDeterministicCuDNN(math.exact);
}

CudaStep::CudaStep(Chain& chain, const CudaStepOptions& options)
    : chain_(chain),
      options_(options),
      lane_(options.on_host ? make_host_lane() : make_cuda_lane(options.gpu)),
      device_(lane_->device()),
      control_(make_control()),
      batch_(*lane_, options.compute, chain.block_fields(), options.seed,
             options.slices),
      flights_(chain.blocks.size()) {
  lane_->run([&] {
    const c10::NoGradGuard no_grad;
    give_first_values(chain_);
    lay_out();
    move_parameters();
    move_buffers();
  });
  wait();
}

CudaStep::~CudaStep() = default;

StepControl CudaStep::make_control() {
  std::optional<StepControl> control;
  lane_->run([&] {
    control.emplace(device_,
                    options_.compute == at::kHalf ? options_.loss_scale.initial : 1.0);
  });
  return *control;
}

void CudaStep::wait() { lane_->wait(); }

int64_t CudaStep::peak_bytes() const { return lane_->peak_bytes(); }

void CudaStep::lay_out() {
  std::unordered_map<const void*, int> known;
  blocks_.resize(chain_.blocks.size());
  for (size_t b = 0; b < chain_.blocks.size(); ++b)
    for (const auto& [name, tensor] : chain_.blocks[b]->parameters()) {
      if (!tensor.requires_grad()) {
        Tensor frozen = tensor;
        frozen.set_data(tensor.detach().to(device_, options_.compute));
        frozen_.push_back({name, frozen});
        continue;
      }
      COHORT_CHECK(tensor.is_non_overlapping_and_dense(), name, " is not dense");
      const auto [it, fresh] =
          known.emplace(tensor.unsafeGetTensorImpl(), static_cast<int>(places_.size()));
      if (fresh) {
        places_.push_back({name, tensor, 0, numel_});
        numel_ += padded(tensor.numel());
      }
      blocks_[b].push_back(it->second);
    }
}

void CudaStep::move_parameters() {
  const bool wide = options_.compute == at::kFloat;
  const auto floats = at::TensorOptions(at::kFloat).device(device_);
  master_ = at::zeros({numel_}, floats);
  for (const auto& place : places_)
    FlatState::view(master_, place).copy_(place.parameter.detach());
  whole_ = wide ? master_ : master_.to(options_.compute);
  gradient_ = at::zeros_like(whole_);
  widened_ = wide ? gradient_ : at::zeros_like(master_);
  update_ = std::make_unique<FusedUpdate>(options_.update, master_);
  for (auto& place : places_) {
    update_->add_range(
        place.offset, padded(place.parameter.numel()),
        traits_of(place.name, place.parameter, options_.decay).weight_decay);
    place.parameter.set_data(FlatState::view(whole_, place));
  }
}

void CudaStep::move_buffers() {
  buffers_ = chain_.buffers();
  int64_t count = 0;
  for (const auto& [name, tensor] : buffers_) {
    COHORT_CHECK(tensor.scalar_type() == at::kFloat && tensor.is_contiguous(), name,
                 " is no float32 buffer");
    count += tensor.numel();
  }
  running_ = at::empty({count}, at::TensorOptions(at::kFloat).device(device_));
  int64_t offset = 0;
  for (size_t i = 0; i < buffers_.size(); ++i) {
    Tensor& buffer = buffers_[i].tensor;
    const Tensor view = running_.narrow(0, offset, buffer.numel()).view(buffer.sizes());
    view.copy_(buffer);
    buffer_index_.emplace(buffer.unsafeGetTensorImpl(), i);
    offset += buffer.numel();
    buffer.set_data(view);
  }
}

void CudaStep::load(int64_t step, const Batch& batch, int slice) {
  lane_->run([&] { batch_.load(slice, step, batch); });
}

void CudaStep::start(int64_t step, double rate) {
  step_ = step;
  lane_->run([&] { control_.send(rate, step + 1); });
  const bool usual = batch_.is_usual();
  const bool may_capture = options_.capture && lane_->can_capture() && usual;
  if (!may_capture || started_ < std::max(1, options_.warmup)) {
    const NoKernelSearch rare(!usual);
    lane_->run([this] { compute(); });
  } else {
    if (!captured_) capture();
    lane_->replay(graph_);
    count_ = usual_count_;
  }
  if (usual) ++started_;
}

void CudaStep::capture() {
  graph_ = lane_->capture([this] { compute(); });
  usual_count_ = count_;
  captured_ = true;
}

// The whole step, as a stretch of device work. Sums over slices are made in float32.
void CudaStep::compute() {
  statistics_.clear();
  written_.assign(places_.size(), false);
  count_ = 0;
  {
    const c10::NoGradGuard no_grad;
    const bool half = options_.compute == at::kHalf;
    const auto rows = static_cast<double>(batch_.rows());
    seed_ = control_.loss_scale * (half ? mean_scale(rows) : 1.0);
    control_.loss.zero_();
    first_slice_ = true;
  }
  for (int slice = 0; slice < options_.slices; ++slice) {
    if (batch_.slice(slice).samples.count == 0) continue;  // of a short last batch
    forward(slice);
    backward(slice);
  }
  const c10::NoGradGuard no_grad;
  control_.unscale.copy_(seed_.mul(count_).reciprocal_());
  update();
  fold_statistics();
  if (options_.compute == at::kHalf)
    at::_amp_update_scale_(control_.loss_scale, control_.good_steps, control_.skip,
                           options_.loss_scale.growth, options_.loss_scale.backoff,
                           options_.loss_scale.growth_steps);
}

Values CudaStep::run_block(size_t block, int slice, bool again) {
  DeviceSlice& at_hand = batch_.slice(slice);
  Context context{.step = step_,
                  .slice = slice,
                  .sample_ids = at_hand.samples.ids,
                  .seed = options_.seed,
                  .recompute = again};
  context.random = at_hand.keys.get();
  context.statistics = again ? nullptr : &statistics_;
  const size_t before = statistics_.size();
  Values outputs = chain_.blocks[block]->forward(flights_[block].inputs, context);
  for (size_t i = before; i < statistics_.size(); ++i) statistics_[i].slice = slice;
  if (block + 1 != chain_.blocks.size()) return outputs;
  const c10::AutoGradMode mode(true);  // without it a loss counts right answers
  const WeightedLoss loss =
      chain_.loss(outputs, at_hand.samples.tensors(chain_.loss.fields));
  if (!again) {
    const c10::NoGradGuard no_grad;
    count_ += loss.count;
    control_.loss.add_(loss.sum.detach().view({1}));
  }
  return {loss.sum};
}

void CudaStep::forward(int slice) {
  for (size_t b = 0; b < chain_.blocks.size(); ++b) {
    Flight& flight = flights_[b];
    flight.inputs =
        with_fields(b == 0 ? Values{} : cut_graph(flights_[b - 1].outputs, true),
                    *chain_.blocks[b], batch_.slice(slice).samples);
    const c10::AutoGradMode mode(!recomputes(b));
    flight.outputs = run_block(b, slice, /*again=*/false);
    if (b > 0 && recomputes(b - 1)) flights_[b - 1].outputs.clear();
  }
}

void CudaStep::backward(int slice) {
  const c10::AutoGradMode mode(true);
  Values upstream{seed_.squeeze(0)};
  for (size_t b = chain_.blocks.size(); b-- > 0;) {
    if (recomputes(b)) flights_[b].outputs = run_block(b, slice, /*again=*/true);
    const Flight flight = std::exchange(flights_[b], {});
    if (b + 1 == chain_.blocks.size())
      upstream[0] = upstream[0].to(flight.outputs[0].scalar_type());
    Values wanted;
    for (const int p : blocks_[b]) wanted.push_back(places_[p].parameter);
    for (const auto& value : flight.inputs)
      if (value.requires_grad()) wanted.push_back(value);
    if (wanted.empty()) continue;
    Values gradients =
        torch::autograd::grad(flight.outputs, wanted, upstream, {}, false,
                              /*allow_unused=*/true);
    const auto parameters = gradients.begin() + static_cast<int64_t>(blocks_[b].size());
    keep_gradients(b, {gradients.begin(), parameters});
    upstream.assign(parameters, gradients.end());
  }
  if (widened_.is_same(gradient_)) return;
  const c10::NoGradGuard no_grad;
  if (std::exchange(first_slice_, false))
    widened_.copy_(gradient_);
  else
    widened_.add_(gradient_);
  written_.assign(places_.size(), false);
}

// One kernel copies all gradients of a block; only those of a parameter that several
// blocks share, and of later slices, are added to what is there.
void CudaStep::keep_gradients(size_t block, const Values& gradients) {
  const c10::NoGradGuard no_grad;
  Values homes, values, sums, addends;
  for (size_t i = 0; i < gradients.size(); ++i) {
    const int p = blocks_[block][i];
    Tensor home = FlatState::view(gradient_, places_[p]);
    const bool first = !written_[p];
    written_[p] = true;
    if (!gradients[i].defined()) {
      if (first) home.zero_();
    } else if (first) {
      homes.push_back(std::move(home));
      values.push_back(gradients[i]);
    } else {
      sums.push_back(std::move(home));
      addends.push_back(gradients[i]);
    }
  }
  if (!homes.empty()) at::_foreach_copy_(homes, values);
  if (!sums.empty()) at::_foreach_add_(sums, addends);
}

void CudaStep::update() {
  control_.skip.zero_();
  at::_amp_foreach_non_finite_check_and_unscale_({widened_}, control_.skip,
                                                 control_.unscale);
  if (options_.clip > 0) {
    control_.norm.copy_(at::linalg_vector_norm(widened_).view({1}));
    widened_.mul_(at::clamp_max(options_.clip / (control_.norm + kClipEps), 1.0));
  }
  update_->apply(widened_, control_);
  if (!whole_.is_same(master_)) whole_.copy_(master_);
}

// In the order of the buffers; one that forward said nothing about stays.
Tensor CudaStep::fresh_statistics(int slice) {
  std::vector<const Statistic*> found(buffers_.size());
  for (const auto& statistic : statistics_)
    if (statistic.slice == slice)
      found[buffer_index_.at(statistic.buffer.unsafeGetTensorImpl())] = &statistic;
  Values values;
  std::vector<Tensor> momenta;
  for (size_t i = 0; i < buffers_.size(); ++i) {
    const Tensor& value = found[i] ? found[i]->value : buffers_[i].tensor;
    values.push_back(value.reshape({-1}));
    if (!momentum_.defined())
      momenta.push_back(at::full({value.numel()}, found[i] ? found[i]->momentum : 0.0,
                                 running_.options()));
  }
  if (!momentum_.defined()) momentum_ = at::cat(momenta);
  return at::cat(values);
}

// One slice after another, as if each had been a step.
void CudaStep::fold_statistics() {
  if (statistics_.empty()) return;
  Tensor folded = running_;
  for (int slice = 0; slice < options_.slices; ++slice)
    if (batch_.slice(slice).samples.count > 0)
      folded = at::lerp(folded, fresh_statistics(slice), momentum_);
  running_.copy_(at::where(control_.skip > 0, running_, folded));
  statistics_.clear();
}

CudaStep::Result CudaStep::result() {
  Tensor numbers;
  lane_->run([&] { numbers = control_.all.to(at::kCPU); });
  const float* values = numbers.const_data_ptr<float>();
  return {.loss = values[control_.loss.storage_offset()] / count_,
          .count = count_,
          .norm = values[control_.norm.storage_offset()],
          .loss_scale = values[control_.loss_scale.storage_offset()],
          .skipped = values[control_.skip.storage_offset()] != 0};
}

std::string CudaStep::bad_gradient() {
  std::string name;
  lane_->run([&] {
    for (const auto& place : places_)
      if (name.empty() &&
          !FlatState::view(widened_, place).isfinite().all().item<bool>())
        name = place.name;
  });
  return name;
}

WeightedLoss CudaStep::evaluate(const Batch& batch) {
  WeightedLoss loss;
  const NoKernelSearch rare(true);
  lane_->run([&] {
    const c10::NoGradGuard no_grad;
    DeviceBatch moved(*lane_, options_.compute, chain_.block_fields(), options_.seed,
                      1);
    moved.load(0, step_, batch);
    const Batch& samples = moved.slice(0).samples;
    Context context{.step = step_,
                    .sample_ids = batch.ids,
                    .seed = options_.seed,
                    .phase = Phase::kEvaluate};
    Values values;
    for (const auto& block : chain_.blocks)
      values = block->forward(with_fields(values, *block, samples), context);
    loss = chain_.loss(values, samples.tensors(chain_.loss.fields));
    loss.sum = loss.sum.to(at::kCPU, at::kDouble);
  });
  return loss;
}

}  // namespace cohort
