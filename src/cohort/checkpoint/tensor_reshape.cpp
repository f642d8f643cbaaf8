// SPDX-License-Identifier: Apache-2.0
// Tensors of any source as a checkpoint in so many files.
#include <algorithm>
#include <exception>
#include <thread>

#include "cohort/checkpoint/save.h"
#include "cohort/checkpoint/tensor_source.h"
#include "cohort/core/error.h"

namespace cohort {
namespace {

// Tensors one after another, cut into pieces of about equal bytes: those of each file.
std::vector<std::vector<StatePiece>> cut(const TensorSource& source, int num_files) {
  int64_t total = 0;
  for (const auto& tensor : source.tensors) total += tensor.spec.bytes();
  std::vector<std::vector<StatePiece>> files(num_files);
  int64_t before = 0;
  for (const auto& tensor : source.tensors) {
    const auto whole =
        whole_piece(tensor.spec.name, source.read(tensor.spec.name), tensor.kind);
    const auto flat = whole.data.view({-1});
    const int64_t size = size_of(tensor.spec.dtype);
    int64_t begin = 0;
    for (int file = 0; file < num_files; ++file) {
      // The last file takes what is left, also of a total of zero.
      const int64_t limit =
          static_cast<int64_t>(static_cast<double>(total) / num_files * (file + 1));
      const int64_t end = file + 1 == num_files
                              ? flat.numel()
                              : std::min(flat.numel(), (limit - before) / size);
      const bool empty = flat.numel() == 0 && file + 1 == num_files;
      if (end <= begin && !empty) continue;
      StatePiece piece{whole.tensor, flat.narrow(0, begin, end - begin)};
      piece.tensor.spec.begin = begin;
      piece.tensor.spec.end = end;
      files[file].push_back(std::move(piece));
      begin = end;
    }
    before += tensor.spec.bytes();
  }
  return files;
}

}  // namespace

std::string write_checkpoint(const TensorSource& source, const std::string& root,
                             int num_files) {
  const auto files = cut(source, num_files);
  const auto exchanges = thread_text_exchanges(num_files);
  std::vector<std::exception_ptr> errors(num_files);
  std::vector<SaveReport> reports(num_files);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < num_files; ++rank)
    threads.emplace_back([&, rank] {
      try {
        const auto disk = real_disk();
        CheckpointWriter writer(root, {}, *disk);
        reports[rank] = writer.save(source.run, files[rank], exchanges[rank]);
      } catch (...) {
        errors[rank] = std::current_exception();
      }
    });
  for (auto& thread : threads) thread.join();
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
  return reports[0].path;
}

}  // namespace cohort
