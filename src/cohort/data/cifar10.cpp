// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/cifar10.h"

#include <ATen/ATen.h>

#include <cstring>
#include <filesystem>
#include <vector>

#include "cohort/core/error.h"
#include "cohort/data/gzip.h"

namespace cohort {
namespace {

constexpr int kClasses = 10;
constexpr int64_t kPixels = 3 * 32 * 32;
constexpr int64_t kRecord = 1 + kPixels;
constexpr const char* kFolder = "cifar-10-batches-bin";  // as the archive unpacks

[[noreturn]] void fail_cifar(const std::string& what) {
  throw DataError("[data.cifar10] " + what);
}

std::vector<std::string> file_names(Split split) {
  if (split == Split::kTest) return {"test_batch.bin"};
  std::vector<std::string> names;
  for (int i = 1; i <= 5; ++i) names.push_back(text("data_batch_", i, ".bin"));
  return names;
}

std::string find_file(const std::string& dir, const std::string& name) {
  constexpr const char* expected =
      "expected there: data_batch_1.bin to data_batch_5.bin and test_batch.bin (of "
      "cifar-10-binary.tar.gz), or data.synthetic=true";
  if (dir.empty()) fail_cifar(text("data.dir is not set; ", expected));
  const auto unpacked = (std::filesystem::path(dir) / kFolder).string();
  for (const auto& folder : {dir, unpacked}) {
    std::string path = find_plain_or_packed(folder, name);
    if (!path.empty()) return path;
  }
  std::error_code ignored;
  const bool is_dir = std::filesystem::is_directory(dir, ignored);
  fail_cifar(text(dir, is_dir ? ": has no " : ": no such folder; looked for ", name,
                  "; ", expected));
}

void check_size(const std::string& path, const FileBytes& file, int64_t records) {
  const int64_t expected = records * kRecord, size = file.size;
  if (size == expected) return;
  fail_cifar(text(
      path, size < expected ? ": truncated in record " : ": extra bytes after record ",
      size < expected ? size / kRecord : records - 1, ": ",
      file.packed && file.longer ? "at least " : "", size, " bytes; expected ",
      expected, ", ", records, " records of ", kRecord));
}

// Brings the records of a file into rows of `data`, from `row` on.
void read_records(const std::string& path, int64_t records, LabelledImages& data,
                  int64_t row) {
  const auto file = read_bytes(path, [&](auto) { return records * kRecord; });
  check_size(path, file, records);
  const auto* record = file.bytes.const_data_ptr<uint8_t>();
  auto* labels = data.labels.mutable_data_ptr<uint8_t>() + row;
  auto* images = data.images.mutable_data_ptr<uint8_t>() + row * kPixels;
  for (int64_t i = 0; i < records; ++i, record += kRecord) {
    if (record[0] >= kClasses) {
      fail_cifar(text(path, ": at byte ", i * kRecord, ": label ", int{record[0]},
                      " of record ", i, "; expected 0 to ", kClasses - 1));
    }
    labels[i] = record[0];
    std::memcpy(images + i * kPixels, record + 1, kPixels);
  }
}

}  // namespace

LabelledImages read_cifar10(const Cifar10Options& options, Split split) {
  const auto names = file_names(split);
  const int64_t records = options.records_per_file;
  std::vector<std::string> paths;  // all of them first: a missing file is quick to see
  for (const auto& name : names) paths.push_back(find_file(options.dir, name));
  const auto total = records * static_cast<int64_t>(names.size());
  LabelledImages data{at::empty({total, 3, 32, 32}, at::kByte),
                      at::empty({total}, at::kByte)};
  for (size_t i = 0; i < paths.size(); ++i)
    read_records(paths[i], records, data, static_cast<int64_t>(i) * records);
  return data;
}

ImageSource cifar10(const Cifar10Options& options, Split split) {
  ImageSource source{.name = text("cifar-10 ", to_text(split)),
                     .classes = kClasses,
                     .read = [options, split] { return read_cifar10(options, split); }};
  if (options.normalize) {
    source.scale = {.mean = {0.4914f, 0.4822f, 0.4465f},
                    .deviation = {0.2470f, 0.2435f, 0.2616f}};
  }
  return source;
}

}  // namespace cohort
