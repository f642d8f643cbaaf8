// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/zip_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "cohort/core/error.h"
#include "cohort/core/memory.h"

namespace cohort {
namespace {

static_assert(std::endian::native == std::endian::little, "as zip is");

// Names and sizes are of PKWARE's APPNOTE.TXT, sections 4.3.7 to 4.3.16.
constexpr std::string_view kLocalMark("PK\x03\x04", 4), kEntryMark("PK\x01\x02", 4),
    kEndMark("PK\x05\x06", 4), kWideEndMark("PK\x06\x06", 4),
    kLocatorMark("PK\x06\x07", 4);
constexpr int64_t kLocalBytes = 30, kEntryBytes = 46, kEndBytes = 22,
                  kWideEndBytes = 56, kLocatorBytes = 20;
constexpr int64_t kLongestComment = 65'535;
// The directory's size: a record's name and places, for a million records.
constexpr int64_t kMostDirectory = 100'000'000;
// In a field that is too narrow: look among the extra fields.
constexpr uint32_t kWide = 0xffffffff;
constexpr uint16_t kWideField = 1;

[[noreturn]] void fail(const std::string& what) {
  throw CheckpointError(text("a zip file that cannot be read: ", what));
}

template <typename T>
T number(std::string_view bytes, size_t at) {
  T value;
  if (at + sizeof(T) > bytes.size()) fail("its directory ends too early");
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

int64_t wide(std::string_view bytes, size_t at) {
  const auto value = number<uint64_t>(bytes, at);
  if (value > uint64_t{1} << 62) fail("a size that no file has");
  return static_cast<int64_t>(value);
}

// The 64-bit fields of an entry, in their order, as far as it says that there are any.
class WideFields {
 public:
  explicit WideFields(std::string_view extra) {
    while (extra.size() >= 4) {
      const size_t size = number<uint16_t>(extra, 2);
      if (number<uint16_t>(extra, 0) == kWideField) {
        rest_ = extra.substr(4, size);
        return;
      }
      extra.remove_prefix(std::min(extra.size(), 4 + size));
    }
  }
  int64_t take(uint32_t narrow) {
    if (narrow != kWide) return narrow;
    const int64_t value = wide(rest_, 0);
    rest_.remove_prefix(8);
    return value;
  }

 private:
  std::string_view rest_;
};

}  // namespace

ZipFile::ZipFile(const std::string& path)
    : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  struct stat info {};
  if (!fd_ || ::fstat(fd_.get(), &info) != 0)
    throw CheckpointError(text("cannot open: ", std::strerror(errno)));
  if (!S_ISREG(info.st_mode)) fail("is not a regular file");
  bytes_ = info.st_size;
  read_directory(find_directory());
}

void ZipFile::read_at(int64_t offset, void* out, int64_t count) const {
  auto* bytes = static_cast<char*>(out);
  if (offset < 0 || count < 0 || count > bytes_ || offset > bytes_ - count)
    fail("truncated");
  while (count > 0) {
    const ssize_t n = ::pread(fd_.get(), bytes, count, offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw CheckpointError(text("cannot read: ", std::strerror(errno)));
    if (n == 0) fail("truncated while it is read");
    bytes += n;
    offset += n;
    count -= n;
  }
}

// It ends the file, but for a comment.
ZipFile::Directory ZipFile::find_directory() const {
  std::string tail(std::min(bytes_, kEndBytes + kLongestComment), '\0');
  const auto size = static_cast<int64_t>(tail.size());
  read_at(bytes_ - size, tail.data(), size);
  for (int64_t at = size - kEndBytes; at >= 0; --at) {
    const auto end = std::string_view(tail).substr(at);
    if (!end.starts_with(kEndMark)) continue;
    if (number<uint16_t>(end, 20) != end.size() - kEndBytes) continue;
    const Directory narrow{.begin = number<uint32_t>(end, 16),
                           .bytes = number<uint32_t>(end, 12),
                           .records = number<uint16_t>(end, 10)};
    if (narrow.begin == kWide || narrow.bytes == kWide || narrow.records == 0xffff)
      return wide_directory(bytes_ - size + at);
    return narrow;
  }
  fail("truncated, or no zip file: it has no directory");
}

ZipFile::Directory ZipFile::wide_directory(int64_t end) const {
  std::string locator(kLocatorBytes, '\0'), wide_end(kWideEndBytes, '\0');
  read_at(end - kLocatorBytes, locator.data(), kLocatorBytes);
  if (!locator.starts_with(kLocatorMark)) fail("its wide directory is missing");
  read_at(wide(locator, 8), wide_end.data(), kWideEndBytes);
  if (!wide_end.starts_with(kWideEndMark)) fail("its wide directory is missing");
  return {.begin = wide(wide_end, 48),
          .bytes = wide(wide_end, 40),
          .records = wide(wide_end, 32)};
}

void ZipFile::read_directory(const Directory& directory) {
  if (directory.bytes > kMostDirectory)
    fail(text("a directory of ", directory.bytes, " bytes; legal: at most ",
              kMostDirectory));
  std::string bytes(std::min(directory.bytes, bytes_), '\0');
  read_at(directory.begin, bytes.data(), directory.bytes);
  std::string_view rest = bytes;
  for (int64_t i = 0; i < directory.records; ++i) rest = add_record(rest);
  for (const auto& [name, record] : records_) {
    if (!name.ends_with("/data.pkl") && name != "data.pkl") continue;
    folder_ = name.substr(0, name.size() - std::strlen("data.pkl"));
    return;
  }
  fail("it has no data.pkl");
}

std::string_view ZipFile::add_record(std::string_view rest) {
  if (!rest.starts_with(kEntryMark)) fail("its directory ends too early");
  const size_t name_bytes = number<uint16_t>(rest, 28);
  const size_t extra_bytes = number<uint16_t>(rest, 30);
  const size_t whole =
      kEntryBytes + name_bytes + extra_bytes + number<uint16_t>(rest, 32);
  if (whole > rest.size()) fail("its directory ends too early");
  const std::string name(rest.substr(kEntryBytes, name_bytes));
  if (number<uint16_t>(rest, 10) != 0 || (number<uint16_t>(rest, 8) & 1) != 0)
    fail(text("'", name, "' is packed or encrypted; legal: as torch.save stores it"));
  WideFields fields(rest.substr(kEntryBytes + name_bytes, extra_bytes));
  const int64_t size = fields.take(number<uint32_t>(rest, 24));
  const int64_t stored = fields.take(number<uint32_t>(rest, 20));
  const int64_t header = fields.take(number<uint32_t>(rest, 42));
  if (size != stored || size > bytes_ || header > bytes_ - size)
    fail(text("'", name, "' has ", size, " bytes at byte ", header, " of a file of ",
              bytes_));
  total_ += size;
  if (total_ > bytes_)
    fail(text("its records have ", total_, " bytes up to '", name,
              "', more than the file, ", bytes_));
  if (!records_.emplace(name, Record{header, size}).second)
    fail(text("it has '", name, "' twice"));
  return rest.substr(whole);
}

const ZipFile::Record& ZipFile::record(const std::string& name) const {
  const auto found = records_.find(folder_ + name);
  if (found == records_.end()) fail(text("it has no '", folder_, name, "'"));
  return found->second;
}

int64_t ZipFile::size(const std::string& name) const { return record(name).bytes; }

void ZipFile::read(const std::string& name, char* out) const {
  const Record& wanted = record(name);
  std::string header(kLocalBytes, '\0');
  read_at(wanted.header, header.data(), kLocalBytes);
  if (!header.starts_with(kLocalMark))
    fail(text("'", folder_, name, "' is not where its directory says"));
  const int64_t skip =
      kLocalBytes + number<uint16_t>(header, 26) + number<uint16_t>(header, 28);
  read_at(wanted.header + skip, out, wanted.bytes);
}

std::string ZipFile::read(const std::string& name, int64_t most) const {
  const int64_t bytes = size(name);
  if (bytes > most)
    fail(text("'", folder_, name, "' has ", bytes, " bytes; legal: at most ", most));
  std::string out(bytes, '\0');
  read(name, out.data());
  return out;
}

}  // namespace cohort
