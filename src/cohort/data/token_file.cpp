// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/token_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "cohort/core/error.h"
#include "cohort/core/file.h"
#include "cohort/core/unique_fd.h"

namespace cohort {
namespace {

constexpr int32_t kTokenMagic = 20240520;
constexpr int32_t kTokenVersion = 1;
constexpr int64_t kTokenBytes = sizeof(uint16_t);

using TokenHeader = std::array<int32_t, 256>;

[[noreturn]] void fail_tokens(const std::string& path, const std::string& what) {
  throw DataError(text("[data.tokens] ", path, ": ", what));
}

int64_t require_tokens(const std::string& path, const UniqueFd& file) {
  struct stat found {};
  if (!file || ::fstat(file.get(), &found) != 0)
    fail_tokens(path, std::strerror(errno));
  if (!S_ISREG(found.st_mode))
    fail_tokens(path, "is no regular file; expected 16-bit tokens");
  if (found.st_size % kTokenBytes != 0)
    fail_tokens(path, text("has ", found.st_size,
                           " bytes; expected an even number: tokens have 16 bits"));
  return found.st_size;
}

// Where the tokens begin. No file of plain GPT-2 tokens begins as a header does: its
// first number would be the token 55432, beyond their vocabulary.
int64_t tokens_behind_header(const std::string& path, const void* pages,
                             int64_t bytes) {
  TokenHeader header{};
  std::memcpy(header.data(), pages, std::min<size_t>(sizeof header, bytes));
  if (header[0] != kTokenMagic) return 0;
  if (bytes < static_cast<int64_t>(sizeof header))
    fail_tokens(path, text("ends at byte ", bytes, ", within its header of ",
                           sizeof header, " bytes"));
  if (header[1] != kTokenVersion)
    fail_tokens(path, text("at byte 4: version ", header[1], "; expected ",
                           kTokenVersion, ", 16-bit tokens"));
  const int64_t found = (bytes - static_cast<int64_t>(sizeof header)) / kTokenBytes;
  if (header[2] != found)
    fail_tokens(path, text("at byte 8: ", header[2], " tokens; the file has ", found));
  return sizeof header;
}

}  // namespace

TokenFile::TokenFile(const std::string& path) : path_(path) {
  // A pipe would be waited for.
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  bytes_ = require_tokens(path, file);
  if (bytes_ == 0) return;
  void* const pages = ::mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ,
                             MAP_SHARED, file.get(), 0);
  if (pages == MAP_FAILED) fail_tokens(path, std::strerror(errno));
  try {
    tokens_at_ = tokens_behind_header(path, pages, bytes_);
  } catch (...) {
    ::munmap(pages, static_cast<size_t>(bytes_));
    throw;
  }
  pages_ = pages;
}

TokenFile::~TokenFile() {
  if (pages_) ::munmap(pages_, static_cast<size_t>(bytes_));
}

TokenFile::TokenFile(TokenFile&& other) noexcept
    : path_(std::move(other.path_)),
      pages_(std::exchange(other.pages_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      tokens_at_(std::exchange(other.tokens_at_, 0)) {}

std::span<const uint16_t> TokenFile::tokens() const {
  const auto* const begin = static_cast<const char*>(pages_) + tokens_at_;
  return {reinterpret_cast<const uint16_t*>(begin),
          static_cast<size_t>((bytes_ - tokens_at_) / kTokenBytes)};
}

void TokenFile::require_below(int64_t vocabulary) const {
  const auto all = tokens();
  const auto bad =
      std::ranges::find_if(all, [&](uint16_t token) { return token >= vocabulary; });
  if (bad == all.end()) return;
  fail_tokens(path_, text("token ", bad - all.begin(), " is ", *bad, "; legal: 0 to ",
                          vocabulary - 1, ", the vocabulary (data.vocab)"));
}

void write_token_file(const std::string& path, std::span<const uint16_t> tokens) {
  if (tokens.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max()))
    fail_tokens(path, text(tokens.size(), " tokens; a file has at most ",
                           std::numeric_limits<int32_t>::max()));
  const TokenHeader header{kTokenMagic, kTokenVersion,
                           static_cast<int32_t>(tokens.size())};
  const std::string_view pieces[] = {
      {reinterpret_cast<const char*>(header.data()), sizeof header},
      {reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes()}};
  write_file_atomically(path, pieces, ErrorKind::kData);
}

}  // namespace cohort
