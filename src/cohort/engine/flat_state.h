// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cohort/block.h"
#include "cohort/comm/peer_memory.h"
#include "cohort/communicator.h"
#include "cohort/engine/first_weights.h"
#include "cohort/engine/rank_groups.h"
#include "cohort/engine/state_home.h"
#include "cohort/step/schedule.h"
#include "cohort/step/state_piece.h"
#include "cohort/update_rule.h"

namespace cohort {

// Where one parameter lies in the flat memory of its bucket.
struct FlatParameter {
  std::string name;
  Tensor parameter;
  StateTensor tensor;  // the whole that it is of, and which part
  int bucket = kNone;
  int64_t offset = 0;

  // Tensor-parallel ranks have different parts of it.
  bool is_cut() const { return !tensor.spec.box.is_whole(); }
  // Ranks that have the same of it let the one with the first part speak for it.
  bool is_told_by(int part) const { return is_cut() || part == 0; }
  // Its elements that are state; padding may follow them.
  int64_t held() const { return tensor.spec.end; }
};

// A stretch of a bucket that is updated alike. A tensor that adapts has one of its own.
struct ParameterRange {
  int64_t begin = 0;
  int64_t end = 0;
  ParameterTraits traits;
  int place = kNone;  // number of what adapts, in FlatState::places()
};

// Elements [begin, begin + count) of a bucket, and what an update of them changes. All
// tensors are flat.
struct ShardState {
  int64_t begin = 0;
  int64_t count = 0;
  Tensor master;               // float32 weights
  std::vector<Tensor> states;  // the optimizer's, float32
};

// One bucket as this rank holds it: its own shard, which is this rank's to update, and
// what goes with it.
struct BucketState : ShardState {
  int64_t numel = 0;
  bool trained = true;  // and updated here
  bool own = true;      // its blocks are computed here; else only the mirror is
  bool counts = true;   // else the place of an earlier block speaks for it
  std::vector<ParameterRange> ranges;  // those of the whole bucket

  Tensor whole;    // parameters as they are computed with; blocks have views of it
  Tensor travels;  // the shard in the dtype of `whole`, to be gathered (level 3)
  bool travels_from_host = false;  // the shard is in the host's memory, `whole` is not
  Tensor joined;  // what all ranks have in `travels`, as one memory, where it can be
  // The shard of the rank before this one, the same bits a second time, in memory of
  // its own: that a bit of one of the two has flipped shows only then. Along a pipeline
  // all of a bucket of the place before; between parts of tensors, all of this bucket.
  std::optional<ShardState> mirror;
};

// What differs for the parameter with that name. It adapts if it has more than one
// dimension and is not left alone.
ParameterTraits traits_of(const std::string& name, const Tensor& parameter,
                          const DecayOptions& options);

// The training state of a chain, laid out as a Schedule says. The blocks' parameters
// become views of it; their handles stay.
//
// At shard level 3 `whole` has memory only between acquire() and release().
class FlatState {
 public:
  // Collective over the world: begins with its FirstWeights; with `takes_over` all are
  // zero until they are written. Each rank of the shard group has a shard of each
  // bucket whose blocks it computes. It lies at `home`: on the host in memory that this
  // group is fastest with.
  FlatState(const Chain& chain, const Schedule& schedule, const UpdateRule& rule,
            const DecayOptions& decay, const RankGroups& groups, bool takes_over,
            const StateHome& home = host_home());
  ~FlatState();

  const StateHome& home() const { return home_; }
  std::vector<BucketState>& buckets() { return buckets_; }
  const std::vector<BucketState>& buckets() const { return buckets_; }
  // All parameters, in the order of the chain; each once.
  const std::vector<FlatParameter>& places() const { return places_; }
  // The same of the rank whose state this one mirrors, which may have other parts.
  const std::vector<FlatParameter>& mirrored_places() const {
    return mirrored_places_.empty() ? places_ : mirrored_places_;
  }
  int place_of(const Tensor& parameter) const;

  // A stretch of flat memory with the shape and strides of a parameter.
  static Tensor view(const Tensor& flat, const FlatParameter& place);

  void acquire(int bucket);
  void release(int bucket);

  // What computation sees of elements [begin, begin + count) of the shard, after its
  // master changed. Stretches that do not overlap may be published side by side.
  void publish(int bucket, int64_t begin, int64_t count);

 private:
  BucketState frame_of(const Schedule& schedule, int bucket,
                       const RankGroups& groups) const;
  void lay_out(const Chain& chain, const Schedule& schedule, const UpdateRule& rule,
               const DecayOptions& decay);
  std::vector<std::vector<int>> users_of_places() const;
  void fill(int bucket, const Schedule& schedule, const RankGroups& groups,
            FirstWeights& first);
  void drop_parameters(int bucket, at::ScalarType dtype);

  StateHome home_;
  std::vector<BucketState> buckets_;
  std::vector<FlatParameter> places_;
  std::vector<FlatParameter> mirrored_places_;  // empty: the same
  std::vector<std::vector<int>> blocks_;
  std::unordered_map<const void*, int> by_parameter_;
  // Memory for gathered buckets, each fit for the largest; longest free first, as in
  // the plan: what still uses the memory that was freed last is not waited for.
  std::deque<Tensor> spare_;
  int64_t largest_ = 0;
};

// Elements [range.begin, range.end) of a bucket, where they meet a parameter: adds a
// piece of the tensor `name`, which has the parameter's shape, part and order. `flat`
// holds the bucket from element `origin` on. Nothing where they do not meet.
void add_piece(std::vector<StatePiece>& pieces, const FlatParameter& place,
               std::string name, TensorKind kind, const Tensor& flat, int64_t origin,
               ShardRange range);

// "optimizer.STATE.PARAMETER".
std::string moment_name(std::string_view state, const std::string& parameter);

}  // namespace cohort
