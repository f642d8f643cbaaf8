// SPDX-License-Identifier: Apache-2.0
// Where along the pipeline buckets are used.
#include <algorithm>
#include <set>

#include "cohort/step/buckets.h"

namespace cohort {

bool is_tied(const Bucket& bucket) { return bucket.sum.has(Axis::kPipe); }

std::vector<int> uses_at(const Schedule& schedule, int bucket, int place) {
  std::vector<int> uses = schedule.buckets[bucket].blocks;
  std::sort(uses.begin(), uses.end());
  std::erase_if(uses, [&](int b) { return schedule.place_of_block(b) != place; });
  return uses;
}

bool is_at(const Schedule& schedule, int bucket, int place) {
  return std::ranges::any_of(schedule.buckets[bucket].blocks, [&](int b) {
    return schedule.place_of_block(b) == place;
  });
}

std::vector<int> places_of(const Schedule& schedule, const Bucket& bucket) {
  std::set<int> places;
  for (const int b : bucket.blocks) places.insert(schedule.place_of_block(b));
  return {places.begin(), places.end()};
}

bool is_mirrored(const Schedule& schedule, int bucket) {
  return has_mirrors(schedule) &&
         places_of(schedule, schedule.buckets[bucket]).size() == 1;
}

int gradients_at(const Schedule& schedule, int bucket, int place) {
  if (!schedule.exact || !is_tied(schedule.buckets[bucket])) return 1;
  return std::max(1, static_cast<int>(uses_at(schedule, bucket, place).size()));
}

int most_gradients(const Schedule& schedule, int bucket) {
  int most = 1;
  for (const int place : places_of(schedule, schedule.buckets[bucket]))
    most = std::max(most, gradients_at(schedule, bucket, place));
  return most;
}

std::vector<int> last_to_add(const Schedule& schedule,
                             std::span<const std::vector<int>> uses, int place) {
  std::vector<int> last(schedule.buckets.size(), kNone);
  for (int b = static_cast<int>(uses.size()) - 1; b >= 0; --b)
    for (int bucket : uses[b])
      if (schedule.place_of_block(b) == place) last[bucket] = b;
  return last;
}

}  // namespace cohort
