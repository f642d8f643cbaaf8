// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/block_runner.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <utility>

#include "cohort/step/chain_specs.h"
#include "cohort/step/gradient_target.h"

namespace cohort {
namespace {

// As a value arrives that crosses a link, so that it makes no difference whether it
// did.
Tensor dense(const Tensor& value) {
  return !value.defined() || value.is_non_overlapping_and_dense() ? value
                                                                  : value.contiguous();
}

}  // namespace

Values with_fields(Values values, const Block& block, const Batch& batch) {
  for (auto& field : batch.tensors(block.fields())) values.push_back(std::move(field));
  return values;
}

// Hands out the cells of one forward.
class BlockRunner::Cells final : public GradSink {
 public:
  Cells(const BlockRunner& runner, Flight& flight) : runner_(runner), flight_(flight) {
    flight.cells.clear();
  }

  // A parameter that is frozen has none, nor has a tensor that is no parameter here.
  GradCell take(const Tensor& parameter) override {
    if (!parameter.requires_grad()) return nullptr;
    const auto place = runner_.places_by_.find(parameter.unsafeGetTensorImpl());
    if (place == runner_.places_by_.end()) return nullptr;
    const auto [it, fresh] = flight_.cells.emplace(place->second, nullptr);
    if (!fresh) return nullptr;
    return it->second = std::make_shared<GradTarget>();
  }

 private:
  const BlockRunner& runner_;
  Flight& flight_;
};

BlockRunner::BlockRunner(const Chain& chain, Surroundings& around,
                         const Options& options)
    : chain_(chain), around_(around), options_(options), places_(chain.blocks.size()) {
  bool trained = false;
  for (size_t b = 0; b < chain.blocks.size(); ++b) {
    input_has_gradient_.push_back(trained);
    for (const auto& [name, tensor] : chain.blocks[b]->parameters()) {
      const auto [it, fresh] = places_by_.emplace(tensor.unsafeGetTensorImpl(),
                                                  static_cast<int>(parameters_.size()));
      if (fresh) parameters_.push_back(tensor);
      shared_.resize(parameters_.size(), false);
      if (!fresh) shared_[it->second] = true;
      places_[b].push_back(it->second);
      trained |= tensor.requires_grad();
    }
  }
}

BlockRunner::~BlockRunner() = default;

void BlockRunner::begin(int64_t step, Phase phase, Block* last) {
  step_ = step;
  phase_ = phase;
  if (last != last_ && options_.calls)
    options_.calls->replace(static_cast<int>(chain_.blocks.size()) - 1,
                            last ? *last : *chain_.blocks.back());
  last_ = last;
  written_.clear();
  statistics_.clear();
  if (options_.calls) options_.calls->begin_step();
}

void BlockRunner::clear() {
  flights_.clear();
  deferred_.clear();
}

BlockRunner::Flight& BlockRunner::flight(int block, int slice) {
  return flights_[{block, slice}];
}

bool BlockRunner::is_under_way(int slice) const {
  return std::ranges::any_of(flights_, [=](const auto& entry) {
    return entry.first.second == slice && !entry.second.inputs.empty();
  });
}

void BlockRunner::drop_sent(int block, int slice) {
  Flight& sent = flight(block, slice);
  if (sent.inputs.empty())
    flights_.erase({block, slice});
  else if (!sent.has_graph)
    sent.outputs.clear();
}

void BlockRunner::forward(int block, int slice, bool keeps_graph) {
  Flight& now = flight(block, slice);
  now = {};
  const Batch& batch = around_.batch(slice);
  if (batch.count == 0) {  // a short last batch has empty slices
    if (options_.calls) options_.calls->give_nothing(block, forward_now());
    return;
  }
  now.inputs = with_fields(block == 0 ? Values{}
                                      : cut_graph(flight(block - 1, slice).outputs,
                                                  input_has_gradient_[block]),
                           block_at(block), batch);
  now.has_graph = keeps_graph;
  const c10::AutoGradMode mode(keeps_graph);
  const size_t before = statistics_.size();
  now.outputs = run(block, slice, now.inputs, /*again=*/false);
  for (size_t i = before; i < statistics_.size(); ++i) statistics_[i].slice = slice;
  if (block == 0) return;
  // What no backward starts from lives on as this block's input alone.
  if (Flight& earlier = flight(block - 1, slice); !earlier.has_graph)
    earlier.outputs.clear();
}

BlockCall::When BlockRunner::forward_now() const {
  return phase_ == Phase::kTrain ? BlockCall::When::kForward
                                 : BlockCall::When::kEvaluate;
}

Values BlockRunner::run(int block, int slice, const Values& inputs, bool again) {
  const bool trains = phase_ == Phase::kTrain;
  Cells cells(*this, flight(block, slice));
  Context context{.step = step_,
                  .slice = options_.first_slice + slice,
                  .sample_ids = around_.batch(slice).ids,
                  .seed = options_.seed,
                  .phase = phase_,
                  .recompute = again,
                  .grads = trains ? &cells : nullptr,
                  .random = around_.random(slice),
                  .logits = options_.logits,
                  .statistics = trains && !again ? &statistics_ : nullptr,
                  .calls = options_.calls};
  if (options_.calls)
    options_.calls->begin(block, forward_now(), around_.batch(slice).count);
  Values outputs = block_at(block).forward(inputs, context);
  if (options_.calls) options_.calls->end();
  if (is_last(block) && !last_) return loss_of(slice, outputs, again);
  for (auto& output : outputs) output = dense(output);
  return outputs;
}

Values BlockRunner::loss_of(int slice, const Values& outputs, bool again) {
  const bool hurries = !options_.may_wait && phase_ == Phase::kTrain;
  const c10::AutoGradMode mode(hurries || c10::GradMode::is_enabled());
  const WeightedLoss loss =
      chain_.loss(outputs, around_.batch(slice).tensors(chain_.loss.fields));
  if (!again) around_.keep_loss(slice, loss);
  return {loss.sum};
}

void BlockRunner::recompute(int block, int slice) {
  Flight& now = flight(block, slice);
  if (now.inputs.empty()) {
    if (options_.calls) options_.calls->give_nothing(block, forward_now());
    return;
  }
  now.outputs = run(block, slice, now.inputs, /*again=*/true);
  now.has_graph = true;  // a Send of the first ones that ends now drops nothing
}

std::vector<int> BlockRunner::trained_in(int block) const {
  std::vector<int> trained;
  for (const int place : places_[block])
    if (parameters_[place].requires_grad()) trained.push_back(place);
  return trained;
}

BlockRunner::Flight BlockRunner::take_flight(int block, int slice) {
  Flight taken = std::move(flight(block, slice));
  flights_.erase({block, slice});
  return taken;
}

void BlockRunner::backward(int block, int slice) {
  Flight now = take_flight(block, slice);
  // Several blocks that share a parameter would overwrite each other's gradients.
  std::erase_if(now.cells, [&](const auto& cell) { return shared_[cell.first]; });
  for (const auto& [place, cell] : now.cells)
    *cell = around_.home({place, block, slice});
  const Values gradients = run_backward(block, slice, now);
  const c10::NoGradGuard no_grad;
  size_t next = 0;
  // A gradient that was handed a place and came back elsewhere is the sum with a second
  // use of the parameter.
  for (const int place : trained_in(block)) {
    keep({place, block, slice}, gradients[next++], now.cells.contains(place));
    around_.close({place, block, slice});
  }
  pass_on(block, slice, now, gradients);
}

// Where gradients will have room is not known before it is their turn.
void BlockRunner::backward_input(int block, int slice) {
  Flight now = take_flight(block, slice);
  Deferred& later = deferred_[{block, slice}];
  later = {.cells = now.cells};
  for (const auto& [place, cell] : now.cells) *cell = {.later = &later.work};
  const Values gradients = run_backward(block, slice, now);
  const auto count = static_cast<int64_t>(trained_in(block).size());
  later.gradients.assign(gradients.begin(), gradients.begin() + count);
  const c10::NoGradGuard no_grad;
  pass_on(block, slice, now, gradients);
}

void BlockRunner::backward_weight(int block, int slice) {
  const Deferred now = std::move(deferred_[{block, slice}]);
  deferred_.erase({block, slice});
  const c10::NoGradGuard no_grad;
  size_t next = 0;
  for (const int place : trained_in(block)) {
    const Tensor& gradient = now.gradients[next++];
    const auto cell = now.cells.find(place);
    const auto work =
        cell == now.cells.end() ? now.work.end() : now.work.find(cell->second.get());
    if (work == now.work.end()) {
      keep({place, block, slice}, gradient, /*holds_all=*/false);
    } else {
      *cell->second = home_of({place, block, slice});
      work->second();
      if (gradient.defined()) cell->second->view.add_(gradient);  // from a second use
    }
    around_.close({place, block, slice});
  }
}

// Frozen blocks at the front have no backward, but their peers know what it calls.
Values BlockRunner::run_backward(int block, int slice, Flight& now) {
  const std::vector<int> trained = trained_in(block);
  const auto has_gradient = [](const Tensor& value) { return value.requires_grad(); };
  const bool runs = !now.inputs.empty() &&
                    (!trained.empty() || std::ranges::any_of(now.inputs, has_gradient));
  CheckedCalls* const calls = options_.calls;
  constexpr auto kBackward = BlockCall::When::kBackward;
  if (calls && !runs) calls->give_nothing(block, kBackward);
  if (calls && runs) calls->begin(block, kBackward, around_.batch(slice).count);
  Values gradients = differentiate(block, now, trained);
  if (calls && runs) calls->end();
  return gradients;
}

// Behind those of parameters are the gradients of inputs that have one.
void BlockRunner::pass_on(int block, int slice, Flight& now, const Values& gradients) {
  if (block == 0) return;
  Values& upstream = flight(block - 1, slice).gradient;
  upstream.clear();
  if (now.inputs.empty()) return;
  auto next = gradients.begin() + static_cast<int64_t>(trained_in(block).size());
  now.inputs.resize(now.inputs.size() - chain_.blocks[block]->fields().size());
  for (const auto& input : now.inputs)
    upstream.push_back(input.requires_grad() ? dense(*next++) : Tensor());
}

// Gradients of the parameters, then of those inputs that have one.
Values BlockRunner::differentiate(int block, Flight& now,
                                  const std::vector<int>& trained) {
  Values wanted, roots, given;
  for (const int place : trained) wanted.push_back(parameters_[place]);
  for (const auto& value : now.inputs)
    if (value.requires_grad()) wanted.push_back(value);
  if (is_last(block) && !now.outputs.empty())
    now.gradient = {around_.seed().to(now.outputs[0].scalar_type())};
  for (size_t i = 0; i < now.gradient.size() && i < now.outputs.size(); ++i) {
    if (!now.gradient[i].defined() || !now.outputs[i].requires_grad()) continue;
    roots.push_back(now.outputs[i]);
    given.push_back(now.gradient[i]);
  }
  if (roots.empty() || wanted.empty()) return Values(wanted.size());
  now.outputs.clear();
  now.gradient.clear();
  return torch::autograd::grad(roots, wanted, given, {}, false, /*allow_unused=*/true);
}

// Blocks that share a parameter add to what the first of them has written there.
GradTarget BlockRunner::home_of(const Surroundings::Addend& to) {
  GradTarget target = around_.home(to);
  if (shared_[to.place])
    target.accumulate |=
        !written_.emplace(to.place, to.slice, target.view.const_data_ptr()).second;
  if (target.accumulate) around_.open(to);
  return target;
}

// A gradient that was born in its place is there already.
void BlockRunner::keep(const Surroundings::Addend& to, const Tensor& gradient,
                       bool holds_all) {
  const auto [home, adds, later] = home_of(to);
  if (!gradient.defined()) {
    if (!adds) home.zero_();
  } else if (gradient.data_ptr() == home.data_ptr()) {
    return;
  } else if (!adds || holds_all) {
    home.copy_(gradient);
  } else {
    home.add_(gradient);
  }
}

}  // namespace cohort
