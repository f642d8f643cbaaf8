// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/state_view.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>
#include <utility>

namespace cohort {
namespace {

// Where a parameter and elements [begin, ...) of its bucket meet, which may be nowhere.
Tensor part_of(const Place& place, const Tensor& flat, int64_t begin) {
  const int64_t offset = place.offset - begin;
  const int64_t from = std::clamp<int64_t>(offset, 0, flat.numel());
  const int64_t to = std::clamp(offset + place.parameter.numel(), from, flat.numel());
  return flat.narrow(0, from, to - from);
}

}  // namespace

// A tensor, or this rank's share of one, that others hold too: all ranks r with equal
// r % shares, and whoever mirrors them.
struct StateView::Copy {
  std::string name;
  Tensor tensor;
  int shares;
  Tensor mirror = {};  // of the share of the rank before
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

// The float32 weights of a whole bucket, from the ranks that own them.
Tensor StateView::master_of(int bucket) const {
  const BucketState& state = state_.buckets()[bucket];
  const bool owned_apart = at_once_ && schedule_.precision.compute != at::kFloat;
  if (schedule_.shard == 0 && !owned_apart) return state.master;
  if (schedule_.precision.compute == at::kFloat && schedule_.shard < 3)
    return state.whole;
  const int64_t count = state.numel / groups_.shard->size();
  const Tensor mine = schedule_.shard == 0
                          ? state.master.narrow(0, count * groups_.shard->rank(), count)
                          : state.master;
  Tensor whole = at::empty({state.numel}, at::kFloat);
  groups_.shard->all_gather(whole, mine.clone()).wait();
  return whole;
}

std::vector<NamedTensor> StateView::weights() const {
  const c10::NoGradGuard no_grad;
  std::vector<NamedTensor> all(state_.places().size());
  for (int i = 0; i < static_cast<int>(state_.buckets().size()); ++i) {
    const Tensor whole = master_of(i);
    for (size_t p = 0; p < all.size(); ++p)
      if (const Place& place = state_.places()[p];
          place.bucket == i && comm_.rank() == 0)
        all[p] = {place.name, FlatState::view(whole, place)};
  }
  if (comm_.rank() != 0) return {};
  for (const auto& [name, tensor] : chain_.buffers())
    all.push_back({name, tensor.to(at::kCPU)});
  return all;
}

// Where nobody cuts the state, ranks divide it evenly; and where ranks update for one
// another, at the same places.
ShareRange StateView::owned_range(int bucket) const {
  const BucketState& state = state_.buckets()[bucket];
  if (schedule_.shard == 0) return share_of(state.numel, comm_.rank(), comm_.size());
  const ShareRange part =
      groups_.replicate
          ? share_of(state.count, groups_.replicate->rank(), groups_.replicate->size())
          : ShareRange{0, state.count};
  return {state.begin + part.begin, state.begin + part.end};
}

std::vector<StatePiece> StateView::pieces(Holding which) const {
  std::vector<StatePiece> pieces;
  const auto add_share = [&](const Place& place, const ShareState& share,
                             ShareRange range) {
    add_piece(pieces, place, place.name, TensorKind::kParameter, share.master,
              share.begin, range);
    for (size_t i = 0; i < share.states.size(); ++i)
      add_piece(pieces, place, moment_name(rule_.states()[i].name, place.name),
                TensorKind::kMoment, share.states[i], share.begin, range);
  };
  for (const auto& place : state_.places()) {
    const BucketState& bucket = state_.buckets()[place.bucket];
    const ShareRange range =
        which == Holding::kOwned
            ? owned_range(place.bucket)
            : ShareRange{bucket.begin, bucket.begin + bucket.count};
    add_share(place, bucket, range);
    if (which == Holding::kHeld && bucket.mirror)
      add_share(place, *bucket.mirror,
                {bucket.mirror->begin, bucket.mirror->begin + bucket.mirror->count});
  }
  if (which == Holding::kOwned && comm_.rank() != 0) return pieces;
  for (const auto& [name, tensor] : chain_.buffers()) {
    StateTensor buffer{.spec = spec_of(name, tensor), .kind = TensorKind::kBuffer};
    pieces.push_back({std::move(buffer), tensor.detach().view({-1})});
  }
  return pieces;
}

void StateView::refresh(ComputeSide& compute) {
  const c10::NoGradGuard no_grad;
  for (int i = 0; i < static_cast<int>(state_.buckets().size()); ++i) {
    BucketState& state = state_.buckets()[i];
    state_.publish(i, 0, state.count);
    if (schedule_.shard == 1 || schedule_.shard == 2) {
      const Tensor share = state.whole.narrow(0, state.begin, state.count).clone();
      groups_.shard->all_gather(state.whole, share).wait();
    }
    if (state.mirror) refresh_mirror(i);
    if (schedule_.shard < 3) compute.take_changes(i);
  }
}

void StateView::refresh_mirror(int bucket) {
  const BucketState& state = state_.buckets()[bucket];
  const auto beside = [&](int distance) {
    return schedule_.mesh.coordinate_beside(comm_.rank(), Axis::kCut, distance);
  };
  std::vector<Transfer> sends, receives;
  const auto move = [&](const Tensor& mine, const Tensor& mirrored) {
    sends.push_back({beside(1), mine});
    receives.push_back({beside(-1), mirrored});
  };
  move(state.master, state.mirror->master);
  for (size_t i = 0; i < state.states.size(); ++i)
    move(state.states[i], state.mirror->states[i]);
  groups_.shard->exchange(sends, receives).wait();
}

// Shares as many as ranks are held once each: there is nothing to compare them with,
// mirrors apart. Masters are compared where they are memory of their own, and everyone
// updates all of what he holds: a bit of theirs may not show in the weights for long.
std::vector<StateView::Copy> StateView::copies() const {
  std::vector<Copy> all = mirrored_copies();
  const auto add = [&](const std::string& name, const Tensor& tensor, int shares) {
    if (shares < comm_.size()) all.push_back({name, tensor, shares});
  };
  const int shares = groups_.shard->size();
  const bool masters = schedule_.precision.compute != at::kFloat && !at_once_;
  for (const auto& place : state_.places()) {
    const BucketState& state = state_.buckets()[place.bucket];
    if (schedule_.shard == 3)
      add(place.name, part_of(place, state.travels, state.begin), shares);
    else
      add(place.name, part_of(place, state.whole, 0), 1);
    if (masters)
      add(place.name, part_of(place, state.master, state.begin),
          schedule_.shard > 0 ? shares : 1);
  }
  for (const auto& [name, tensor] : chain_.buffers()) add(name, tensor.cpu(), 1);
  return all;
}

std::vector<StateView::Copy> StateView::mirrored_copies() const {
  std::vector<Copy> all;
  if (!has_mirrors(schedule_)) return all;
  for (const auto& place : state_.places()) {
    const BucketState& own = state_.buckets()[place.bucket];
    const ShareState& mirror = *own.mirror;
    const auto add = [&](std::string name, const Tensor& mine, const Tensor& theirs) {
      all.push_back({std::move(name), part_of(place, mine, own.begin), comm_.size(),
                     part_of(place, theirs, mirror.begin)});
    };
    add(place.name, own.master, mirror.master);
    for (size_t i = 0; i < own.states.size(); ++i)
      add(moment_name(rule_.states()[i].name, place.name), own.states[i],
          mirror.states[i]);
  }
  return all;
}

// Everyone sees all hashes, so that all ranks come to the same end.
ReplicaReport StateView::compare_replicas() const {
  const int size = comm_.size();
  if (size == 1) return {};
  const auto mine = copies();
  if (mine.empty()) return {};  // so have the others nothing to compare
  const auto count = static_cast<int64_t>(mine.size());
  Tensor hashes = at::zeros({count, 2}, at::kLong);  // of the copy, and of the mirror
  auto hash = hashes.accessor<int64_t, 2>();
  const auto signed_hash = [](const Tensor& tensor) {
    return static_cast<int64_t>(tensor_hash(tensor));
  };
  for (int64_t i = 0; i < count; ++i) {
    hash[i][0] = signed_hash(mine[i].tensor);
    if (mine[i].mirror.defined()) hash[i][1] = signed_hash(mine[i].mirror);
  }
  Tensor all = at::empty({size, count, 2}, at::kLong);
  comm_.all_gather(all, hashes).wait();
  const auto known = all.accessor<int64_t, 3>();
  const Mesh& mesh = schedule_.mesh;
  ReplicaComparison comparison;
  for (int64_t i = 0; i < count; ++i)
    for (int share = 0; share < mine[i].shares; ++share) {
      std::map<int, uint64_t> holders;
      for (int r = 0; r < size; ++r)
        if (mine[i].shares == 1 || mesh.coordinate(r, Axis::kCut) == share)
          holders[r] = known[r][i][0];
      if (const int next = mesh.neighbour(share, Axis::kCut, 1);
          mine[i].mirror.defined())
        holders[next] = known[next][i][1];
      comparison.add(mine[i].name, holders);
    }
  return comparison.report();
}

}  // namespace cohort
