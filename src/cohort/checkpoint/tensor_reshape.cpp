// SPDX-License-Identifier: Apache-2.0
// Tensors of any source as a checkpoint in so many files.
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "cohort/checkpoint/save.h"
#include "cohort/checkpoint/tensor_source.h"
#include "cohort/core/error.h"

namespace cohort {
namespace {

// Writers that are threads of this process. One that throws has already told the others
// through its text, so none stays away from a meeting, and a wait is as long as a
// write.
class Room {
 public:
  explicit Room(int size) : texts_(size) {}

  std::vector<std::string> gather(int rank, const std::string& mine) {
    std::unique_lock lock(mutex_);
    const int64_t round = round_;
    texts_[rank] = mine;
    if (++here_ == static_cast<int>(texts_.size())) {
      here_ = 0;
      result_ = texts_;
      ++round_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return round_ != round; });
    return result_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> texts_, result_;
  int here_ = 0;
  int64_t round_ = 0;
};

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
  Room room(num_files);
  std::vector<std::exception_ptr> errors(num_files);
  std::vector<SaveReport> reports(num_files);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < num_files; ++rank)
    threads.emplace_back([&, rank] {
      try {
        const Meeting meeting{.rank = rank,
                              .size = num_files,
                              .gather = [&, rank](const std::string& mine) {
                                return room.gather(rank, mine);
                              }};
        const auto disk = real_disk();
        CheckpointWriter writer(root, {}, *disk);
        reports[rank] = writer.save(source.run, files[rank], meeting);
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
