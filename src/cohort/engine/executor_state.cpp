// SPDX-License-Identifier: Apache-2.0
// The state of a run as a whole: how it is set up, its weights, and replicas that drift
// apart (a flipped bit, a kernel that is not deterministic).
#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>
#include <utility>

#include "cohort/core/error.h"
#include "cohort/engine/cuda/device_side.h"
#include "cohort/engine/executor.h"
#include "cohort/engine/replicas.h"

namespace cohort {

// A tensor, or this rank's share of one, that others hold too: all ranks r with equal
// r % shares, and whoever mirrors them.
struct Executor::Copy {
  std::string name;
  Tensor tensor;
  int shares;
  Tensor mirror = {};  // of the share of the rank before
};

void Executor::make_groups() {
  if (schedule_.groups.size() < 3) return;
  const Mesh& mesh = schedule_.mesh;
  shard_comm_ = comm_.split(mesh.first(comm_.rank(), schedule_.groups[1].axes));
  replicate_comm_ = comm_.split(mesh.first(comm_.rank(), schedule_.groups[2].axes));
}

// Rank 0's buffers are everyone's.
void Executor::start_buffers_equal() {
  for (auto& [name, tensor] : chain_.buffers()) {
    Tensor buffer = tensor;
    comm_.broadcast(buffer, 0).wait();
  }
}

void Executor::find_shared_places() {
  const auto& places = state_.places();
  shared_.assign(places.size(), false);
  written_.assign(places.size(), false);
  std::vector<bool> seen(places.size(), false);
  bool trained = false;
  for (int b = 0; b < static_cast<int>(chain_.blocks.size()); ++b) {
    input_has_gradient_.push_back(trained);
    for (int p : state_.places_of_block(b)) {
      if (seen[p]) shared_[p] = true;
      seen[p] = true;
      trained |= places[p].parameter.requires_grad();
    }
  }
}

// The float32 weights of a whole bucket, from the ranks that own them.
Tensor Executor::master_of(int bucket) {
  const BucketState& state = state_.buckets()[bucket];
  const bool owned_apart = fused_ && schedule_.precision.compute != at::kFloat;
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

std::vector<NamedTensor> Executor::weights() {
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
ShareRange Executor::owned_range(int bucket) const {
  const BucketState& state = state_.buckets()[bucket];
  if (schedule_.shard == 0) return share_of(state.numel, comm_.rank(), comm_.size());
  const ShareRange part =
      groups_.replicate
          ? share_of(state.count, groups_.replicate->rank(), groups_.replicate->size())
          : ShareRange{0, state.count};
  return {state.begin + part.begin, state.begin + part.end};
}

std::vector<StatePiece> Executor::state(Holding which) {
  std::vector<StatePiece> pieces;
  const auto add_share = [&](const Place& place, const ShareState& share,
                             ShareRange range) {
    add_piece(pieces, place, place.name, TensorKind::kParameter, share.master,
              share.begin, range);
    for (size_t i = 0; i < share.states.size(); ++i)
      add_piece(pieces, place, moment_name(rule_.states()[i], place.name),
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

void Executor::refresh() {
  const c10::NoGradGuard no_grad;
  for (int i = 0; i < static_cast<int>(state_.buckets().size()); ++i) {
    BucketState& state = state_.buckets()[i];
    state_.publish(i, 0, state.count);
    if (schedule_.shard == 1 || schedule_.shard == 2) {
      const Tensor share = state.whole.narrow(0, state.begin, state.count).clone();
      groups_.shard->all_gather(state.whole, share).wait();
    }
    if (state.mirror) refresh_mirror(i);
    if (device_ && schedule_.shard < 3) device_->upload(i);
  }
  if (seal_) seal_->close_all();
}

void Executor::require_sound(const std::string& broken) const {
  if (broken.empty()) return;
  throw DamagedMemory(text("[engine] step ", step_ + 1, ": the memory of ", broken,
                           " has changed by itself on rank ", comm_.rank(),
                           "; its state is taken from elsewhere"));
}

// Nobody has voted on them, and the state is as it was: the step is made again.
void Executor::require_sound_gradients() const {
  std::string broken = gradients_.broken();
  for (int i = 0; broken.empty() && i < static_cast<int>(updated_.size()); ++i)
    if (state_.buckets()[i].trained) broken = gradients_.broken_sum(i);
  if (!broken.empty())
    throw CommError(text("[engine] step ", step_ + 1, ": ", broken,
                         " has changed by itself, as rank ", comm_.rank(),
                         " sees it; the step is made again"));
}

// Who has voted owes the step, and cannot make it of sums that have changed.
std::string Executor::damage() const {
  const bool owes = standing_.phase == Standing::Phase::kVoted ||
                    standing_.phase == Standing::Phase::kDecided;
  try {
    if (seal_) require_sound(seal_->broken());
    for (int i = 0; seal_ && owes && i < static_cast<int>(updated_.size()); ++i)
      if (state_.buckets()[i].trained && !updated_[i])
        require_sound(gradients_.broken_sum(i));
  } catch (const DamagedMemory& error) {
    return error.what();
  }
  return "";
}

void Executor::refresh_mirror(int bucket) {
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

std::string Executor::small_state() { return loss_scale_ ? loss_scale_->saved() : ""; }

void Executor::set_small_state(const std::string& text) {
  if (loss_scale_ && !text.empty()) loss_scale_->restore(text);
}

// Where a parameter and elements [begin, ...) of its bucket meet, which may be nowhere.
Tensor Executor::part_of(const Place& place, const Tensor& flat, int64_t begin) {
  const int64_t offset = place.offset - begin;
  const int64_t from = std::clamp<int64_t>(offset, 0, flat.numel());
  const int64_t to = std::clamp(offset + place.parameter.numel(), from, flat.numel());
  return flat.narrow(0, from, to - from);
}

// Shares as many as ranks are held once each: there is nothing to compare them with,
// mirrors apart. Masters are compared where they are memory of their own, and everyone
// updates all of what he holds: a bit of theirs may not show in the weights for long.
std::vector<Executor::Copy> Executor::copies() {
  std::vector<Copy> all = mirrored_copies();
  const auto add = [&](const std::string& name, const Tensor& tensor, int shares) {
    if (shares < comm_.size()) all.push_back({name, tensor, shares});
  };
  const int shares = groups_.shard->size();
  const bool masters = schedule_.precision.compute != at::kFloat && !fused_;
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

std::vector<Executor::Copy> Executor::mirrored_copies() {
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
      add(moment_name(rule_.states()[i], place.name), own.states[i], mirror.states[i]);
  }
  return all;
}

// Faults before an action, and what a damaged memory would do: a bit of the first
// element of some kind of memory is another. At each action it is another bit, or a
// second flip would undo the first.
void Executor::strike(int64_t index) {
  const uint32_t bit = 1u << (22 - index % 16);  // of a float32's fraction
  const auto flips = [&](std::string_view point) {
    return options_.faults->reach(point, comm_.rank(), index) == FaultPlan::Ask::kFlip;
  };
  const auto flip = [&](const Tensor& tensor) {
    if (!tensor.defined() || tensor.nbytes() < sizeof(uint32_t)) return;
    *static_cast<uint32_t*>(tensor.data_ptr()) ^= bit;
  };
  BucketState& bucket = state_.buckets().front();
  if (flips("engine.action")) flip(bucket.master);
  if (flips("engine.moment") && !bucket.states.empty()) flip(bucket.states.front());
  if (flips("engine.mirror") && bucket.mirror) flip(bucket.mirror->master);
  if (flips("engine.gradient")) {
    // Each time other memory, and another element of it.
    const auto all = gradients_.memory(0);
    const Tensor some = all[index % static_cast<int64_t>(all.size())].view({-1});
    const int64_t at = index * 1009 % some.numel() / 2 * 2;
    flip(some.narrow(0, at, some.numel() - at));
  }
}

// Everyone sees all hashes, so that all ranks come to the same end.
ReplicaReport Executor::compare_replicas() {
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
