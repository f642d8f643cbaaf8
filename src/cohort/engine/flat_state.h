// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cohort/comm/communicator.h"
#include "cohort/comm/peer_memory.h"
#include "cohort/optim/update_rule.h"
#include "cohort/step/block.h"
#include "cohort/step/schedule.h"
#include "cohort/step/state_piece.h"

namespace cohort {

// Where one parameter lies in the flat memory of its bucket.
struct Place {
  std::string name;
  Tensor parameter;
  int bucket = 0;
  int64_t offset = 0;
};

// A stretch of a bucket with one weight decay.
struct DecayRange {
  int64_t begin = 0;
  int64_t end = 0;
  double weight_decay = 0;
};

// One bucket as this rank holds it. All tensors are flat; a share is elements
// [begin, begin + count) of the bucket, which are this rank's to update.
struct BucketState {
  int64_t numel = 0;
  int64_t begin = 0;
  int64_t count = 0;
  bool trained = true;
  std::vector<DecayRange> ranges;  // of the whole bucket

  Tensor whole;    // parameters as they are computed with; blocks have views of it
  Tensor master;   // float32 weights of the share
  Tensor travels;  // the share in the dtype of `whole`, to be gathered (level 3)
  std::vector<Tensor> states;  // of the optimizer, float32, of the share
};

struct DecayOptions {
  double weight_decay = 0;
  std::string no_decay;  // comma list; a name that contains an entry is left alone
};

// Of the parameter with that name.
double decay_of(const std::string& name, const DecayOptions& options);

// The training state of a chain, laid out as a Schedule says. The blocks' parameters
// become views of it; their handles stay.
//
// At shard level 3 `whole` has memory only between acquire() and release().
class FlatState {
 public:
  // Collective over `world`: takes rank 0's weights. `index` of `parts` is this rank's
  // share of each bucket; memory comes from `shard`, which is fastest with it.
  FlatState(const Chain& chain, const Schedule& schedule, const UpdateRule& rule,
            const DecayOptions& decay, Communicator& world, Communicator& shard);
  ~FlatState();

  std::vector<BucketState>& buckets() { return buckets_; }
  const std::vector<BucketState>& buckets() const { return buckets_; }
  // All parameters, in the order of the chain; each once.
  const std::vector<Place>& places() const { return places_; }
  // Of a block, in the order it lists them: indices into places().
  const std::vector<int>& places_of_block(int block) const { return blocks_[block]; }
  int place_of(const Tensor& parameter) const;

  // A stretch of flat memory with the shape and strides of a parameter.
  static Tensor view(const Tensor& flat, const Place& place);

  void acquire(int bucket);
  void release(int bucket);

  // What computation sees of elements [begin, begin + count) of the share, after its
  // master changed. Stretches that do not overlap may be published side by side.
  void publish(int bucket, int64_t begin, int64_t count);

 private:
  void lay_out(const Chain& chain, const Schedule& schedule, const DecayOptions& decay);
  void fill(int bucket, const Schedule& schedule, Communicator& world,
            Communicator& shard);

  std::vector<BucketState> buckets_;
  std::vector<Place> places_;
  std::vector<std::vector<int>> blocks_;
  std::unordered_map<const void*, int> by_parameter_;
  std::vector<Tensor> spare_;  // memory for gathered buckets, each fit for the largest
  int64_t largest_ = 0;
};

// Elements [begin, end) of a bucket, where they meet a parameter: a piece of the tensor
// `name` with the parameter's shape and order. `flat` holds the bucket from element
// `origin` on. None where they do not meet.
std::optional<StatePiece> piece_of(const Place& place, std::string name,
                                   TensorKind kind, const Tensor& flat, int64_t origin,
                                   ShareRange range);

// "optimizer.STATE.PARAMETER".
std::string moment_name(std::string_view state, const std::string& parameter);

// Applies `rule` to elements [begin, begin + count) of a bucket, which lie in its
// share, with `gradient` pointing at element `begin`.
void update_range(const UpdateRule& rule, BucketState& bucket, int64_t begin,
                  int64_t count, const float* gradient, const StepScalars& scalars);

}  // namespace cohort
