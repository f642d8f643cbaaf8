// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/buckets.h"

#include <algorithm>
#include <deque>
#include <map>

#include "cohort/step/generator.h"
#include "cohort/step/slice_tree.h"

namespace cohort {
namespace {

constexpr int64_t kFloatBytes = 4;

bool is_frozen(const BlockSpec& block, size_t parameter) {
  return parameter < block.frozen.size() && block.frozen[parameter];
}

// The first block that has a parameter owns it.
std::map<std::string, int> find_owners(std::span<const BlockSpec> blocks) {
  std::map<std::string, int> owners;
  for (int b = 0; b < static_cast<int>(blocks.size()); ++b)
    for (const auto& parameter : blocks[b].parameters)
      owners.emplace(parameter.name, b);
  return owners;
}

int64_t owned_numel(const BlockSpec& spec, int block, bool trained,
                    const std::map<std::string, int>& owners) {
  int64_t sum = 0;
  for (size_t p = 0; p < spec.parameters.size(); ++p)
    if (is_frozen(spec, p) != trained && owners.at(spec.parameters[p].name) == block)
      sum += padded(spec.parameters[p].numel());
  return sum;
}

int64_t largest_bucket(const Schedule& schedule, bool (*counts)(const Bucket&)) {
  int64_t largest = 0;
  for (const auto& bucket : schedule.buckets)
    if (counts(bucket)) largest = std::max(largest, bucket.numel);
  return largest;
}

int64_t evenly(int64_t numel, int parts) {
  const int64_t unit = kChunk * parts;
  return (numel + unit - 1) / unit * unit;
}

void add_buckets(std::span<const BlockSpec> blocks, const BucketOptions& options,
                 bool trained, std::vector<Bucket>& buckets) {
  const size_t first = buckets.size();
  const auto owners = find_owners(blocks);
  for (int b = static_cast<int>(blocks.size()) - 1; b >= 0; --b) {
    const int64_t numel = owned_numel(blocks[b], b, trained, owners);
    if (numel == 0) continue;
    const auto dtype = blocks[b].parameters.front().dtype;
    const bool fits =
        !options.one_a_block && buckets.size() > first &&
        buckets.back().dtype == dtype &&
        (buckets.back().numel + numel) * kFloatBytes <= options.limit_bytes;
    if (!fits) buckets.push_back({.trained = trained, .dtype = dtype});
    buckets.back().blocks.push_back(b);
    buckets.back().numel += numel;
  }
  for (size_t i = first; i < buckets.size(); ++i)
    buckets[i].numel = evenly(buckets[i].numel, options.parts);
}

int shard_ranks(const Schedule& schedule) { return schedule.mesh.size(Axis::kCut); }

int most_slices(const Schedule& schedule) {
  return schedule.mesh.rounds(schedule.slices);
}

}  // namespace

std::vector<Bucket> make_buckets(std::span<const BlockSpec> blocks,
                                 const BucketOptions& options) {
  std::vector<Bucket> buckets;
  add_buckets(blocks, options, /*trained=*/true, buckets);
  add_buckets(blocks, options, /*trained=*/false, buckets);
  return buckets;
}

std::vector<std::vector<int>> bucket_uses(std::span<const BlockSpec> blocks,
                                          std::span<const Bucket> buckets) {
  const auto owners = find_owners(blocks);
  std::map<std::string, int> bucket_of;
  for (int i = 0; i < static_cast<int>(buckets.size()); ++i)
    for (int b : buckets[i].blocks)
      for (size_t p = 0; p < blocks[b].parameters.size(); ++p)
        if (is_frozen(blocks[b], p) != buckets[i].trained &&
            owners.at(blocks[b].parameters[p].name) == b)
          bucket_of.emplace(blocks[b].parameters[p].name, i);
  std::vector<std::vector<int>> uses(blocks.size());
  for (size_t b = 0; b < blocks.size(); ++b) {
    for (const auto& parameter : blocks[b].parameters)
      uses[b].push_back(bucket_of.at(parameter.name));
    std::sort(uses[b].begin(), uses[b].end());
    uses[b].erase(std::unique(uses[b].begin(), uses[b].end()), uses[b].end());
  }
  return uses;
}

std::vector<int> last_to_add(std::span<const std::vector<int>> uses, size_t buckets) {
  std::vector<int> last(buckets, kNone);
  for (int b = static_cast<int>(uses.size()) - 1; b >= 0; --b)
    for (int bucket : uses[b]) last[bucket] = b;
  return last;
}

int assign_slots(std::span<const std::vector<int>> uses, std::vector<Bucket>& buckets) {
  const std::vector<int> last = last_to_add(uses, buckets.size());
  std::vector<bool> has_slot(buckets.size(), false);
  std::deque<int> retired;
  int slots = 0;
  for (int b = static_cast<int>(uses.size()) - 1; b >= 0; --b) {
    for (int i : uses[b]) {
      if (!buckets[i].trained || has_slot[i]) continue;
      has_slot[i] = true;
      const bool again = retired.size() >= 2;
      buckets[i].slot = again ? retired.front() : slots++;
      if (again) retired.pop_front();
    }
    for (int i : uses[b])
      if (buckets[i].trained && last[i] == b) retired.push_back(buckets[i].slot);
  }
  return slots;
}

int64_t state_bytes(const Schedule& schedule, const Bucket& bucket,
                    int optimizer_states) {
  const int64_t numel = bucket.numel;
  const int64_t share = numel / (schedule.shard > 0 ? shard_ranks(schedule) : 1);
  const bool wide = schedule.precision.compute == at::kFloat;
  int64_t bytes = 0;
  if (schedule.shard < 3) bytes += numel * size_of(schedule.precision.compute);
  if (schedule.shard == 3 || !wide) bytes += share * kFloatBytes;  // masters
  if (schedule.shard == 3 && !wide)                                // what is gathered
    bytes += share * size_of(schedule.precision.compute);
  if (!bucket.trained) return bytes;
  bytes += share * kFloatBytes * optimizer_states;
  const bool several = schedule.exact || most_slices(schedule) > 1;
  const bool kept = schedule.keeps_sums || (several && schedule.shard > 1);
  if (schedule.shard > 0 && shard_ranks(schedule) > 1 && kept)
    bytes += share * size_of(sum_type(schedule));
  return bytes;
}

int64_t mirror_bytes(const Schedule& schedule, const Bucket& bucket,
                     int optimizer_states) {
  if (!has_mirrors(schedule)) return 0;
  const int64_t share = bucket.numel / shard_ranks(schedule);
  int64_t bytes = share * kFloatBytes;  // masters
  if (bucket.trained)
    bytes += share * (kFloatBytes * optimizer_states + size_of(sum_type(schedule)));
  return bytes;
}

at::ScalarType sum_type(const Schedule& schedule) {
  const bool several = schedule.exact || most_slices(schedule) > 1;
  return several ? schedule.precision.accumulate : schedule.precision.reduce;
}

int64_t gathered_bytes(const Schedule& schedule, int bucket) {
  if (schedule.buckets[bucket].joined) return 0;
  return largest_bucket(schedule, [](const Bucket&) { return true; }) *
         size_of(schedule.precision.compute);
}

int64_t gradient_bytes(const Schedule& schedule, const Bucket& bucket) {
  if (schedule.shard > 1 && shard_ranks(schedule) > 1)
    return largest_bucket(schedule, [](const Bucket& b) { return b.trained; }) *
           size_of(schedule.precision.compute);
  const int64_t leaf = bucket.numel * size_of(schedule.precision.compute);
  const bool wide = schedule.precision.compute == schedule.precision.accumulate;
  const int64_t sum = bucket.numel * size_of(schedule.precision.accumulate);
  if (schedule.exact) {
    int most = 1;
    for (const int rank : schedule.mesh.members(0, kDataAxes))
      most = std::max(most, buffers_for(schedule.mesh.slices(rank, schedule.slices),
                                        schedule.slices));
    return wide ? most * sum : leaf + std::max(1, most - 1) * sum;
  }
  return wide || most_slices(schedule) == 1 ? leaf : leaf + sum;
}

}  // namespace cohort
