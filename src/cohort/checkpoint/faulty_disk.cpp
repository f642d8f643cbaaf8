// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/faulty_disk.h"

#include <string>
#include <utility>

namespace cohort {
namespace {

using Ask = FaultPlan::Ask;

class FaultyFile final : public Disk::File {
 public:
  FaultyFile(std::unique_ptr<Disk::File> file, Disk::Path path, FaultPlan& faults,
             const std::atomic<int>& rank)
      : file_(std::move(file)), path_(std::move(path)), faults_(faults), rank_(rank) {}

  void write(std::string_view bytes) override {
    const Ask asked = faults_.reach("disk.write", rank_);
    if (asked == Ask::kDrop)
      throw DiskFull("[checkpoint.disk] cannot write " + path_.string() +
                     ": No space left on device");
    if (asked != Ask::kFlip || bytes.empty()) return file_->write(bytes);
    std::string damaged(bytes);
    damaged[damaged.size() / 2] ^= 1;
    file_->write(damaged);
  }

  void finish() override {
    faults_.reach("disk.sync", rank_);
    file_->finish();
  }

 private:
  std::unique_ptr<Disk::File> file_;
  Disk::Path path_;
  FaultPlan& faults_;
  const std::atomic<int>& rank_;
};

class FaultyDisk final : public Disk {
 public:
  FaultyDisk(std::unique_ptr<Disk> disk, FaultPlan& faults,
             const std::atomic<int>& rank)
      : disk_(std::move(disk)), faults_(faults), rank_(rank) {}

  std::unique_ptr<File> create(const Path& path) override {
    name();
    return std::make_unique<FaultyFile>(disk_->create(path), path, faults_, rank_);
  }
  void make_folder(const Path& path) override {
    name();
    disk_->make_folder(path);
  }
  void link(const Path& from, const Path& to) override {
    name();
    disk_->link(from, to);
  }
  void rename(const Path& from, const Path& to) override {
    name();
    disk_->rename(from, to);
  }
  bool exchange(const Path& a, const Path& b) override {
    name();
    return disk_->exchange(a, b);
  }
  void sync_folder(const Path& path) override {
    faults_.reach("disk.sync", rank_);
    disk_->sync_folder(path);
  }
  void remove(const Path& path) override {
    name();
    disk_->remove(path);
  }
  int64_t free_bytes(const Path& path) override { return disk_->free_bytes(path); }

 private:
  void name() { faults_.reach("disk.name", rank_); }

  std::unique_ptr<Disk> disk_;
  FaultPlan& faults_;
  const std::atomic<int>& rank_;
};

}  // namespace

std::unique_ptr<Disk> with_faults(std::unique_ptr<Disk> disk, FaultPlan& faults,
                                  const std::atomic<int>& rank) {
  return std::make_unique<FaultyDisk>(std::move(disk), faults, rank);
}

}  // namespace cohort
