// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <stdexcept>

#include "cohort/checkpoint/disk.h"

namespace cohort::test {

constexpr int64_t kForever = int64_t{1} << 60;

// Passes all but syncs, which are slow, to the real disk until `budget` is spent: each
// byte written and each other act costs one. From then on everything throws, as for a
// process that is dead.
class FailingDisk : public Disk {
 public:
  enum class Cause { kCrash, kFull };
  explicit FailingDisk(int64_t budget, Cause cause = Cause::kCrash)
      : budget_(budget), cause_(cause) {}

  std::unique_ptr<File> create(const Path& path) override {
    spend(1, path);
    return std::make_unique<FailingFile>(*this, real_->create(path), path);
  }
  void make_folder(const Path& path) override {
    spend(1, path);
    real_->make_folder(path);
  }
  void link(const Path& from, const Path& to) override {
    spend(1, to);
    real_->link(from, to);
  }
  void rename(const Path& from, const Path& to) override {
    spend(1, to);
    real_->rename(from, to);
  }
  bool exchange(const Path& a, const Path& b) override {
    spend(1, b);
    return real_->exchange(a, b);
  }
  void sync_folder(const Path& path) override { spend(1, path); }
  void remove(const Path& path) override {
    if (cause_ == Cause::kCrash) spend(1, path);  // a full disk can remove
    real_->remove(path);
  }
  int64_t free_bytes(const Path&) override { return free; }

  int64_t free = int64_t{1} << 40;

 private:
  class FailingFile : public File {
   public:
    FailingFile(FailingDisk& disk, std::unique_ptr<File> file, const Path& path)
        : disk_(disk), file_(std::move(file)), path_(path) {}
    void write(std::string_view bytes) override {
      const auto fits = std::min<int64_t>(disk_.budget_, bytes.size());
      file_->write(bytes.substr(0, static_cast<size_t>(fits)));
      disk_.spend(static_cast<int64_t>(bytes.size()), path_);
    }
    void finish() override { disk_.spend(1, path_); }

   private:
    FailingDisk& disk_;
    std::unique_ptr<File> file_;
    Path path_;
  };

  void spend(int64_t cost, const Path& path) {
    const bool fits = cost <= budget_;
    budget_ = fits ? budget_ - cost : 0;
    if (fits) return;
    if (cause_ == Cause::kFull) throw DiskFull("no space for " + path.string());
    throw std::runtime_error("the process is dead");
  }

  int64_t budget_;
  Cause cause_;
  std::unique_ptr<Disk> real_ = real_disk();
};

}  // namespace cohort::test
