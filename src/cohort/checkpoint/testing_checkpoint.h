// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "cohort/checkpoint/checkpoint.h"
#include "cohort/checkpoint/save.h"
#include "cohort/comm/local/local.h"

// For tests: a state of every kind, worlds that save it, disks that fail.
namespace cohort::test {

class TempFolder : public testing::Test {
 protected:
  TempFolder() {
    std::string name = testing::TempDir() + "/cohort_checkpoint_XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    dir_ = name;
    root_ = dir_ + "/run";
  }
  ~TempFolder() override { std::filesystem::remove_all(dir_); }

  std::string dir_, root_;
};

// A whole tensor of the state; `flat` has its elements in the stored order.
struct StateItem {
  StateTensor tensor;
  Tensor flat, logical;
};

inline StateItem item(const std::string& name, const Tensor& tensor,
                      TensorKind kind = TensorKind::kParameter) {
  StateItem out{{.spec = spec_of(name, tensor), .kind = kind, .order = {}}, {}, tensor};
  out.tensor.order = memory_order(tensor);
  const auto turned =
      out.tensor.order.empty() ? tensor : tensor.permute(out.tensor.order);
  out.flat = turned.contiguous().view({-1});
  return out;
}

inline std::vector<StateItem> some_state(double shift = 0) {
  const auto weight = (at::arange(231, at::kFloat) / 7 + shift).view({7, 33});
  const auto filter = (at::arange(48, at::kFloat) - 24 + shift).view({4, 3, 2, 2});
  return {item("fc.weight", weight),
          item("fc.half", at::arange(40).to(at::kHalf)),
          item("conv.weight", filter.contiguous(at::MemoryFormat::ChannelsLast)),
          item("optimizer.exp_avg.fc.weight", weight * 0.5, TensorKind::kMoment),
          item("bn.count", at::full({}, int64_t{7}, at::kLong), TensorKind::kBuffer),
          item("mask", at::tensor({1, 0, 1}).to(at::kBool), TensorKind::kBuffer),
          item("none", at::empty({0, 4}), TensorKind::kBuffer)};
}

// What rank `rank` of `size` owns: an even share of every tensor, cut anywhere.
inline std::vector<StatePiece> share(const std::vector<StateItem>& state, int rank,
                                     int size) {
  std::vector<StatePiece> pieces;
  for (const auto& [tensor, flat, logical] : state) {
    StatePiece piece{tensor, {}};
    TensorSpec& spec = piece.tensor.spec;
    spec.begin = flat.numel() * rank / size;
    spec.end = flat.numel() * (rank + 1) / size;
    if (spec.begin == spec.end && rank > 0) continue;
    piece.data = flat.narrow(0, spec.begin, spec.end - spec.begin);
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

inline RunState at_step(int64_t step) {
  return {
      .step = step,
      .epoch = 1,
      .sample = 64 * step,
      .seed = 0xffffffffffffffffu,
      .layout = "dp=1",
      .world = 1,
      .metrics = {{"loss", 1.0 / static_cast<double>(step + 1)}},
      .state = {{"scaler", "{\"scale\":1024}"}, {"raw", std::string("\0\xff\x7f", 3)}}};
}

constexpr int64_t kSmallChunk = 64;

// Runs `body` on every rank of a world of threads; what it throws, by rank.
inline std::vector<std::string> on_ranks(
    int size, const std::function<void(const Meeting&)>& body) {
  auto world = make_local(size, std::chrono::seconds(20));
  std::vector<std::string> errors(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      try {
        body(meeting_over(*world[rank]));
      } catch (const std::exception& error) {
        errors[rank] = error.what();
      }
    });
  for (auto& thread : threads) thread.join();
  return errors;
}

inline SaveReport save(const std::string& root, int64_t step,
                       const std::vector<StateItem>& state, int size = 1,
                       const Retention& retention = {}) {
  SaveReport report;
  const auto errors = on_ranks(size, [&](const Meeting& meeting) {
    const auto disk = real_disk();
    CheckpointWriter writer(root, {.chunk_bytes = kSmallChunk, .retention = retention},
                            *disk);
    const auto mine =
        writer.save(at_step(step), share(state, meeting.rank, size), meeting);
    if (meeting.rank == 0) report = mine;
  });
  for (const auto& error : errors) EXPECT_EQ(error, "");
  return report;
}

// Bit for bit, in shape and dtype.
inline void expect_state(const std::string& path, const std::vector<StateItem>& state) {
  Checkpoint saved(path);
  EXPECT_EQ(saved.manifest().tensors.size(), state.size());
  for (const auto& want : state) {
    const auto& name = want.tensor.spec.name;
    const auto read = saved.read(name);
    EXPECT_EQ(read.sizes(), want.logical.sizes()) << name;
    EXPECT_EQ(read.scalar_type(), want.logical.scalar_type()) << name;
    EXPECT_TRUE(at::equal(read, want.logical)) << name;
    EXPECT_EQ(saved.tensor(name).tensor.kind, want.tensor.kind);
  }
  EXPECT_TRUE(saved.verify().empty());
}

// Passes all on to the real disk until `budget` is spent: each byte written and each
// other act costs one. From then on everything throws, as for a process that is dead.
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

inline int hidden_entries(const std::string& root) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(root))
    count += entry.path().filename().string().starts_with('.');
  return count;
}

}  // namespace cohort::test
