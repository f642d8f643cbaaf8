// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/retention.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "cohort/core/error.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;

std::vector<const CheckpointInfo*> best_first(
    const std::vector<const CheckpointInfo*>& usable, const Retention& retention) {
  std::vector<std::pair<double, const CheckpointInfo*>> ranked;
  for (const auto* info : usable) {
    const auto& metrics = info->manifest.run.metrics;
    const auto found = metrics.find(retention.metric);
    if (found == metrics.end() || std::isnan(found->second)) continue;
    const bool lower = retention.better == Retention::Better::kLower;
    ranked.emplace_back(lower ? found->second : -found->second, info);
  }
  // Among equals the older one comes first: it was the best before the others.
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<const CheckpointInfo*> out;
  for (const auto& [value, info] : ranked) out.push_back(info);
  return out;
}

}  // namespace

std::vector<std::string> superfluous(std::span<const CheckpointInfo> checkpoints,
                                     const Retention& retention) {
  if (retention.last <= 0) return {};
  std::vector<const CheckpointInfo*> usable;
  for (const auto& info : checkpoints)
    if (info.trouble.empty()) usable.push_back(&info);
  std::sort(usable.begin(), usable.end(),
            [](const auto* a, const auto* b) { return a->step < b->step; });

  std::set<const CheckpointInfo*> kept;
  const auto keep_first = [&](const auto& list, int64_t count) {
    for (const auto* info : list)
      if (count-- > 0) kept.insert(info);
  };
  keep_first(std::vector(usable.rbegin(), usable.rend()), retention.last);
  keep_first(best_first(usable, retention), retention.best);
  std::vector<std::string> out;
  for (const auto* info : usable) {
    const bool marked =
        retention.every_steps > 0 && info->step % retention.every_steps == 0;
    if (!marked && !kept.count(info)) out.push_back(info->path);
  }
  return out;
}

void remove_checkpoint(const std::string& path, Disk& disk) {
  const fs::path old = path;
  const fs::path gone =
      old.parent_path() / text(".", old.filename().string(), ".removing");
  disk.remove(gone);
  disk.rename(old, gone);
  disk.sync_folder(old.parent_path());
  disk.remove(gone);
}

void clean_leftovers(const std::string& root, Disk& disk) {
  std::error_code code;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(root, code))
    found.push_back(entry.path());
  for (const auto& path : found) {
    const std::string name = path.filename().string();
    if (!name.starts_with(".step-")) continue;
    const fs::path visible = path.parent_path() / path.stem().string().substr(1);
    if (path.extension() == ".replaced" && !fs::exists(visible, code))
      disk.rename(path, visible);
    else
      disk.remove(path);
  }
}

}  // namespace cohort
