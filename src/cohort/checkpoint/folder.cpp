// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <iomanip>

#include "cohort/checkpoint/checkpoint.h"
#include "cohort/core/error.h"
#include "cohort/core/parse.h"

namespace cohort {
namespace {

constexpr std::string_view kStepPrefix = "step-";
constexpr size_t kDigits = 8;

std::vector<CheckpointInfo> by_step(const std::string& root) {
  std::vector<CheckpointInfo> found;
  std::error_code code;
  for (const auto& entry : std::filesystem::directory_iterator(root, code)) {
    const auto step = step_of_folder(entry.path().filename().string());
    if (!step || !entry.is_directory(code)) continue;
    CheckpointInfo info;
    info.path = entry.path().string();
    info.step = *step;
    found.push_back(std::move(info));
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.step < b.step; });
  return found;
}

void look_into(CheckpointInfo& info) {
  try {
    info.manifest = Checkpoint(info.path).manifest();
    if (info.manifest.run.step != info.step)
      info.trouble = text("[checkpoint.read] ", info.path, ": holds step ",
                          info.manifest.run.step);
  } catch (const CheckpointError& error) {
    info.trouble = error.what();
  }
}

}  // namespace

std::string step_folder(int64_t step) {
  std::string digits = std::to_string(step);
  if (digits.size() < kDigits) digits.insert(0, kDigits - digits.size(), '0');
  return std::string(kStepPrefix) + digits;
}

std::string shard_name(int64_t index, int64_t count) {
  return text("model-", std::setfill('0'), std::setw(5), index + 1, "-of-",
              std::setw(5), count, ".safetensors");
}

std::optional<int64_t> step_of_folder(const std::string& name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  const auto step = try_parse_int(name.substr(kStepPrefix.size()));
  if (!step || *step < 0 || step_folder(*step) != name) return std::nullopt;
  return step;
}

std::vector<CheckpointInfo> list_checkpoints(const std::string& root) {
  auto found = by_step(root);
  for (auto& info : found) look_into(info);
  return found;
}

std::optional<std::string> latest_checkpoint(const std::string& root,
                                             std::vector<std::string>* troubles) {
  auto found = by_step(root);
  for (auto info = found.rbegin(); info != found.rend(); ++info) {
    look_into(*info);
    if (info->trouble.empty()) return info->path;
    if (troubles) troubles->push_back(info->trouble);
  }
  return std::nullopt;
}

}  // namespace cohort
