// SPDX-License-Identifier: Apache-2.0
// A checkpoint of the first version of the format, as the program of that time wrote it
// (version_1/): fashion-mnist of width 2, two ranks at shard level 3, after two steps.
// Such folders are read, compared, shared with and removed for ever.
#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>

#include "cohort/checkpoint/load.h"
#include "cohort/checkpoint/tensor_source.h"
#include "cohort/checkpoint/testing_checkpoint.h"
#include "cohort/step/weights_hash.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class Version1 : public test::CheckpointFolder {
 protected:
  Version1() {
    fs::copy(
        std::string(std::getenv("COHORT_SOURCE")) + "/src/cohort/checkpoint/version_1",
        root_, fs::copy_options::recursive);
  }

  // All of it, as one rank would hold it.
  std::vector<StatePiece> pieces() const {
    Checkpoint saved(path_);
    std::vector<StatePiece> all;
    for (const auto& record : saved.manifest().tensors)
      all.push_back(
          {record.tensor, at::empty({record.tensor.spec.numel()}, at::kFloat)});
    load_pieces(saved, all);
    return all;
  }

  SaveReport save_as_step(int64_t step, const Retention& retention = {}) const {
    RunState run = Checkpoint(path_).manifest().run;
    run.step = step;
    test::FailingDisk disk(test::kForever);
    return CheckpointWriter(root_, {.retention = retention}, disk).save(run, pieces());
  }

  void alter(const std::string& file, int64_t at) const {
    std::fstream bytes(path_ + "/" + file,
                       std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekg(at);
    const char byte = static_cast<char>(bytes.get() ^ 1);
    bytes.seekp(at);
    bytes.put(byte);
  }

  std::string path_ = root_ + "/step-00000002";
};

TEST_F(Version1, LoadsWithTheHashThatItsRunPrinted) {
  Checkpoint saved(path_);
  EXPECT_EQ(saved.manifest().version, 1);
  EXPECT_EQ(saved.manifest().run.sample, 16);
  EXPECT_TRUE(saved.verify().empty());
  std::vector<NamedTensor> weights;
  for (const auto& record : saved.manifest().tensors)
    if (record.tensor.kind != TensorKind::kMoment)
      weights.push_back({record.tensor.spec.name, saved.read(record.tensor.spec.name)});
  EXPECT_EQ(weights_hash(weights), "d3263b8db054a77c");
  EXPECT_EQ(list_checkpoints(root_).at(0).trouble, "");
}

TEST_F(Version1, LoadsAsColumns) {
  Checkpoint saved(path_);
  StatePiece piece{saved.tensor("f1.weight").tensor, at::empty({8 * 98})};
  TensorSpec& spec = piece.tensor.spec;
  spec.box = {.cut = {8, 196}, .from = {0, 98}, .to = {8, 196}};
  spec.end = spec.box_numel();
  load_pieces(saved, std::span(&piece, 1));
  EXPECT_TRUE(
      at::equal(piece.data.view({8, 98}), saved.read("f1.weight").narrow(1, 98, 98)));
}

TEST_F(Version1, ANewCheckpointSharesItsChunksAndIsOfTheNewVersion) {
  const auto report = save_as_step(3);
  EXPECT_EQ(report.written_bytes, 192);  // a file that is mostly its header
  EXPECT_EQ(report.linked_bytes, 13'904);
  EXPECT_EQ(Checkpoint(report.path).manifest().version, kManifestVersion);
  EXPECT_TRUE(diff_tensors(open_tensors(path_), open_tensors(report.path)).empty());

  // What is shared stays when the old one goes.
  fs::remove_all(path_);
  EXPECT_TRUE(Checkpoint(report.path).verify().empty());
}

TEST_F(Version1, IsRemovedLikeAnyOther) {
  const auto report = save_as_step(3, {.last = 1});
  EXPECT_THAT(report.removed, testing::ElementsAre(path_));
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(Version1, IsReplacedByOneOfTheSameStep) {
  const auto report = save_as_step(2);
  EXPECT_EQ(report.path, path_);
  EXPECT_EQ(Checkpoint(path_).manifest().version, kManifestVersion);
  EXPECT_TRUE(Checkpoint(path_).verify().empty());
}

TEST_F(Version1, DamageIsOneClearLine) {
  alter("model-00001-of-00002.safetensors", 2000);
  const auto troubles = Checkpoint(path_).verify();
  ASSERT_EQ(troubles.size(), 1u);
  EXPECT_THAT(troubles[0], AllOf(HasSubstr("model-00001-of-00002.safetensors"),
                                 HasSubstr("tensor 'f1.weight', elements 0 to 1568"),
                                 testing::Not(HasSubstr("\n"))));
  alter("manifest.json", 100);
  EXPECT_THAT(
      test::error_of([&] { Checkpoint{path_}; }),
      AllOf(HasSubstr("manifest.json: altered"), testing::Not(HasSubstr("\n"))));
}

}  // namespace
}  // namespace cohort
