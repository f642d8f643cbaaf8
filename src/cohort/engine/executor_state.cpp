// SPDX-License-Identifier: Apache-2.0
// The state of a run as a whole: how it is set up, its weights, and replicas that drift
// apart (a flipped bit, a kernel that is not deterministic).
#include <c10/core/GradMode.h>

#include <map>

#include "cohort/core/error.h"
#include "cohort/core/hash.h"
#include "cohort/engine/executor.h"

namespace cohort {
namespace {

int64_t hash_of(const Tensor& tensor) {
  const Tensor flat = tensor.detach().contiguous();
  return static_cast<int64_t>(
      hash64(std::string_view(static_cast<const char*>(flat.const_data_ptr()),
                              static_cast<size_t>(flat.nbytes()))));
}

// The member that differs from most; -1 if all are equal.
int odd_one(const int64_t* hashes, int size) {
  std::map<int64_t, int> count;
  for (int r = 0; r < size; ++r) ++count[hashes[r]];
  if (count.size() == 1) return -1;
  int odd = 0;
  for (int r = 0; r < size; ++r)
    if (count[hashes[r]] <= count[hashes[odd]]) odd = r;
  return odd;
}

}  // namespace

void Executor::make_groups() {
  if (schedule_.groups.size() < 3) return;
  shard_comm_ = comm_.split(schedule_.groups[1].first_of(comm_.rank()));
  replicate_comm_ = comm_.split(schedule_.groups[2].first_of(comm_.rank()));
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
  last_to_add_.assign(state_.buckets().size(), kNone);
  std::vector<bool> seen(places.size(), false);
  bool trained = false;
  for (int b = 0; b < static_cast<int>(chain_.blocks.size()); ++b) {
    input_has_gradient_.push_back(trained);
    for (int p : state_.places_of_block(b)) {
      if (seen[p]) shared_[p] = true;
      seen[p] = true;
      trained |= places[p].parameter.requires_grad();
      int& last = last_to_add_[places[p].bucket];
      if (last == kNone) last = b;
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

// At shard level 3 only hybrid runs hold anything twice: the shares of replicas.
void Executor::check_replicas(int64_t step) {
  Communicator* group = schedule_.shard == 3 ? groups_.replicate : &comm_;
  if (!group || group->size() == 1) return;
  const auto& buckets = state_.buckets();
  Tensor mine = at::empty({static_cast<int64_t>(buckets.size())}, at::kLong);
  for (size_t i = 0; i < buckets.size(); ++i)
    mine[static_cast<int64_t>(i)] =
        hash_of(schedule_.shard == 3 ? buckets[i].travels : buckets[i].whole);
  Tensor all = at::empty({group->size(), mine.numel()}, at::kLong);
  group->all_gather(all, mine).wait();
  for (int64_t i = 0; i < mine.numel(); ++i) {
    const Tensor column = all.select(1, i).contiguous();
    const int odd = odd_one(column.const_data_ptr<int64_t>(), group->size());
    if (odd < 0) continue;
    std::string where = text("bucket ", i);
    for (const auto& place : state_.places()) {
      if (place.bucket != i || schedule_.shard == 3) continue;
      const Tensor mine_here = FlatState::view(buckets[i].whole, place);
      Tensor own = at::full({1}, hash_of(mine_here), at::kLong);
      Tensor hashes = at::empty({group->size()}, at::kLong);
      group->all_gather(hashes, own).wait();
      if (odd_one(hashes.const_data_ptr<int64_t>(), group->size()) < 0) continue;
      where = place.name;
      break;
    }
    throw Error(ErrorKind::kBug,
                text("[engine] step ", step, ": replicas drifted apart: ", where,
                     " of rank ", odd, " differs from the others'"));
  }
}

}  // namespace cohort
