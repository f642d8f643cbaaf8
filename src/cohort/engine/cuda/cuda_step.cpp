// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/cuda/cuda_step.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "cohort/core/error.h"
#include "cohort/optim/gradient_norm.h"
#include "cohort/step/generator.h"

namespace cohort {
namespace {

Tensor to_device(const Tensor& value, at::Device device) {
  return value.detach().to(value.options().device(device));
}

}  // namespace

void set_cuda_math(const CudaMath& math) {
  auto& context = at::globalContext();
  context.setAllowTF32CuDNN(math.tf32);
  context.setAllowTF32CuBLAS(math.tf32);
  context.setBenchmarkCuDNN(math.search);
  context.setDeterministicCuDNN(math.exact);
}

CudaStep::CudaStep(Chain& chain, const Batch& example, const CudaStepOptions& options)
    : chain_(chain),
      options_(options),
      lane_(options.on_host ? nullptr : make_cuda_lane()),
      device_(options.on_host ? at::Device(at::kCPU) : at::Device(at::kCUDA, 0)),
      control_(make_control()),
      flights_(chain.blocks.size()) {
  run([&] {
    const c10::NoGradGuard no_grad;
    lay_out();
    move_parameters();
    move_buffers();
    input_ = example.input.is_floating_point()
                 ? example.input.to(device_, options_.compute)
                 : to_device(example.input, device_);
    if (input_.dim() == 4) input_ = input_.contiguous(at::MemoryFormat::ChannelsLast);
    target_ = example.target.defined() ? to_device(example.target, device_) : Tensor();
    ids_ = example.ids;
  });
  wait();
}

CudaStep::~CudaStep() = default;

void CudaStep::run(const std::function<void()>& work) {
  if (lane_)
    lane_->run(work);
  else
    work();
}

StepControl CudaStep::make_control() {
  std::optional<StepControl> control;
  run([&] {
    control.emplace(device_,
                    options_.compute == at::kHalf ? options_.loss_scale.initial : 1.0);
  });
  return *control;
}

void CudaStep::wait() {
  if (lane_) lane_->wait();
}

int64_t CudaStep::peak_bytes() const { return lane_ ? lane_->peak_bytes() : 0; }

void CudaStep::lay_out() {
  std::unordered_map<const void*, int> known;
  blocks_.resize(chain_.blocks.size());
  for (size_t b = 0; b < chain_.blocks.size(); ++b)
    for (const auto& [name, tensor] : chain_.blocks[b]->parameters()) {
      if (!tensor.requires_grad()) {
        Tensor frozen = tensor;
        frozen.set_data(tensor.detach().to(device_, options_.compute));
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
    update_->add_range(place.offset, padded(place.parameter.numel()),
                       decay_of(place.name, options_.decay));
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

void CudaStep::load(const Batch& batch) {
  if (batch.input.sizes() != input_.sizes())
    throw ConfigError(text("[engine] a batch of shape ", batch.input.sizes(),
                           " for a step of shape ", input_.sizes(),
                           "; on a GPU all batches have one shape"));
  ids_ = batch.ids;
  run([&] {
    const c10::NoGradGuard no_grad;
    input_.copy_(batch.input, /*non_blocking=*/batch.input.is_pinned());
    if (target_.defined())
      target_.copy_(batch.target, /*non_blocking=*/batch.target.is_pinned());
  });
}

void CudaStep::start(int64_t step, double rate) {
  step_ = step;
  run([&] { control_.send(rate, step + 1); });
  const bool may_capture = options_.capture && lane_;
  if (!may_capture || started_ < std::max(1, options_.warmup)) {
    run([this] { compute(); });
  } else {
    if (!captured_) capture();
    lane_->replay();
  }
  ++started_;
}

void CudaStep::capture() {
  try {
    lane_->capture([this] { compute(); });
  } catch (const c10::Error& error) {
    const std::string what = error.what_without_backtrace();
    throw ConfigError(text("[engine] this model's step cannot be captured: ",
                           what.substr(0, what.find('\n')),
                           "; blocks may neither draw random numbers nor wait"));
  }
  captured_ = true;
}

// The whole step, as a stretch of device work.
void CudaStep::compute() {
  statistics_.clear();
  written_.assign(places_.size(), false);
  forward();
  backward();
  const c10::NoGradGuard no_grad;
  update();
  fold_statistics();
  if (options_.compute == at::kHalf)
    at::_amp_update_scale_(control_.loss_scale, control_.good_steps, control_.skip,
                           options_.loss_scale.growth, options_.loss_scale.backoff,
                           options_.loss_scale.growth_steps);
}

void CudaStep::forward() {
  Context context{.step = step_, .sample_ids = ids_, .seed = options_.seed};
  context.statistics = &statistics_;
  const c10::AutoGradMode mode(true);
  for (size_t b = 0; b < chain_.blocks.size(); ++b) {
    Flight& flight = flights_[b];
    flight.inputs = b == 0 ? Values{input_} : cut_graph(flights_[b - 1].outputs, true);
    flight.outputs = chain_.blocks[b]->forward(flight.inputs, context);
  }
  const WeightedLoss loss = chain_.loss(flights_.back().outputs, target_);
  flights_.back().outputs = {loss.sum};
  count_ = loss.count;
  const c10::NoGradGuard no_grad;
  control_.loss.copy_(loss.sum.detach().view({1}));
  const bool half = options_.compute == at::kHalf;
  seed_ = control_.loss_scale * (half ? mean_scale(count_) : 1.0);
  control_.unscale.copy_(seed_.mul(count_).reciprocal_());
}

void CudaStep::backward() {
  Values upstream{seed_.squeeze(0).to(flights_.back().outputs[0].scalar_type())};
  for (size_t b = chain_.blocks.size(); b-- > 0;) {
    const Flight flight = std::exchange(flights_[b], {});
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
}

// One kernel copies all gradients of a block; only a parameter that several blocks
// share is added to.
void CudaStep::keep_gradients(size_t block, const Values& gradients) {
  const c10::NoGradGuard no_grad;
  Values homes, values;
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
      home.add_(gradients[i]);
    }
  }
  if (!homes.empty()) at::_foreach_copy_(homes, values);
}

void CudaStep::update() {
  control_.skip.zero_();
  if (!widened_.is_same(gradient_)) widened_.copy_(gradient_);
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
Tensor CudaStep::fresh_statistics() {
  std::vector<const Statistic*> found(buffers_.size());
  for (const auto& statistic : statistics_)
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

void CudaStep::fold_statistics() {
  if (statistics_.empty()) return;
  const Tensor folded = at::lerp(running_, fresh_statistics(), momentum_);
  running_.copy_(at::where(control_.skip > 0, running_, folded));
  statistics_.clear();
}

CudaStep::Result CudaStep::result() {
  Tensor numbers;
  run([&] { numbers = control_.all.to(at::kCPU); });
  const float* values = numbers.const_data_ptr<float>();
  return {.loss = values[control_.loss.storage_offset()] / count_,
          .norm = values[control_.norm.storage_offset()],
          .loss_scale = values[control_.loss_scale.storage_offset()],
          .skipped = values[control_.skip.storage_offset()] != 0};
}

std::vector<NamedTensor> CudaStep::weights() {
  std::vector<NamedTensor> all;
  run([&] {
    const c10::NoGradGuard no_grad;
    const Tensor host = master_.to(at::kCPU, at::kFloat, false, /*copy=*/true);
    for (const auto& place : places_)
      all.push_back({place.name, FlatState::view(host, place)});
    for (const auto& [name, tensor] : buffers_)
      all.push_back({name, tensor.to(at::kCPU, at::kFloat, false, /*copy=*/true)});
  });
  return all;
}

}  // namespace cohort
