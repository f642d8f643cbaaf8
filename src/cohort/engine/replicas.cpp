// SPDX-License-Identifier: Apache-2.0
// Replicas that drift apart: a flipped bit, a kernel that is not deterministic.
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
      Tensor own = at::full({1}, hash_of(place.parameter), at::kLong);
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
