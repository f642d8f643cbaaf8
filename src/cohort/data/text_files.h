// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace cohort {

// Text as files, each of which is a document.
struct TextFiles {
  std::string name;  // for people: "bible-kjv", or a path
  std::vector<std::filesystem::path> files;

  // Follows from names, sizes and times: other files, or changed ones, have another.
  uint64_t fingerprint() const;
};

// The *.txt and *.md files below a folder, sorted by path, or one file of any name.
// DataError if there is none, or no text in them.
TextFiles find_text(const std::string& path);

// The King James Bible, one verse per line, as Debian's package bible-kjv prints it:
// printed once, and kept in `cache`. DataError that says what to install or to set
// instead.
TextFiles bible_text(const std::filesystem::path& cache);

// Calls `use` with the documents one after another: those lines that are for training,
// and those for validation, which are the last tenth of all lines (at least one). A
// document in which the border lies has both; others have one part that is empty.
struct TextParts {
  std::string_view train, valid;
};
void for_each_document(const TextFiles& text,
                       const std::function<void(const TextParts& parts)>& use);

}  // namespace cohort
