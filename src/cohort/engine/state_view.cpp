// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/state_view.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "cohort/engine/agreement.h"
#include "cohort/step/buckets.h"
#include "cohort/step/memory_plan.h"
#include "cohort/step/weights_hash.h"

namespace cohort {
namespace {

// Where a parameter and elements [begin, ...) of its bucket meet, which may be nowhere.
Tensor part_of(const FlatParameter& place, const Tensor& flat, int64_t begin) {
  const int64_t offset = place.offset - begin;
  const int64_t from = std::clamp<int64_t>(offset, 0, flat.numel());
  const int64_t to = std::clamp(offset + place.parameter.numel(), from, flat.numel());
  return flat.narrow(0, from, to - from);
}

// Whether a device has its second copies in the host's memory.
bool is_on_host(const Schedule& schedule, int bucket) {
  return schedule.computes_in == Buffer::Memory::kDevice &&
         !planned(schedule, Buffer::Holds::kMirrorMaster, bucket).empty();
}

// Communication takes what is in the device's own memory.
void exchange_copies(Communicator& comm, std::vector<Transfer> sends,
                     const std::vector<Transfer>& receives) {
  std::vector<Transfer> received;
  for (auto& send : sends) send.tensor = send.tensor.clone();
  for (const auto& [peer, tensor] : receives)
    received.push_back({peer, at::empty_like(tensor)});
  comm.exchange(sends, received).wait();
  for (size_t i = 0; i < receives.size(); ++i)
    receives[i].tensor.copy_(received[i].tensor);
}

}  // namespace

// What several ranks may hold of one tensor of the state: part of a bucket, told by
// where it begins, and which part of a tensor it is of. Every rank lists the same; what
// it has not is undefined.
struct StateView::Copy {
  std::string name;
  Tensor own;
  int64_t part = 0;
  Tensor mirror = {};  // its copy of another rank's part
  int64_t mirror_part = 0;
};

StateView::StateView(const Chain& chain, const Schedule& schedule,
                     const RankGroups& groups, const UpdateRule& rule, FlatState& state,
                     bool at_once)
    : chain_(chain),
      schedule_(schedule),
      groups_(groups),
      comm_(*groups.world),
      rule_(rule),
      state_(state),
      at_once_(at_once) {}

// The sums are gathered and added here, as unsigned numbers, which wrap around.
uint64_t StateView::weights_hash() const {
  uint64_t sum = 0;
  for (const auto& piece : pieces(Holding::kOwned))
    if (piece.tensor.kind != TensorKind::kMoment) sum += hash_elements(piece);
  if (comm_.rank() == 0) {
    for (const auto& place : state_.places()) {
      TensorSpec spec = place.tensor.spec;
      spec.dtype = at::kFloat;  // as masters are
      sum += hash_term(spec);
    }
    for (const auto& [name, tensor] : chain_.buffers())
      sum += hash_term(spec_of(name, tensor));
  }
  const auto sums = gather_numbers(comm_, sum);
  return std::accumulate(sums.begin(), sums.end(), uint64_t{0});
}

// Where nobody cuts the state, ranks divide it evenly; and where ranks update for one
// another, at the same places.
ShardRange StateView::owned_range(int bucket) const {
  const BucketState& state = state_.buckets()[bucket];
  if (!state.own || !state.counts) return {0, 0};
  if (schedule_.shard == 0)
    return shard_range(state.numel, groups_.dp->rank(), groups_.dp->size());
  const ShardRange part = groups_.replicate
                              ? shard_range(state.count, groups_.replicate->rank(),
                                            groups_.replicate->size())
                              : ShardRange{0, state.count};
  return {state.begin + part.begin, state.begin + part.end};
}

std::vector<StatePiece> StateView::pieces(Holding which) const {
  std::vector<StatePiece> pieces;
  const auto add_shard = [&](const FlatParameter& place, const ShardState& shard,
                             ShardRange range) {
    add_piece(pieces, place, place.name, TensorKind::kParameter, shard.master,
              shard.begin, range);
    for (size_t i = 0; i < shard.states.size(); ++i)
      add_piece(pieces, place, moment_name(rule_.states()[i].name, place.name),
                TensorKind::kMoment, shard.states[i], shard.begin, range);
  };
  for (size_t i = 0; i < state_.places().size(); ++i) {
    const FlatParameter& place = state_.places()[i];
    const BucketState& bucket = state_.buckets()[place.bucket];
    if (which == Holding::kOwned && !place.is_told_by(groups_.part)) continue;
    const ShardRange range =
        which == Holding::kOwned
            ? owned_range(place.bucket)
            : ShardRange{bucket.begin, bucket.begin + bucket.count};
    add_shard(place, bucket, range);
    if (which == Holding::kHeld && bucket.mirror)
      add_shard(state_.mirrored_places()[i], *bucket.mirror,
                {bucket.mirror->begin, bucket.mirror->begin + bucket.mirror->count});
  }
  if (which == Holding::kOwned && comm_.rank() != 0) return pieces;
  for (const auto& [name, tensor] : chain_.buffers()) {
    StateTensor buffer{.spec = spec_of(name, tensor), .kind = TensorKind::kBuffer};
    pieces.push_back({std::move(buffer), tensor.detach().view({-1})});
  }
  return pieces;
}

void StateView::refresh() {
  const c10::NoGradGuard no_grad;
  for (int i = 0; i < static_cast<int>(state_.buckets().size()); ++i)
    if (state_.buckets()[i].own) refresh_own(i);
  refresh_mirrors();
}

void StateView::refresh_mirrors() {
  const c10::NoGradGuard no_grad;
  for (int i = 0; i < static_cast<int>(state_.buckets().size()); ++i)
    if (is_mirrored(schedule_, i)) refresh_mirror(i);
}

void StateView::refresh_own(int bucket) {
  BucketState& state = state_.buckets()[bucket];
  state_.publish(bucket, 0, state.count);
  if (schedule_.shard == 1 || schedule_.shard == 2) {
    const Tensor shard = state.whole.narrow(0, state.begin, state.count).clone();
    groups_.shard->all_gather(state.whole, shard).wait();
  }
}

// A rank that has a bucket hands it on to the next along the axis of mirrors.
void StateView::refresh_mirror(int bucket) {
  const BucketState& state = state_.buckets()[bucket];
  const auto beside = [&](int distance) {
    return schedule_.mesh.neighbour(comm_.rank(), mirror_axis(schedule_), distance);
  };
  const auto memory_of = [](int peer, const ShardState& shard) {
    std::vector<Transfer> all{{peer, shard.master}};
    for (const auto& moment : shard.states) all.push_back({peer, moment});
    return all;
  };
  std::vector<Transfer> sends, receives;
  if (state.own) sends = memory_of(beside(1), state);
  if (state.mirror) receives = memory_of(beside(-1), *state.mirror);
  if (!is_on_host(schedule_, bucket)) return comm_.exchange(sends, receives).wait();
  exchange_copies(comm_, std::move(sends), receives);
}

// Masters are compared where they are memory of their own, and everyone updates all of
// what it holds: a bit of theirs may not show in the weights for long. What each rank
// has once there is nothing to compare with, mirrors apart.
std::vector<StateView::Copy> StateView::copies() const {
  std::vector<Copy> all;
  const bool masters =
      schedule_.precision.compute != kept_type(schedule_.precision) && !at_once_;
  for (const auto& place : state_.places()) {
    const BucketState& state = state_.buckets()[place.bucket];
    const bool repeats = !place.is_cut() && groups_.parts > 1;
    const bool several = repeats || groups_.dp->size() > 1;
    const bool several_shards = repeats || groups_.shard->size() < groups_.dp->size();
    const auto part = [&](const Tensor& flat, int64_t begin) {
      return state.own ? part_of(place, flat, begin) : Tensor();
    };
    if (has_mirrors(schedule_)) add_mirrored(place, all);
    if (schedule_.shard == 3 && several_shards)
      all.push_back({place.name, part(state.travels, state.begin),
                     part_number(place, state.begin, groups_.part)});
    if (schedule_.shard < 3 && several)
      all.push_back(
          {place.name, part(state.whole, 0), part_number(place, 0, groups_.part)});
    if (masters && (schedule_.shard > 0 ? several_shards : several))
      all.push_back({place.name, part(state.master, state.begin),
                     part_number(place, state.begin, groups_.part)});
  }
  if (comm_.size() > 1)
    for (const auto& [name, tensor] : chain_.buffers())
      all.push_back({name, tensor.cpu(), 0});
  return all;
}

int64_t StateView::part_number(const FlatParameter& place, int64_t begin,
                               int part) const {
  const int64_t numel = state_.buckets()[place.bucket].numel;
  return begin + (place.is_cut() ? numel * part : 0);
}

void StateView::add_mirrored(const FlatParameter& place, std::vector<Copy>& all) const {
  const BucketState& state = state_.buckets()[place.bucket];
  const auto memory = [](const ShardState& shard, int number) {
    return number == 0 ? shard.master : shard.states[number - 1];
  };
  const bool trained = schedule_.buckets[place.bucket].trained;
  const int count = 1 + (trained ? static_cast<int>(rule_.states().size()) : 0);
  const bool parts = mirror_axis(schedule_) == Axis::kTensor;
  const int64_t numel = schedule_.buckets[place.bucket].numel;
  int64_t mirror_part = 0;
  if (state.mirror) {
    const int before = (groups_.part + groups_.parts - 1) % groups_.parts;
    mirror_part =
        part_number(place, state.mirror->begin, parts ? before : groups_.part);
    // Copies of what each rank has already are compared with one another.
    if (parts && !place.is_cut()) mirror_part += numel * groups_.parts;
  }
  for (int i = 0; i < count; ++i) {
    Copy& copy = all.emplace_back();
    copy.name =
        i == 0 ? place.name : moment_name(rule_.states()[i - 1].name, place.name);
    copy.part = part_number(place, state.begin, groups_.part);
    if (state.own) copy.own = part_of(place, memory(state, i), state.begin);
    if (!state.mirror) continue;
    copy.mirror_part = mirror_part;
    copy.mirror = part_of(place, memory(*state.mirror, i), state.mirror->begin);
  }
}

// Everyone sees all hashes, so that all ranks come to the same end.
ReplicaReport StateView::compare_replicas() const {
  const int size = comm_.size();
  if (size == 1) return {};
  const auto mine = copies();
  if (mine.empty()) return {};  // so have the others nothing to compare
  const auto count = static_cast<int64_t>(mine.size());
  enum Column { kPart, kHash, kMirrorPart, kMirrorHash, kColumns };
  Tensor table = at::full({count, kColumns}, -1, at::kLong);
  auto row = table.accessor<int64_t, 2>();
  const auto signed_hash = [](const Tensor& tensor) {
    return static_cast<int64_t>(tensor_hash(tensor));
  };
  for (int64_t i = 0; i < count; ++i) {
    if (mine[i].own.defined()) {
      row[i][kPart] = mine[i].part;
      row[i][kHash] = signed_hash(mine[i].own);
    }
    if (mine[i].mirror.defined()) {
      row[i][kMirrorPart] = mine[i].mirror_part;
      row[i][kMirrorHash] = signed_hash(mine[i].mirror);
    }
  }
  Tensor all = at::empty({size, count, kColumns}, at::kLong);
  comm_.all_gather(all, table).wait();
  const auto known = all.accessor<int64_t, 3>();
  ReplicaComparison comparison;
  for (int64_t i = 0; i < count; ++i) {
    std::map<int64_t, std::map<int, uint64_t>> holders;  // hashes, by part and rank
    for (int r = 0; r < size; ++r)
      for (const auto& [part, hash] :
           {std::pair(kPart, kHash), std::pair(kMirrorPart, kMirrorHash)})
        if (known[r][i][part] >= 0) holders[known[r][i][part]][r] = known[r][i][hash];
    for (const auto& [part, hashes] : holders) comparison.add(mine[i].name, hashes);
  }
  return comparison.report();
}

}  // namespace cohort
