// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/save.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/checkpoint/load.h"
#include "cohort/checkpoint/safetensors.h"
#include "cohort/checkpoint/testing_checkpoint.h"
#include "cohort/checkpoint/testing_disk.h"
#include "cohort/comm/local/local.h"
#include "cohort/core/error.h"
#include "cohort/core/file.h"
#include "cohort/core/testing_error.h"

namespace cohort {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using namespace cohort::test;  // NOLINT: a test

class SaveCheckpoint : public CheckpointFolder {};

TEST_F(SaveCheckpoint, AnyWorldReadsWhatAnyWorldWrote) {
  const auto state = some_state();
  for (const int writers : {1, 2, 3, 5}) {
    const auto report = save(root_ + std::to_string(writers), 12, state, writers);
    expect_state(report.path, state);
    for (const int readers : {1, 2, 3}) {
      Checkpoint saved(report.path);
      for (int rank = 0; rank < readers; ++rank) {
        const auto wanted = shard(state, rank, readers);
        auto pieces = wanted;
        for (auto& piece : pieces) piece.data = at::zeros_like(piece.data);
        load_pieces(saved, pieces);
        for (size_t i = 0; i < pieces.size(); ++i)
          EXPECT_TRUE(at::equal(pieces[i].data, wanted[i].data))
              << wanted[i].tensor.spec.name;
      }
    }
  }
}

// Descriptors are numbers that come back: a second close() would be another file's.
TEST_F(SaveCheckpoint, AFileIsClosedOnce) {
  const auto disk = real_disk();
  disk->make_folder(root_);
  auto first = disk->create(root_ + "/first");
  first->finish();
  const auto second = disk->create(root_ + "/second");
  first.reset();
  second->write("all of it");
  second->finish();
  EXPECT_EQ(read_file(root_ + "/second"), "all of it");
}

TEST_F(SaveCheckpoint, WhatDoesNotFitIsNamedBeforeAnythingIsLoaded) {
  const auto state = some_state();
  const auto report = save(root_, 12, state);
  Checkpoint saved(report.path);
  const auto error_of = [&](const StatePiece& bad) -> std::string {
    auto pieces = shard(state, 0, 1);
    for (auto& piece : pieces) piece.data = at::zeros_like(piece.data);
    pieces.push_back(bad);
    try {
      load_pieces(saved, pieces);
    } catch (const CheckpointError& error) {
      for (auto& piece : pieces) EXPECT_FALSE(piece.data.any().item<bool>());
      return error.what();
    }
    return "";
  };
  const auto zeros = [](const std::string& name, at::IntArrayRef shape) {
    return whole_piece(name, at::zeros(shape), TensorKind::kParameter);
  };
  EXPECT_THAT(error_of(zeros("fc.weight", {33, 7})),
              AllOf(HasSubstr("'fc.weight' is 7x33"), HasSubstr("expected 33x7")));
  EXPECT_THAT(error_of(zeros("fc.weigth", {7, 33})), HasSubstr("nearest: 'fc.weight'"));
  EXPECT_THAT(error_of(zeros("bn.count", {})), HasSubstr("Long, expected Float"));
}

TEST_F(SaveCheckpoint, RanksMeetOverTheirGroup) {
  const auto state = some_state();
  for (const int size : {1, 3}) {
    auto world = make_local(size, std::chrono::seconds(20));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank)
      threads.emplace_back([&, rank] {
        const auto disk = real_disk();
        CheckpointWriter writer(root_, {.chunk_bytes = kSmallChunk}, *disk);
        writer.save(at_step(size), shard(state, rank, size),
                    text_exchange(*world[rank]));
      });
    for (auto& thread : threads) thread.join();
    expect_state(root_ + "/" + step_folder(size), state);
  }
}

TEST_F(SaveCheckpoint, RunStateComesBack) {
  const auto report = save(root_, 12, some_state());
  EXPECT_EQ(report.path, root_ + "/step-00000012");
  const RunState run = Checkpoint(report.path).manifest().run;
  const RunState want = at_step(12);
  EXPECT_EQ(run.step, 12);
  EXPECT_EQ(run.epoch, want.epoch);
  EXPECT_EQ(run.sample, want.sample);
  EXPECT_EQ(run.seed, want.seed);
  EXPECT_EQ(run.layout, want.layout);
  EXPECT_EQ(run.metrics, want.metrics);
  EXPECT_EQ(run.state, want.state);
}

TEST_F(SaveCheckpoint, RangesAreReadAsAnotherDtype) {
  const auto state = some_state();
  const auto report = save(root_, 1, state, 3);
  Checkpoint saved(report.path);
  for (const auto dtype : {at::kDouble, at::kBFloat16, at::kHalf}) {
    auto out = at::empty({101}, dtype);
    saved.read("fc.weight", 37, out);
    EXPECT_TRUE(at::equal(out, state[0].flat.narrow(0, 37, 101).to(dtype)));
  }
  EXPECT_TRUE(
      at::equal(saved.read("fc.half", at::kFloat), state[1].logical.to(at::kFloat)));
}

TEST_F(SaveCheckpoint, RangesAreReadInAnotherOrderOfMemory) {
  const auto state = some_state();
  const auto report = save(root_, 1, state, 2);
  Checkpoint saved(report.path);
  const Tensor filter = state[2].logical;
  ASSERT_FALSE(state[2].tensor.order.empty());
  auto out = at::empty({20});
  saved.read("conv.weight", 9, out);  // row-major, of one that is stored channels-last
  EXPECT_TRUE(at::equal(out, filter.contiguous().view({-1}).narrow(0, 9, 20)));
  saved.read("fc.weight", 9, out, {1, 0});
  EXPECT_TRUE(
      at::equal(out, state[0].logical.t().contiguous().view({-1}).narrow(0, 9, 20)));
}

// What code does with any other byte in a bool is undefined.
TEST_F(SaveCheckpoint, ABoolThatIsNeitherTrueNorFalseIsRefused) {
  const Tensor odd = at::tensor({1, 2, 0}, at::kByte).view(at::kBool);
  const auto report = save(root_, 1, {item("mask", odd, TensorKind::kBuffer)});
  Checkpoint saved(report.path);
  EXPECT_THROW(saved.read("mask"), CheckpointError);
}

TEST_F(SaveCheckpoint, RangesAreReadIntoContiguousMemoryAlone) {
  Checkpoint saved(save(root_, 1, some_state()).path);
  Tensor apart = at::empty({20, 2}).select(1, 0);
  EXPECT_THROW(saved.read("fc.weight", 0, apart), BugError);
}

TEST_F(SaveCheckpoint, TheDiskOfAFolderHasALimit) {
  const int64_t free = real_disk()->free_bytes(dir_);
  EXPECT_GT(free, 0);
  EXPECT_LT(free, std::numeric_limits<int64_t>::max());
}

TEST_F(SaveCheckpoint, OnlyTheChunksAskedForAreRead) {
  const auto report = save(root_, 1, some_state());
  const std::string file = Checkpoint(report.path).manifest().files[0].name;
  const auto chunk = Checkpoint(report.path).tensor("fc.weight").boxes[0].chunks[3];
  std::fstream bytes(report.path + "/" + file,
                     std::ios::in | std::ios::out | std::ios::binary);
  bytes.seekp(chunk.offset).put('\x55');
  bytes.close();
  Checkpoint saved(report.path);
  auto out = at::empty({chunk.begin});
  saved.read("fc.weight", 0, out);
  auto wider = at::empty({chunk.begin + 1});
  EXPECT_THROW(saved.read("fc.weight", 0, wider), CheckpointError);
}

TEST_F(SaveCheckpoint, WholeTensorsAreOrdinarySafetensors) {
  const auto state = some_state();
  const auto report = save(root_, 1, state);
  const auto file = read_safetensors(report.path + "/model-00001-of-00001.safetensors");
  int found = 0;
  for (const auto& [name, tensor] : file.tensors) {
    if (name == "fc.weight") found += at::equal(tensor, state[0].logical);
    if (name == "conv.weight#0-48") found += at::equal(tensor, state[2].flat);
  }
  EXPECT_EQ(found, 2);
}

TEST_F(SaveCheckpoint, UnchangedChunksAreNotWrittenTwice) {
  auto state = some_state();
  const auto first = save(root_, 1, state, 3);
  EXPECT_EQ(first.linked_bytes, 0);
  state[0].flat[100] = -1.0f;
  const auto second = save(root_, 2, state, 3);
  EXPECT_EQ(second.written_bytes, kSmallChunk);
  EXPECT_EQ(second.linked_bytes, first.written_bytes - kSmallChunk);
  EXPECT_TRUE(fs::exists(second.path + "/model-00001-of-00001.safetensors"));
  expect_state(second.path, state);

  const auto third = save(root_, 3, state, 3);
  // The second's own file is more header than data: not worth keeping alive.
  EXPECT_EQ(third.written_bytes, kSmallChunk);
  fs::remove_all(first.path);
  fs::remove_all(second.path);
  expect_state(third.path, state);  // whole without the ones it shared with
}

TEST_F(SaveCheckpoint, AFileOfWhichLittleIsWantedIsNotKeptAlive) {
  auto state = some_state();
  const auto first = save(root_, 1, state);
  for (auto& [tensor, flat, logical] : state) {
    if (tensor.spec.name == "fc.half" || flat.numel() == 0) continue;
    if (flat.is_floating_point()) flat.add_(1);
  }
  state = {state[0], state[1], state[3]};
  const auto second = save(root_, 2, state);
  EXPECT_EQ(second.linked_bytes, 0);
  for (const auto& entry : fs::directory_iterator(second.path))
    EXPECT_EQ(fs::hard_link_count(entry.path()), 1u) << entry.path();
}

TEST_F(SaveCheckpoint, DamageIsNotShared) {
  const auto state = some_state();
  const auto first = save(root_, 1, state);
  const fs::path path = first.path + "/model-00001-of-00001.safetensors";
  const auto chunk = Checkpoint(first.path).tensor("fc.weight").boxes[0].chunks[3];
  for (const int64_t at : {chunk.offset, int64_t{20}}) {  // data, then the header
    std::fstream bytes(path, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(at).put('\x55');
    bytes.close();
    fs::remove_all(root_ + "/step-00000002");
    const auto second = save(root_, 2, state);
    EXPECT_EQ(second.written_bytes, at == 20 ? first.written_bytes : kSmallChunk);
    expect_state(second.path, state);
    EXPECT_FALSE(Checkpoint(first.path).verify().empty());
  }
}

TEST_F(SaveCheckpoint, ACheckpointOfTheSameStepIsReplaced) {
  save(root_, 5, some_state());
  const auto report = save(root_, 5, some_state(3));
  expect_state(report.path, some_state(3));
  EXPECT_EQ(hidden_entries(root_), 0);
  save(root_, 5, some_state(3));
  save(root_, 5, some_state(3));
  expect_state(report.path, some_state(3));
}

TEST_F(SaveCheckpoint, WhatNobodyOrTwoOwnIsNamedOnEveryRank) {
  const auto state = some_state();
  for (const int given : {1, 3}) {  // 1: rank 1 gives nothing; 3: rank 2 adds rank 1's
    const auto errors = on_ranks(3, [&](const TextExchange& exchange) {
      const auto disk = real_disk();
      CheckpointWriter writer(root_, {.chunk_bytes = kSmallChunk}, *disk);
      auto pieces = shard(state, exchange.rank, 3);
      if (given == 1 && exchange.rank == 1) pieces.clear();
      if (given == 3 && exchange.rank == 2) pieces.push_back(shard(state, 1, 3)[0]);
      writer.save(at_step(1), pieces, exchange);
    });
    EXPECT_THAT(errors, Each(HasSubstr(given == 1 ? "are missing" : "twice")));
    EXPECT_THAT(errors, Each(AllOf(HasSubstr("tensor '"), HasSubstr("elements"))));
    EXPECT_FALSE(latest_checkpoint(root_));
    EXPECT_EQ(hidden_entries(root_), 0);
  }
}

TEST_F(SaveCheckpoint, OneRanksFailureIsEveryRanksError) {
  const auto state = some_state();
  const auto first = save(root_, 1, state);
  const auto errors = on_ranks(3, [&](const TextExchange& exchange) {
    FailingDisk broken(200);
    const auto disk = real_disk();
    CheckpointWriter writer(root_, {.chunk_bytes = kSmallChunk},
                            exchange.rank == 2 ? static_cast<Disk&>(broken) : *disk);
    writer.save(at_step(2), shard(some_state(1), exchange.rank, 3), exchange);
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("dead"), HasSubstr("(rank 2)"))));
  EXPECT_EQ(latest_checkpoint(root_), first.path);
  EXPECT_EQ(hidden_entries(root_), 0);
}

TEST_F(SaveCheckpoint, APieceThatDoesNotFitIsNamed) {
  const auto disk = real_disk();
  CheckpointWriter writer(root_, {}, *disk);
  const auto error_of = [&](StatePiece piece) -> std::string {
    return test::message_of<CheckpointError>(
        [&] { writer.save(at_step(1), std::vector<StatePiece>{std::move(piece)}); });
  };
  auto piece = whole_piece("w", at::ones({4, 4}), TensorKind::kParameter);
  EXPECT_EQ(error_of(piece), "no error");
  auto bad = piece;
  bad.tensor.spec.end = 12;
  EXPECT_THAT(error_of(bad), AllOf(HasSubstr("'w'"), HasSubstr("16 elements")));
  bad = piece;
  bad.data = piece.data.to(at::kDouble);
  EXPECT_THAT(error_of(bad), AllOf(HasSubstr("'w'"), HasSubstr("Double")));
  bad = piece;
  bad.data = piece.data.t();
  EXPECT_THAT(error_of(bad), HasSubstr("contiguous"));
  bad.data = Tensor();
  EXPECT_THAT(error_of(bad), HasSubstr("undefined"));
  EXPECT_THAT(error_of(whole_piece("\xff", at::ones({1}), TensorKind::kBuffer)),
              HasSubstr("UTF-8"));
}

TEST_F(SaveCheckpoint, ATensorThatIsNotThereIsNamedWithTheNearest) {
  const auto report = save(root_, 1, some_state());
  Checkpoint saved(report.path);
  auto out = at::empty({1});
  EXPECT_THAT(
      test::message_of<CheckpointError>([&] { saved.read("fc.weigth", 0, out); }),
      AllOf(HasSubstr("'fc.weigth'"), HasSubstr("'fc.weight'")));
  EXPECT_THROW(saved.read("fc.weight", 231, out), CheckpointError);
  EXPECT_THROW(saved.read("fc.weight", -1, out), CheckpointError);
}

}  // namespace
}  // namespace cohort
