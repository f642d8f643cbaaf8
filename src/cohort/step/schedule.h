// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/block_call.h"
#include "cohort/step/action.h"
#include "cohort/step/mesh.h"
#include "cohort/step/tensor_spec.h"

namespace cohort {

// What runs one after another, in the order of the list. A lane is the number of a
// channel of the schedule; the first one computes.
struct Channel {
  enum class Kind : uint8_t {
    kCompute,
    kGroup,  // collectives of one group
    kLink,   // from one place along the pipeline to another
    kCopy,   // between a device and its host
  };
  Kind kind = Kind::kCompute;
  int group = kNone;
  int from = kNone, to = kNone;

  bool operator==(const Channel&) const = default;
};

// Ranks that communicate: those that differ along some axes alone. The world has as
// many of such groups as there are places along the others.
struct Group {
  std::string name;
  AxisSet axes;
  // Along the pipeline, if not all: places of ranks that differ from one another there.
  std::vector<int> places = {};
  // Each member holds, and updates, what the one before it has a second time.
  bool mirrors = false;
};

// Blocks that follow one another at one place along the pipeline, where several stages
// may be.
struct Stage {
  int place = 0;
  std::vector<int> blocks;

  bool operator==(const Stage&) const = default;
};

// Parameters that are moved and updated together: one stretch of flat memory.
struct Bucket {
  // Whose parameters it holds, in order of backward; of a tied one, whose parameters
  // several blocks use: these, the first one first.
  std::vector<int> blocks;
  int64_t numel = 0;                  // with padding, so that it can be cut evenly
  bool trained = true;                // no gradient and no update if not
  at::ScalarType dtype = at::kFloat;  // as the model's parameters were made
  // From shard level 2 on, gradients of buckets take turns in a few pieces of memory.
  int slot = 0;
  // At level 3, the shards of all ranks are seen as one memory: nothing is copied.
  bool joined = false;
  // Whose gradients add up to the one that updates it: a tied parameter's are summed
  // along the pipeline, too.
  AxisSet sum = kDataAxes;
  // Between which ranks its state is cut; none: each has all of it.
  AxisSet cut = {};
};

// Memory that a rank takes before its first step and keeps: what is allocated is this.
struct Buffer {
  enum class Holds : uint8_t {
    kSlot,          // gradients that take turns
    kGathered,      // whole parameters that take turns
    kReceived,      // what comes over a link
    kWhole,         // parameters, as they are computed with
    kMaster,        // float32 weights, where they lie apart
    kTravelling,    // a shard of the parameters, to be gathered
    kMoment,        // the optimizer's
    kLeaf,          // the gradient of a slice
    kPartial,       // a sum of slices
    kSum,           // over ranks
    kStack,         // partial sums of a shard, of one rank's slices
    kNodes,         // those that a group is left with
    kMirrorMaster,  // the same of the neighbour's shard
    kMirrorMoment,
    kMirrorSum,
    kUnknown,  // in an old file: all that a rank keeps
  };
  enum class Memory : uint8_t { kHost, kDevice };
  Holds holds = Holds::kUnknown;
  int bucket = kNone;  // kNone: several take turns
  at::ScalarType dtype = at::kByte;
  int64_t numel = 0;
  Memory memory = Memory::kHost;

  int64_t bytes() const { return numel * size_of(dtype); }
  bool operator==(const Buffer&) const = default;
};
inline constexpr int kBufferKinds = 16;
inline constexpr int kBufferMemories = 2;
std::string_view name_of(Buffer::Holds holds);
std::string_view name_of(Buffer::Memory memory);

// Ranks with equal lists share a role (law 6, docs/design.md).
struct Role {
  std::vector<int> ranks;
  int slices = 1;  // that each of these ranks computes per step
  std::vector<Action> actions;
};

// The types a step computes and adds in. Weights are kept, and updated, in float32.
struct Precision {
  at::ScalarType compute = at::kFloat;     // parameters and activations
  at::ScalarType reduce = at::kFloat;      // gradients on their way between ranks
  at::ScalarType accumulate = at::kFloat;  // gradients of several slices

  bool operator==(const Precision&) const = default;
};

// One training step of all ranks, as data. What is checked, run, simulated and
// drawn is this.
struct Schedule {
  Mesh mesh;
  int slices = 1;  // in the global batch
  int shard = 0;   // level
  bool exact = false;
  // All that a commit depends on is exchanged before the Vote: a rank that is cut off
  // behind it can finish the step alone.
  bool elastic = false;
  // Sums of shards of the gradient stay in memory. Not where ranks reach each other's
  // memory, and an update uses a sum as it is made.
  bool keeps_sums = true;
  // A step may begin before the one before it has ended: its actions wait for those
  // that they need (Action::waits_before). Else for all.
  bool runs_ahead = false;
  Buffer::Memory computes_in = Buffer::Memory::kHost;  // where activations are
  Precision precision;
  std::vector<Group> groups;
  std::vector<Channel> channels;    // by lane
  std::vector<std::string> blocks;  // names
  std::vector<Stage> stages;        // none: every rank computes all blocks
  std::vector<Bucket> buckets;
  std::vector<Buffer> buffers;
  std::vector<Role> roles;

  int world() const { return mesh.world(); }
  int size_of(const Group& group) const;
  int64_t shard_of(int bucket) const;  // elements of its state that a rank has
  std::vector<int> members(const Group& group, int rank) const;  // none if it is none
  int lanes() const { return static_cast<int>(channels.size()); }
  int group_along(AxisSet axes) const;    // its number, kNone if there is none
  const Group* group_of(int lane) const;  // null: no collectives there
  bool is_copy(int lane) const;
  std::string name_of_lane(int lane) const;  // "compute", "dp", "0>1", "copies"
  const Role& role_of(int rank) const;
  // Where along the pipeline a block is computed, or a bucket's blocks are.
  int place_of_block(int block) const;
  int place_of(const Bucket& bucket) const { return place_of_block(bucket.blocks[0]); }
  // One line per action: stable, so that ranks can compare its hash.
  std::string text() const;
  uint64_t hash() const;
};

// A channel to compute, one for each group, and one for copies.
std::vector<Channel> channels_for(const std::vector<Group>& groups);

// How far apart neighbours of a group of data-parallel ranks are in the world.
int stride_of(const Schedule& schedule, const Group& group);

// Whether any state is held a second time; and by the next rank along which axis: kCut,
// or kPipe or kTensor, where each place has its own state once.
bool has_mirrors(const Schedule& schedule);
Axis mirror_axis(const Schedule& schedule);
// Whether a rank holds a second copy of what the place before it computes with.
bool mirrors(const Schedule& schedule, int rank, int bucket);

// Whether its reductions are updates, too.
bool updates_at_once(const Role& role);

// By block: its forward runs again before its backward, and keeps no graph.
std::vector<bool> recomputed_blocks(const Role& role, size_t blocks);

// What a generator must know of a model: no tensor, so it needs no memory. Bytes are
// those of the largest slice; 0 where nobody measured.
struct BlockSpec {
  std::string name;
  std::vector<TensorSpec> parameters;
  std::vector<bool> frozen;  // by parameter; empty: all are trained
  bool keeps_statistics = false;
  int64_t activation_bytes = 0;  // kept from forward to backward, with the output
  int64_t output_bytes = 0;      // the output alone
  int64_t scratch_bytes = 0;     // the most that forward or backward needs beside them
  int64_t deferred_bytes = 0;    // kept from BackwardInput to BackwardWeight
  std::vector<BlockCall> calls;  // inside; of the largest slice
  double cost = 0;  // what computing it costs, beside the others; 0: nobody counted
};

}  // namespace cohort
