// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace cohort {

// Tokens of 16 bits in a file that is mapped, so that all ranks of a node share its
// pages. Two forms are read: that of llm.c, with a header of 256 int32 (20240520, 1,
// number of tokens), and that of nanoGPT, tokens and nothing else.
//
// Failure: DataError that names the file, what it has and what was expected.
// Thread safety: immutable. The file must not be cut short while it is in use.
class TokenFile {
 public:
  explicit TokenFile(const std::string& path);
  ~TokenFile();
  TokenFile(TokenFile&& other) noexcept;
  TokenFile& operator=(TokenFile&&) = delete;

  const std::string& path() const { return path_; }
  bool has_header() const { return tokens_at_ > 0; }
  std::span<const uint16_t> tokens() const;

  // DataError with the first token that is not below `vocabulary`, and its place.
  void require_below(int64_t vocabulary) const;

 private:
  std::string path_;
  void* pages_ = nullptr;  // null: an empty file
  int64_t bytes_ = 0;
  int64_t tokens_at_ = 0;  // byte
};

// Writes llm.c's form, whole or not at all. DataError.
void write_token_file(const std::string& path, std::span<const uint16_t> tokens);

}  // namespace cohort
