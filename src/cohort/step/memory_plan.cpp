// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/memory_plan.h"

#include <algorithm>
#include <map>
#include <set>

#include "cohort/step/buckets.h"
#include "cohort/step/exact_tree.h"

namespace cohort {
namespace {

using Holds = Buffer::Holds;

class StatePlanner {
 public:
  StatePlanner(Schedule& schedule, int optimizer_states)
      : schedule_(schedule),
        states_(optimizer_states),
        cut_(schedule.mesh.size(Axis::kCut)),
        kept_(kept_type(schedule.precision)),
        wide_(schedule.precision.compute == kept_),
        several_(schedule.exact || schedule.mesh.rounds(schedule.slices) > 1) {}

  void plan(int bucket) {
    bucket_ = bucket;
    const Bucket& what = schedule_.buckets[bucket];
    numel_ = what.numel;
    share_ = schedule_.shard_of(bucket);
    plan_parameters();
    if (what.trained) {
      add(Holds::kMoment, kept_, share_, states_);
      for (int i = most_gradients(schedule_, bucket); i > 0; --i) {
        if (!in_turns()) plan_gradient();
        // Leaves of the first have a slot.
        if (in_turns() && i > 1) add(Holds::kLeaf, schedule_.precision.compute, numel_);
        if (schedule_.shard > 0 && cut_ > 1) plan_sums();
      }
    }
    if (!is_mirrored(schedule_, bucket)) return;
    add(Holds::kMirrorMaster, kept_, share_);
    if (!what.trained) return;
    add(Holds::kMirrorMoment, kept_, share_, states_);
    if (mirror_axis(schedule_) != Axis::kCut)
      add(Holds::kMirrorSum, sum_type(schedule_), share_);
  }

 private:
  void add(Holds holds, at::ScalarType dtype, int64_t numel, int times = 1) {
    for (int i = 0; i < times; ++i)
      schedule_.buffers.push_back({holds, bucket_, dtype, numel});
  }

  bool in_turns() const { return schedule_.shard > 1 && cut_ > 1; }

  void plan_parameters() {
    const auto dtype = schedule_.precision.compute;
    const bool whole = schedule_.shard < 3;
    if (whole) add(Holds::kWhole, dtype, numel_);
    if (!whole || !wide_) add(Holds::kMaster, kept_, share_);
    if (!whole && !wide_) add(Holds::kTravelling, dtype, share_);
  }

  // Where gradients are born, and where slices add up.
  void plan_gradient() {
    const Precision& precision = schedule_.precision;
    const bool in_place = precision.compute == precision.accumulate;
    if (!schedule_.exact || !in_place) add(Holds::kLeaf, precision.compute, numel_);
    int sums = !in_place && several_ ? 1 : 0;
    if (schedule_.exact) {
      sums = 1;
      for (const int rank : schedule_.mesh.members(0, kDataAxes)) {
        const SliceRange range = schedule_.mesh.slices(rank, schedule_.slices);
        sums = std::max(sums, in_place ? buffers_for(range, schedule_.slices)
                                       : stack_height(range, schedule_.slices));
      }
    }
    add(Holds::kPartial, precision.accumulate, numel_, sums);
  }

  void plan_sums() {
    if (schedule_.exact && in_turns()) plan_stacks();
    if (schedule_.exact && schedule_.mesh.size(Axis::kReplicate) > 1)
      add(Holds::kNodes, at::kFloat, share_ * most_nodes());
    const bool at_once = !several_ || !in_turns() || schedule_.exact;
    if (!schedule_.keeps_sums && at_once) return;  // used as they are made
    add(Holds::kSum, sum_type(schedule_), share_);
    if (is_mirrored(schedule_, bucket_))
      add(Holds::kMirrorSum, sum_type(schedule_), share_);
  }

  // For each rank of the group, whichever group it is.
  void plan_stacks() {
    for (int m = 0; m < cut_; ++m) {
      int most = 0;
      for (int g = 0; g < schedule_.mesh.size(Axis::kReplicate); ++g)
        most = std::max(most, stack_height(slices_of_member(g, m), schedule_.slices));
      add(Holds::kStack, at::kFloat, share_, most);
    }
  }

  SliceRange slices_of_member(int group, int member) const {
    const Mesh& mesh = schedule_.mesh;
    const int first = mesh.with(0, Axis::kReplicate, group);
    return mesh.slices(mesh.with(first, Axis::kCut, member), schedule_.slices);
  }

  int64_t most_nodes() const {
    size_t most = 0;
    for (int g = 0; g < schedule_.mesh.size(Axis::kReplicate); ++g) {
      ExactTree tree(schedule_.slices);
      for (int m = 0; m < cut_; ++m)
        for (const TreeNode& node :
             partials_of(slices_of_member(g, m), schedule_.slices))
          tree.push(node);
      most = std::max(most, tree.nodes().size());
    }
    return static_cast<int64_t>(most);
  }

  Schedule& schedule_;
  int states_;
  int cut_;
  at::ScalarType kept_;
  bool wide_, several_;
  int bucket_ = 0;
  int64_t numel_ = 0, share_ = 0;
};

}  // namespace

void plan_state(Schedule& schedule, int optimizer_states) {
  StatePlanner planner(schedule, optimizer_states);
  for (int i = 0; i < static_cast<int>(schedule.buckets.size()); ++i) planner.plan(i);
}

namespace {

// Blocks compute with it, or with what is gathered from it.
bool is_gathered(const Schedule& schedule, const Buffer& buffer) {
  if (buffer.holds == Holds::kTravelling) return true;
  const bool wide = schedule.precision.compute == kept_type(schedule.precision);
  return buffer.holds == Holds::kMaster && schedule.shard == 3 && wide;
}

// Updates alone read and write it.
bool is_of_optimizer(const Schedule& schedule, const Buffer& buffer) {
  switch (buffer.holds) {
    case Holds::kMoment:
    case Holds::kMirrorMaster:
    case Holds::kMirrorMoment:
      return true;
    case Holds::kMaster:
      return !is_gathered(schedule, buffer);
    default:
      return false;
  }
}

}  // namespace

void plan_device(Schedule& schedule, Offload offload) {
  schedule.computes_in = Buffer::Memory::kDevice;
  const bool parameters = offload == Offload::kParameters;
  for (auto& buffer : schedule.buffers) {
    const bool moves = is_of_optimizer(schedule, buffer) ||
                       (parameters && is_gathered(schedule, buffer));
    buffer.memory = moves && offload != Offload::kNothing ? Buffer::Memory::kHost
                                                          : Buffer::Memory::kDevice;
  }
}

const Buffer* gathered_shard(const Schedule& schedule, int bucket) {
  for (const auto& buffer : schedule.buffers)
    if (buffer.bucket == bucket && is_gathered(schedule, buffer)) return &buffer;
  return nullptr;
}

bool gathers_from_host(const Schedule& schedule, int bucket) {
  const Buffer* const shard = gathered_shard(schedule, bucket);
  return shard && shard->memory != schedule.computes_in;
}

at::ScalarType kept_type(const Precision& precision) {
  return precision.compute == at::kDouble ? at::kDouble : at::kFloat;
}

at::ScalarType sum_type(const Schedule& schedule) {
  const bool several = schedule.exact || schedule.mesh.rounds(schedule.slices) > 1;
  return several ? schedule.precision.accumulate : schedule.precision.reduce;
}

std::vector<const Buffer*> planned(const Schedule& schedule, Buffer::Holds holds,
                                   int bucket, Buffer::Memory memory) {
  std::vector<const Buffer*> found;
  for (const auto& buffer : schedule.buffers)
    if (buffer.holds == holds && buffer.bucket == bucket && buffer.memory == memory)
      found.push_back(&buffer);
  return found;
}

namespace {

void add_sent(const Role& role, ValueMemory& memory) {
  std::map<int, int> sent;  // by lane
  for (size_t i = 0; i < role.actions.size(); ++i) {
    const Action& action = role.actions[i];
    if (action.kind != ActionKind::kSend || action.reads.empty() ||
        !is_made_anew(action.reads[0].value.what) || sent[action.lane]++ >= kSentAhead)
      continue;
    memory.takes[i] += action.bytes;
    memory.frees.back() += action.bytes;
  }
}

// What a BackwardInput keeps for later was there before it, as far as something ends
// with it: inputs and gradients of outputs, in the same memory.
void keep_deferred(const Role& role, ValueMemory& memory) {
  for (size_t i = 0; i < role.actions.size(); ++i)
    for (const auto& access : role.actions[i].writes) {
      if (access.value.what != What::kDeferred) continue;
      const int64_t kept = std::min(access.bytes, memory.frees[i]);
      memory.takes[i] -= kept;
      memory.frees[i] -= kept;
    }
}

}  // namespace

ValueMemory value_memory(const Role& role) {
  ValueMemory memory{std::vector<int64_t>(role.actions.size()),
                     std::vector<int64_t>(role.actions.size())};
  std::map<Value, std::pair<size_t, int64_t>> held;  // last user, bytes
  for (size_t i = 0; i < role.actions.size(); ++i) {
    for (const auto& access : role.actions[i].writes)
      if (access.bytes > 0) {
        held[access.value.any_version()].second += access.bytes;
        memory.takes[i] += access.bytes;
      }
    for (const auto* accesses : {&role.actions[i].reads, &role.actions[i].writes})
      for (const auto& access : *accesses)
        if (const auto it = held.find(access.value.any_version()); it != held.end())
          it->second.first = i;
  }
  for (const auto& [value, use] : held) memory.frees[use.first] += use.second;
  keep_deferred(role, memory);
  add_sent(role, memory);
  return memory;
}

namespace {

bool is_of_mirror(Holds holds) {
  return holds == Holds::kMirrorMaster || holds == Holds::kMirrorMoment ||
         holds == Holds::kMirrorSum;
}

}  // namespace

std::vector<bool> kept_buffers(const Schedule& schedule, const Role& role) {
  std::set<int> computed, named, received;
  for (const auto& action : role.actions) {
    named.insert(action.buckets.begin(), action.buckets.end());
    if (action.block != kNone)
      computed.insert(action.buckets.begin(), action.buckets.end());
    for (const auto& access : action.writes) received.insert(access.buffer);
  }
  const bool along_pipe = has_mirrors(schedule) && mirror_axis(schedule) == Axis::kPipe;
  const auto has = [&](const Buffer& buffer) {
    if (!along_pipe) return named.contains(buffer.bucket);
    if (!is_of_mirror(buffer.holds)) return computed.contains(buffer.bucket);
    return mirrors(schedule, role.ranks[0], buffer.bucket);
  };
  std::vector<bool> kept;
  for (size_t i = 0; i < schedule.buffers.size(); ++i) {
    const Buffer& buffer = schedule.buffers[i];
    const bool comes = buffer.holds == Holds::kReceived;
    kept.push_back(comes ? received.contains(static_cast<int>(i))
                         : buffer.bucket == kNone || has(buffer));
  }
  return kept;
}

int64_t kept_bytes(const Schedule& schedule, const Role& role) {
  const auto kept = kept_buffers(schedule, role);
  int64_t bytes = 0;
  for (size_t i = 0; i < kept.size(); ++i)
    if (kept[i]) bytes += schedule.buffers[i].bytes();
  return bytes;
}

}  // namespace cohort
