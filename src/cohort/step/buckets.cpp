// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/buckets.h"

#include <algorithm>
#include <map>
#include <set>

#include "cohort/step/generator.h"

namespace cohort {
namespace {

constexpr int64_t kFloatBytes = 4;

bool is_frozen(const BlockSpec& block, size_t parameter) {
  return parameter < block.frozen.size() && block.frozen[parameter];
}

// By parameter: blocks, first to last.
std::map<std::string, std::vector<int>> find_users(std::span<const BlockSpec> blocks) {
  std::map<std::string, std::vector<int>> users;
  for (int b = 0; b < static_cast<int>(blocks.size()); ++b)
    for (const auto& parameter : blocks[b].parameters) {
      auto& of = users[parameter.name];
      if (of.empty() || of.back() != b) of.push_back(b);
    }
  return users;
}

int64_t numel_of(const BlockSpec& spec, bool trained, const std::vector<int>& users,
                 const std::map<std::string, std::vector<int>>& all) {
  int64_t sum = 0;
  for (size_t p = 0; p < spec.parameters.size(); ++p)
    if (is_frozen(spec, p) != trained && all.at(spec.parameters[p].name) == users)
      sum += padded(spec.parameters[p].numel());
  return sum;
}

int64_t evenly(int64_t numel, int parts) {
  const int64_t unit = kChunk * parts;
  return (numel + unit - 1) / unit * unit;
}

bool begins_stage(std::span<const Stage> stages, int block) {
  return std::ranges::any_of(
      stages, [=](const Stage& stage) { return stage.blocks.front() == block; });
}

// One for each set of blocks.
void add_tied(std::span<const BlockSpec> blocks, bool trained,
              const std::map<std::string, std::vector<int>>& users,
              std::vector<Bucket>& buckets) {
  std::set<std::vector<int>> done;
  for (const auto& block : blocks)
    for (const auto& parameter : block.parameters) {
      const auto& those = users.at(parameter.name);
      if (those.size() < 2 || !done.insert(those).second) continue;
      const int64_t numel = numel_of(blocks[those[0]], trained, those, users);
      if (numel == 0) continue;
      buckets.push_back({.blocks = those,
                         .numel = numel,
                         .trained = trained,
                         .dtype = parameter.dtype,
                         .sum = kDataAxes | AxisSet{Axis::kPipe}});
    }
}

void add_buckets(std::span<const BlockSpec> blocks, const BucketOptions& options,
                 bool trained, std::vector<Bucket>& buckets) {
  const size_t first = buckets.size();
  const auto users = find_users(blocks);
  bool opens = true;  // the next block has a new one
  for (int b = static_cast<int>(blocks.size()) - 1; b >= 0; --b) {
    opens |= begins_stage(options.stages, b + 1);
    const int64_t numel = numel_of(blocks[b], trained, {b}, users);
    if (numel == 0) continue;
    const auto dtype = blocks[b].parameters.front().dtype;
    const bool fits =
        !options.one_a_block && !opens && buckets.back().dtype == dtype &&
        (buckets.back().numel + numel) * kFloatBytes <= options.limit_bytes;
    if (!fits) buckets.push_back({.trained = trained, .dtype = dtype});
    opens = false;
    buckets.back().blocks.push_back(b);
    buckets.back().numel += numel;
  }
  add_tied(blocks, trained, users, buckets);
  for (size_t i = first; i < buckets.size(); ++i)
    buckets[i].numel = evenly(buckets[i].numel, options.parts);
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
  const auto users = find_users(blocks);
  std::map<std::string, int> bucket_of;
  for (int i = 0; i < static_cast<int>(buckets.size()); ++i)
    for (int b : buckets[i].blocks)
      for (size_t p = 0; p < blocks[b].parameters.size(); ++p) {
        const auto& those = users.at(blocks[b].parameters[p].name);
        const bool here =
            is_tied(buckets[i]) ? those == buckets[i].blocks : those.size() == 1;
        if (here && is_frozen(blocks[b], p) != buckets[i].trained)
          bucket_of.emplace(blocks[b].parameters[p].name, i);
      }
  std::vector<std::vector<int>> uses(blocks.size());
  for (size_t b = 0; b < blocks.size(); ++b) {
    for (const auto& parameter : blocks[b].parameters)
      uses[b].push_back(bucket_of.at(parameter.name));
    std::sort(uses[b].begin(), uses[b].end());
    uses[b].erase(std::unique(uses[b].begin(), uses[b].end()), uses[b].end());
  }
  return uses;
}

}  // namespace cohort
