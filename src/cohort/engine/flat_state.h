// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "cohort/comm/communicator.h"
#include "cohort/optim/update_rule.h"
#include "cohort/step/block.h"
#include "cohort/step/schedule.h"

namespace cohort {

// Where one parameter lies in the flat memory of its bucket.
struct Place {
  Tensor parameter;
  Tensor gradient;  // a view with the parameter's shape and strides
  int bucket = 0;
  int64_t offset = 0;
};

// A stretch of a bucket with one weight decay.
struct DecayRange {
  int64_t begin = 0;
  int64_t end = 0;
  double weight_decay = 0;
};

// One bucket: parameters, gradients and optimizer states as flat float32 memory of
// equal length, in memory the communicator is fastest with.
struct BucketState {
  Tensor parameters;
  Tensor gradients;
  std::vector<Tensor> states;
  std::vector<DecayRange> ranges;
};

struct DecayOptions {
  double weight_decay = 0;
  std::string no_decay;  // comma list; a name that contains an entry is left alone
};

// The training state of a chain, laid out as a Schedule's buckets say. The blocks'
// parameters become views of it; their handles stay.
class FlatState {
 public:
  FlatState(const Chain& chain, const Schedule& schedule, const UpdateRule& rule,
            const DecayOptions& decay, Communicator& comm);

  std::vector<BucketState>& buckets() { return buckets_; }
  const Place& place_of(const Tensor& parameter) const;
  const std::vector<Place>& places_of_block(int block) const { return blocks_[block]; }

 private:
  void lay_out_block(const Block& block, int index, int bucket, int64_t& offset);

  std::vector<BucketState> buckets_;
  std::vector<std::vector<Place>> blocks_;
  std::unordered_map<const void*, Place> by_parameter_;
};

// Applies `rule` to elements [begin, begin + count) of a bucket, with `gradient`
// pointing at element `begin`.
void update_range(const UpdateRule& rule, BucketState& bucket, int64_t begin,
                  int64_t count, const float* gradient, const StepScalars& scalars);

}  // namespace cohort
