// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/core/error.h"

namespace cohort {

// Failures throw the error class of `kind`, since whether a missing file is the
// user's, the data's or the checkpoint's trouble is known by the caller alone. The
// message has the path and the system's own words.

// The whole file as bytes. One that has more than `most` of them, or more than memory
// can hold, is refused before it is read.
std::string read_file(const std::filesystem::path& path,
                      ErrorKind kind = ErrorKind::kData,
                      int64_t most = std::numeric_limits<int64_t>::max());

// Replaces the file: a reader of `path`, also after a crash or a power cut at any
// instant, finds the old bytes or the new ones, whole. Writes a file without a name in
// the same folder (or one beside it, where the file system has no such files), syncs,
// names it, syncs the folder. On failure nothing is left behind. A link is followed and
// stays; what is no regular file (a device, a pipe) is refused and stays as well.
void write_file_atomically(const std::filesystem::path& path, std::string_view bytes,
                           ErrorKind kind = ErrorKind::kData);
// The same from pieces that lie apart, without joining them in memory first.
void write_file_atomically(const std::filesystem::path& path,
                           std::span<const std::string_view> pieces, ErrorKind kind);

// Makes a folder and those above it; an existing one is fine. The names of new ones
// last from here on: each is synced into the folder above it.
void make_folder(const std::filesystem::path& path, ErrorKind kind = ErrorKind::kData);

// What that has to make: the folders that are missing on the way to `path`, outermost
// first.
std::vector<std::filesystem::path> missing_folders(const std::filesystem::path& path);

}  // namespace cohort
