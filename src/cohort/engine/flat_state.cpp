// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/flat_state.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <sstream>

#include "cohort/core/error.h"
#include "cohort/step/generator.h"

namespace cohort {
namespace {

double decay_of(const std::string& name, const DecayOptions& options) {
  std::istringstream entries(options.no_decay);
  for (std::string entry; std::getline(entries, entry, ',');)
    if (!entry.empty() && name.find(entry) != std::string::npos) return 0;
  return options.weight_decay;
}

void add_range(std::vector<DecayRange>& ranges, int64_t begin, int64_t end,
               double weight_decay) {
  if (!ranges.empty() && ranges.back().weight_decay == weight_decay)
    ranges.back().end = end;
  else
    ranges.push_back({begin, end, weight_decay});
}

// The view of a flat stretch that has the parameter's shape and strides, so that a
// channels-last filter stays channels-last.
Tensor view_like(const Tensor& flat, int64_t offset, const Tensor& parameter) {
  return flat.as_strided(parameter.sizes(), parameter.strides(),
                         flat.storage_offset() + offset);
}

}  // namespace

FlatState::FlatState(const Chain& chain, const Schedule& schedule,
                     const UpdateRule& rule, const DecayOptions& decay,
                     Communicator& comm)
    : blocks_(chain.blocks.size()) {
  const c10::NoGradGuard no_grad;
  for (const auto& bucket : schedule.buckets) {
    BucketState state;
    state.parameters = comm.allocate({bucket.numel}, at::kFloat);
    state.gradients = comm.allocate({bucket.numel}, at::kFloat);
    for (size_t i = 0; i < rule.states().size(); ++i)
      state.states.push_back(comm.allocate({bucket.numel}, at::kFloat));
    buckets_.push_back(std::move(state));

    int64_t offset = 0;
    for (int block : bucket.blocks) {
      for (const auto& [name, tensor] : chain.blocks[block]->parameters()) {
        const int64_t end = offset + padded(tensor.numel());
        add_range(buckets_.back().ranges, offset, end, decay_of(name, decay));
        offset = end;
      }
    }
    offset = 0;
    for (int block : bucket.blocks)
      lay_out_block(*chain.blocks[block], block,
                    static_cast<int>(buckets_.size()) - 1, offset);
  }
}

void FlatState::lay_out_block(const Block& block, int index, int bucket,
                              int64_t& offset) {
  BucketState& state = buckets_[bucket];
  for (const auto& [name, tensor] : block.parameters()) {
    COHORT_CHECK(tensor.is_non_overlapping_and_dense(), name, " is not dense");
    const Tensor home = view_like(state.parameters, offset, tensor);
    home.copy_(tensor);
    tensor.set_data(home);
    const Place place{tensor, view_like(state.gradients, offset, tensor), bucket,
                      offset};
    blocks_[index].push_back(place);
    by_parameter_.emplace(tensor.unsafeGetTensorImpl(), place);
    offset += padded(tensor.numel());
  }
}

const Place& FlatState::place_of(const Tensor& parameter) const {
  return by_parameter_.at(parameter.unsafeGetTensorImpl());
}

void update_range(const UpdateRule& rule, BucketState& bucket, int64_t begin,
                  int64_t count, const float* gradient, const StepScalars& scalars) {
  float* const parameters = bucket.parameters.data_ptr<float>();
  for (const auto& range : bucket.ranges) {
    const int64_t from = std::max(begin, range.begin);
    const int64_t to = std::min(begin + count, range.end);
    if (from >= to) continue;
    std::vector<float*> states;
    for (auto& state : bucket.states) states.push_back(state.data_ptr<float>() + from);
    rule.apply(parameters + from, gradient + (from - begin), states, to - from,
               range.weight_decay, scalars);
  }
}

}  // namespace cohort
