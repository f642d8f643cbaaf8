// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/weights_file.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>

#include "cohort/checkpoint/safetensors.h"
#include "cohort/core/error.h"
#include "cohort/core/file.h"
#include "cohort/core/memory.h"
#include "cohort/core/testing_error.h"
#include "cohort/core/testing_folder.h"
#include "support/ranks.h"

namespace cohort {
namespace {

using test::run_ranks;
using test::World;
using testing::HasSubstr;

std::vector<NamedTensor> model() {
  const Tensor filter = at::arange(7 * 5 * 3 * 3, at::kFloat).view({7, 5, 3, 3}) / 3;
  const Tensor other = at::arange(60, at::kFloat).view({3, 4, 5}) / 7;
  return {{"fc.weight", at::arange(231, at::kFloat).view({7, 33}) / 9},
          {"conv", filter.contiguous(at::MemoryFormat::ChannelsLast)},
          {"turned", other.permute({2, 0, 1}).contiguous().permute({1, 2, 0})},
          {"bn.mean", at::arange(9, at::kHalf)},
          {"bn.count", at::full({}, int64_t{7}, at::kLong)},
          {"none", at::empty({0, 4})},
          {"mask", at::tensor({1, 0, 1}).to(at::kBool)}};
}

// An even shard of every tensor, and moments that nobody wants.
std::vector<StatePiece> shard_of_model(int rank, int size) {
  std::vector<StatePiece> pieces;
  for (const auto& [name, tensor] : model()) {
    StatePiece piece{whole_tensor(name, tensor),
                     tensor.as_strided({tensor.numel()}, {1}).clone()};
    TensorSpec& spec = piece.tensor.spec;
    if (name == "fc.weight") {  // columns
      spec.box = {{7, 33}, {0, 33 * rank / size}, {7, 33 * (rank + 1) / size}};
      piece.data = tensor.slice(1, spec.box.from[1], spec.box.to[1]).contiguous();
      spec.end = spec.box_numel();
    } else {
      spec.begin = tensor.numel() * rank / size;
      spec.end = tensor.numel() * (rank + 1) / size;
      piece.data = piece.data.narrow(0, spec.begin, spec.end - spec.begin);
    }
    pieces.push_back(piece);
    piece.tensor.kind = TensorKind::kMoment;
    piece.tensor.spec.name = "optimizer.momentum." + name;
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

class WeightsFile : public testing::TestWithParam<World> {
 protected:
  test::TempFolder folder_;
  std::string path_ = folder_.path() + "/weights";
};

TEST_P(WeightsFile, HasTheBytesOfOneThatARankWroteAlone) {
  run_ranks(GetParam(), [&](Communicator& comm) {
    for (const int64_t stretch : {1, 100, 1 << 20}) {
      write_weights(path_, shard_of_model(comm.rank(), comm.size()), comm, stretch);
      if (comm.rank() != 0) continue;
      write_safetensors(path_ + ".alone", model());
      EXPECT_TRUE(read_file(path_) == read_file(path_ + ".alone")) << stretch;
    }
  });
}

std::string error_of_write(const std::string& path, Communicator& comm) {
  return test::message_of<CheckpointError>([&] {
    write_weights(path, shard_of_model(comm.rank(), comm.size()), comm, 100);
  });
}

TEST_P(WeightsFile, ThatCannotBeBegunIsToldToAll) {
  run_ranks(GetParam(), [&](Communicator& comm) {
    EXPECT_THAT(error_of_write(path_ + "/missing/w", comm), HasSubstr("cannot write"));
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, WeightsFile,
                         testing::ValuesIn(std::vector<World>{
                             {"local", 1}, {"local", 2}, {"local", 3}, {"shm", 4}}),
                         test::world_name);

// A disk that takes 2,000 of the 2,917 bytes.
TEST(WeightsFileOnAFullDisk, IsToldToAllAndTheOldOneStays) {
  const test::TempFolder folder;
  const std::string path = folder.path() + "/weights";
  write_file_atomically(path, "old");
  run_ranks({"local", 3}, [&](Communicator& comm) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit most{2000, 2000};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &most), 0);
    EXPECT_THAT(error_of_write(path, comm), HasSubstr("cannot write"));
  });
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(WeightsFileOfRanksThatDisagree, IsRefusedAndTheOldOneStays) {
  const test::TempFolder folder;
  const std::string path = folder.path() + "/weights";
  write_file_atomically(path, "old");
  run_ranks({"local", 2}, [&](Communicator& comm) {
    auto mine = shard_of_model(comm.rank(), 2);
    if (comm.rank() == 1) mine[0].tensor.spec.shape = {33, 7};
    EXPECT_THROW(write_weights(path, mine, comm), CheckpointError);
  });
  EXPECT_EQ(read_file(path), "old");
}

TEST(WeightsFileInStretches, TakesNoMoreMemoryThanAFewOfThem) {
  const test::TempFolder folder;
  run_ranks({"local", 1}, [&](Communicator& comm) {
    std::vector<StatePiece> pieces;
    const Tensor big = at::zeros({64, 1 << 14}, at::kFloat);  // 4 MiB
    pieces.push_back({whole_tensor("w", big), big.view({-1})});
    MemoryCounter counter;
    const TensorMemoryScope scope(counter);
    write_weights(folder.path() + "/weights", pieces, comm, 1 << 18);
    EXPECT_LT(counter.peak(), 1 << 20);
  });
}

}  // namespace
}  // namespace cohort
