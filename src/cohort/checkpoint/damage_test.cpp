// SPDX-License-Identifier: Apache-2.0
// Crashes, full disks, torn files, flipped bits: what was whole stays whole, and what
// is not is named and never loaded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "cohort/checkpoint/testing_checkpoint.h"
#include "cohort/checkpoint/testing_disk.h"
#include "cohort/core/error.h"
#include "cohort/core/file.h"
#include "cohort/core/random.h"

namespace cohort {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using namespace cohort::test;  // NOLINT: a test

std::vector<StateItem> small_state(double shift = 0) {
  return {item("a", at::arange(9, at::kFloat) + shift),
          item("b", at::full({3}, 5, at::kInt), TensorKind::kBuffer)};
}

class Damage : public CheckpointFolder {
 protected:
  // Tries to save step `step`; what it threw.
  std::string try_save(int64_t step, const std::vector<StateItem>& state, Disk& disk,
                       const Retention& retention = {}) {
    try {
      CheckpointWriter writer(root_, {.chunk_bytes = 16, .retention = retention}, disk);
      writer.save(at_step(step), shard(state, 0, 1));
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  }

  // The first trouble that opening, reading or verifying a checkpoint meets.
  static std::string trouble_of(const std::string& path) {
    try {
      Checkpoint saved(path);
      const auto troubles = saved.verify();
      if (!troubles.empty()) return troubles[0];
    } catch (const CheckpointError& error) {
      return error.what();
    }
    return "";
  }

  // Whether every element can be read: it must not be when anything is wrong.
  static bool loads(const std::string& path) {
    try {
      Checkpoint saved(path);
      for (const auto& record : saved.manifest().tensors)
        (void)saved.read(record.tensor.spec.name);
    } catch (const CheckpointError&) {
      return false;
    }
    return true;
  }

  void replace(const fs::path& path, const std::string& bytes) {
    fs::remove(path);  // a link's bytes are its own
    std::ofstream(path, std::ios::binary) << bytes;
  }

  // With only the first `size` bytes of one of its files it is named and not loaded.
  void expect_torn(const fs::path& path, const std::string& whole, size_t size) {
    replace(path, whole.substr(0, size));
    const std::string folder = path.parent_path().string();
    ASSERT_THAT(trouble_of(folder),
                AllOf(HasSubstr(path.string()), HasSubstr("truncated")))
        << size;
    ASSERT_FALSE(loads(folder)) << size;
  }

  std::vector<fs::path> files_of(const std::string& folder) {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder))
      files.push_back(entry.path());
    return files;
  }
};

// Step 1 is there. Step 2 is saved, or step 1 again, and the process dies after every
// possible number of bytes and acts.
TEST_F(Damage, ACrashAtAnyByteLeavesTheOneBeforeWhole) {
  for (const int64_t step : {2, 1}) {
    const auto base = root_;
    int64_t budget = 0;
    bool finished = false;
    for (; !finished; ++budget) {
      SCOPED_TRACE(text("step ", step, " after ", budget));
      root_ = text(base, step, "_", budget);
      save(root_, 1, small_state());
      FailingDisk disk(budget);
      finished = try_save(step, small_state(1), disk).empty();
      const auto latest = latest_checkpoint(root_);
      ASSERT_TRUE(latest);
      const bool is_new =
          at::equal(Checkpoint(*latest).read("a"), small_state(1)[0].flat);
      expect_state(*latest, small_state(is_new ? 1 : 0));
      ASSERT_TRUE(is_new || !finished);
      save(root_, 3, small_state(2));  // goes on, and clears away
      EXPECT_EQ(hidden_entries(root_), 0);
      expect_state(root_ + "/step-00000003", small_state(2));
      fs::remove_all(root_);
    }
    EXPECT_GT(budget, 800);
    root_ = base;
  }
}

TEST_F(Damage, AFullDiskLosesNothingOldAndSaysSo) {
  save(root_, 1, small_state());
  const auto none_but_step_1 = [&] {
    expect_state(root_ + "/step-00000001", small_state());
    EXPECT_EQ(latest_checkpoint(root_), root_ + "/step-00000001");
    EXPECT_EQ(hidden_entries(root_), 0);
  };
  FailingDisk small(1 << 20, FailingDisk::Cause::kFull);
  small.free = 20;
  EXPECT_THAT(try_save(2, small_state(1), small, {.last = 1}),
              AllOf(HasSubstr("full"), HasSubstr("48 bytes wanted"),
                    HasSubstr("20 free"), HasSubstr("step 2")));
  none_but_step_1();
  for (const int64_t budget : {3, 4, 50, 200, 300, 400, 600, 900}) {
    FailingDisk full(budget, FailingDisk::Cause::kFull);
    full.free = 1234;
    EXPECT_THAT(try_save(2, small_state(1), full, {.last = 1}),
                AllOf(HasSubstr("48 bytes wanted"), HasSubstr("1234 free")))
        << budget;
    none_but_step_1();
  }
  FailingDisk full(0, FailingDisk::Cause::kFull);
  EXPECT_THAT(try_save(2, small_state(1), full), HasSubstr("no space"));
  none_but_step_1();
}

TEST_F(Damage, EveryTruncationIsNamed) {
  const auto report = save(root_, 1, small_state());
  for (const auto& path : files_of(report.path)) {
    const auto whole = read_file(path);
    for (size_t size = 0; size < whole.size(); ++size) expect_torn(path, whole, size);
    replace(path, whole + "x");
    EXPECT_THAT(trouble_of(report.path), HasSubstr(path.string()));
    fs::remove(path);
    EXPECT_THAT(trouble_of(report.path), HasSubstr(path.string()));
    EXPECT_FALSE(latest_checkpoint(root_));
    replace(path, whole);
    ASSERT_EQ(trouble_of(report.path), "");
  }
}

// Three ranks save every kind of tensor. Files are cut at every border of a record, one
// byte less and more, and at random places.
TEST_F(Damage, TornAtBordersAndAnywhereElse) {
  const auto report = save(root_, 1, some_state(), 3);
  const Manifest manifest = Checkpoint(report.path).manifest();
  const auto key = RandomKey::of_path(5, "torn");
  uint64_t draw = 0;
  for (const auto& path : files_of(report.path)) {
    const auto whole = read_file(path);
    std::set<size_t> sizes;
    for (const auto& [tensor, boxes] : manifest.tensors)
      for (const auto& chunk : boxes[0].chunks)
        if (path.filename() == manifest.files[chunk.file].name)
          for (const int64_t size : {chunk.offset - 1, chunk.offset, chunk.offset + 1})
            sizes.insert(static_cast<size_t>(size));
    for (int i = 0; i < 100; ++i) sizes.insert(random_below(key, draw++, whole.size()));
    sizes.erase(whole.size());
    for (const size_t size : sizes) expect_torn(path, whole, size);
    replace(path, whole);
  }
  EXPECT_EQ(trouble_of(report.path), "");
}

TEST_F(Damage, EveryFlippedBitIsNamed) {
  const auto report = save(root_, 1, small_state());
  for (const auto& path : files_of(report.path)) {
    const auto whole = read_file(path);
    for (size_t i = 0; i < whole.size(); ++i) {
      auto altered = whole;
      altered[i] = static_cast<char>(altered[i] ^ (1 << (i % 8)));
      replace(path, altered);
      ASSERT_THAT(trouble_of(report.path), HasSubstr(path.string())) << i;
      ASSERT_FALSE(loads(report.path)) << i;
    }
    replace(path, whole);
    ASSERT_EQ(trouble_of(report.path), "");
  }
}

TEST_F(Damage, AnAlteredTensorIsNamedWithItsElements) {
  const auto report = save(root_, 1, some_state());
  const auto chunk = Checkpoint(report.path).tensor("fc.weight").boxes[0].chunks[2];
  const fs::path path = report.path + "/model-00001-of-00001.safetensors";
  auto bytes = read_file(path);
  bytes[static_cast<size_t>(chunk.offset) + 3] ^= 1;
  replace(path, bytes);
  EXPECT_THAT(trouble_of(report.path),
              AllOf(HasSubstr("'fc.weight', elements 32 to 48"), HasSubstr("altered")));
}

TEST_F(Damage, ADamagedCheckpointIsPassedOverAndLeftForItsUser) {
  const auto first = save(root_, 1, some_state());
  const auto second = save(root_, 2, some_state(1));
  fs::resize_file(second.path + "/manifest.json", 100);
  EXPECT_EQ(latest_checkpoint(root_), first.path);
  const auto all = list_checkpoints(root_);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].trouble, "");
  EXPECT_THAT(all[1].trouble, HasSubstr("manifest.json"));
  const auto third = save(root_, 3, some_state(), 1, {.last = 1});
  EXPECT_EQ(third.removed, std::vector<std::string>{first.path});
  EXPECT_TRUE(fs::exists(second.path));
}

// Data and the names of files are on the disk before the rename that shows them.
TEST_F(Damage, EverythingIsSyncedBeforeItIsShown) {
  class Watched : public FailingDisk {
   public:
    explicit Watched(std::vector<std::string>& log)
        : FailingDisk(kForever), log_(log) {}
    std::unique_ptr<File> create(const Path& path) override {
      return std::make_unique<Noted>(FailingDisk::create(path), path, log_);
    }
    void rename(const Path& from, const Path& to) override {
      log_.push_back("rename " + to.filename().string());
      FailingDisk::rename(from, to);
    }
    bool exchange(const Path& a, const Path& b) override {
      log_.push_back("exchange " + b.filename().string());
      return FailingDisk::exchange(a, b);
    }
    void remove(const Path& path) override {
      log_.push_back("remove");
      FailingDisk::remove(path);
    }
    void make_folder(const Path& path) override {
      if (!fs::exists(path) && !path.filename().string().starts_with('.'))
        log_.push_back("make " + path.filename().string());
      FailingDisk::make_folder(path);
    }
    void sync_folder(const Path& path) override {
      log_.push_back(path.filename().string().starts_with('.')
                         ? "sync aside"
                         : "sync " + path.filename().string());
    }

   private:
    class Noted : public File {
     public:
      Noted(std::unique_ptr<File> file, const Path& path, std::vector<std::string>& log)
          : file_(std::move(file)), path_(path), log_(log) {}
      void write(std::string_view bytes) override { file_->write(bytes); }
      void finish() override {
        file_->finish();
        log_.push_back("finish " + path_.filename().string());
      }

     private:
      std::unique_ptr<File> file_;
      Path path_;
      std::vector<std::string>& log_;
    };
    std::vector<std::string>& log_;
  };
  std::vector<std::string> log;
  Watched disk(log);
  fs::create_directories(root_);
  const std::string above = fs::path(root_).filename().string();
  root_ += "/new/deep";
  ASSERT_EQ(try_save(1, small_state(), disk), "");
  EXPECT_EQ(log, (std::vector<std::string>{
                     "make new", "sync " + above, "make deep", "sync new",
                     "finish model-00001-of-00001.safetensors", "finish manifest.json",
                     "sync aside", "rename step-00000001", "sync deep"}));
  log.clear();
  ASSERT_EQ(try_save(1, small_state(), disk), "");  // in the place of the other
  EXPECT_EQ(log, (std::vector<std::string>{
                     "remove",  // what a dead writer may have left
                     "finish model-00001-of-00001.safetensors", "finish manifest.json",
                     "sync aside", "exchange step-00000001", "sync deep", "remove"}));
}

}  // namespace
}  // namespace cohort
