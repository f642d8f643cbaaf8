// SPDX-License-Identifier: Apache-2.0
#include "cli/run_folders.h"

#include <unistd.h>

#include <filesystem>

#include "cohort/comm/world.h"
#include "cohort/core/error.h"
#include "cohort/core/file.h"
#include "cohort/train/backup.h"

namespace cohort::cli {

void require_writable(std::string_view flag, const std::string& path) {
  if (path.empty()) return;
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored) ||
      ::access(folder.c_str(), W_OK) != 0 ||
      std::filesystem::is_directory(path, ignored))
    throw ConfigError(text("[train] ", flag, " ", path,
                           ": cannot be written; legal: a file in a folder that is "
                           "there and writable"));
}

void require_folder(std::string_view key, const std::string& path) {
  if (path.empty()) return;
  std::error_code trouble;
  try {
    make_folder(path, ErrorKind::kConfig);
    if (std::filesystem::is_directory(path, trouble) &&
        ::access(path.c_str(), W_OK) == 0)
      return;
  } catch (const ConfigError&) {
  }
  throw ConfigError(text("[train] ", key, "=", path,
                         ": cannot be written; legal: a folder that is writable, or "
                         "can be made"));
}

void require_replaceable(std::string_view flag, const std::string& path) {
  require_writable(flag, path);
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) &&
      !std::filesystem::is_regular_file(path, ignored))
    throw ConfigError(
        text("[train] ", flag, " ", path,
             ": is no regular file; legal: a new file, or one to replace"));
}

std::vector<FolderLock> lock_folders(const std::string& saved, const std::string& out) {
  std::vector<FolderLock> locks;
  if (!saved.empty()) locks.emplace_back(saved);
  if (out.empty()) return locks;
  make_folder(out, ErrorKind::kConfig);
  if (saved.empty() || !std::filesystem::equivalent(saved, out))
    locks.emplace_back(out);
  return locks;
}

void begin_afresh(const BackupOptions& backup, const std::string& history) {
  if (backup.resume) return;
  const std::string why = backup.dir.empty() ? "" : why_not_fresh(backup.dir);
  if (!why.empty()) throw ConfigError(why);
  if (!history.empty()) std::filesystem::remove(history);
}

std::vector<FolderLock> take_folders_as_rank(const ResolvedRun& run) {
  const World world = world_from_env();
  if (world.rank != 0) return {};
  auto locks = lock_folders(run.trainer.backup.dir, run.out);
  if (world.generation == 0) begin_afresh(run.trainer.backup, run.trainer.history);
  return locks;
}

void write_config(const std::string& out, const Config& config) {
  if (out.empty()) return;
  make_folder(out, ErrorKind::kConfig);
  write_file_atomically(out + "/config.json", config.to_json() + "\n",
                        ErrorKind::kConfig);
}

}  // namespace cohort::cli
