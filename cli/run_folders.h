// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cohort/core/folder_lock.h"
#include "cohort/train/resolved_run.h"

namespace cohort::cli {

// ConfigError for what could not be written at the end of a long run: `--flag` names a
// file in a folder that is there and writable.
void require_writable(std::string_view flag, const std::string& path);
// The same for weights, which are written beside and renamed over a regular file, or
// none.
void require_replaceable(std::string_view flag, const std::string& path);
// A folder, which is made if it is not there.
void require_folder(std::string_view key, const std::string& path);

// Takes the folders that a run writes to, its checkpoints and the rest (empty: none),
// for itself alone. ConfigError if another run has one of them.
std::vector<FolderLock> lock_folders(const std::string& saved, const std::string& out);

// A run that does not go on with another begins without what such a run has left.
// Decided once, by the process that holds the locks: ranks of a later world could not
// tell. ConfigError if there are checkpoints, which nobody removes unasked.
void begin_afresh(const BackupOptions& backup, const std::string& history);

// Both, by the first rank of a run whose agent does not: nothing on the others.
std::vector<FolderLock> take_folders_as_rank(const ResolvedRun& run);

// config.json in the folder of a run (empty: it has none).
void write_config(const std::string& out, const Config& config);

}  // namespace cohort::cli
