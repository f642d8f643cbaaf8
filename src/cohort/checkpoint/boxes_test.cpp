// SPDX-License-Identifier: Apache-2.0
// State that is cut into boxes, saved and loaded by ranks with other cuts.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

#include "cohort/checkpoint/load.h"
#include "cohort/checkpoint/testing_checkpoint.h"
#include "cohort/step/weights_hash.h"

namespace cohort {
namespace {

using test::at_step;
using test::error_of;
using test::item;
using test::StateItem;
using testing::AllOf;
using testing::HasSubstr;

class Boxes : public test::CheckpointFolder {};

// A way to cut a tensor among ranks.
struct Cut {
  std::string name;
  std::vector<int64_t> shape;  // empty: the box is the whole tensor
  int64_t dim = 0;             // along which ranks have boxes
  int64_t ranges = 1;          // ranks that divide a box among them
};

// (8, 6, 2) lies in memory as (8, 6, 2), or as (2, 8, 6) if it is turned.
const std::vector<Cut>& every_cut() {
  static const std::vector<Cut> cuts{
      {"ranges", {}, 0, 6},       {"rows", {8, 12}, 0, 2},
      {"columns", {16, 6}, 1, 1}, {"columns and ranges", {8, 12}, 1, 3},
      {"heads", {2, 6, 8}, 1, 2}, {"reshaped", {4, 3, 8}, 2, 1}};
  return cuts;
}

std::vector<StateItem> cut_state(double shift = 0) {
  const Tensor w = at::arange(96, at::kFloat).add(shift).view({8, 6, 2});
  return {item("turned", w.permute({2, 0, 1}).contiguous().permute({1, 2, 0}) * 2),
          item("w", w)};
}

StatePiece piece_of(const StateItem& whole, const Cut& cut, int rank, int size) {
  StatePiece piece{whole.tensor, whole.flat};
  TensorSpec& spec = piece.tensor.spec;
  const int64_t groups = size / cut.ranges, group = rank / cut.ranges;
  if (!cut.shape.empty()) {
    const int64_t n = cut.shape[cut.dim];
    spec.box = {cut.shape, std::vector<int64_t>(cut.shape.size(), 0), cut.shape};
    spec.box.from[cut.dim] = n * group / groups;
    spec.box.to[cut.dim] = n * (group + 1) / groups;
    piece.data = whole.flat.view(cut.shape)
                     .slice(cut.dim, spec.box.from[cut.dim], spec.box.to[cut.dim])
                     .contiguous()
                     .view({-1});
  }
  const int64_t part = rank % cut.ranges;
  spec.begin = piece.data.numel() * part / cut.ranges;
  spec.end = piece.data.numel() * (part + 1) / cut.ranges;
  piece.data = piece.data.narrow(0, spec.begin, spec.end - spec.begin).clone();
  return piece;
}

std::vector<StatePiece> pieces_of(const std::vector<StateItem>& state, const Cut& cut,
                                  int rank, int size) {
  std::vector<StatePiece> pieces;
  for (const auto& whole : state) pieces.push_back(piece_of(whole, cut, rank, size));
  return pieces;
}

constexpr int kRanks = 6;

SaveReport save_cut(const std::string& root, int64_t step,
                    const std::vector<StateItem>& state, const Cut& cut) {
  SaveReport report;
  const auto errors = test::on_ranks(kRanks, [&](const TextExchange& exchange) {
    test::FailingDisk disk(test::kForever);
    CheckpointWriter writer(root, {.chunk_bytes = test::kSmallChunk}, disk);
    const auto mine = writer.save(
        at_step(step), pieces_of(state, cut, exchange.rank, kRanks), exchange);
    if (exchange.rank == 0) report = mine;
  });
  for (const auto& error : errors) EXPECT_EQ(error, "");
  return report;
}

TEST_F(Boxes, ASavedCutLoadsAsEveryOtherAndWhole) {
  const auto state = cut_state();
  int64_t step = 0;
  for (const auto& saved_as : every_cut()) {
    const auto report = save_cut(root_, ++step, state, saved_as);
    test::expect_state(report.path, state);
    Checkpoint saved(report.path);
    for (const auto& cut : every_cut()) {
      for (int rank = 0; rank < kRanks; ++rank) {
        const auto expected = pieces_of(state, cut, rank, kRanks);
        auto pieces = expected;
        for (auto& piece : pieces) piece.data = at::full_like(piece.data, -1);
        load_pieces(saved, pieces);
        for (size_t i = 0; i < pieces.size(); ++i)
          EXPECT_TRUE(at::equal(pieces[i].data, expected[i].data))
              << pieces[i].tensor.spec.name << " saved as " << saved_as.name
              << ", loaded as " << cut.name << " by rank " << rank;
      }
    }
  }
}

TEST_F(Boxes, LoadInAnotherDtypeAndMemoryOrder) {
  const auto state = cut_state();
  const auto path = save_cut(root_, 1, state, every_cut()[2]).path;
  Checkpoint saved(path);
  StateItem wanted = item("turned", state[0].logical.contiguous());  // row-major here
  auto piece = piece_of(wanted, every_cut()[3], 4, kRanks);
  const Tensor expected = piece.data.to(at::kDouble);
  piece.data = at::zeros_like(expected);
  load_pieces(saved, std::span(&piece, 1));
  EXPECT_TRUE(at::equal(piece.data, expected));
}

TEST_F(Boxes, HashesOfBoxesAreThoseOfTheWhole) {
  const auto state = cut_state();
  std::vector<NamedTensor> whole;
  for (const auto& one : state) whole.push_back({one.tensor.spec.name, one.logical});
  for (const auto& cut : every_cut()) {
    uint64_t sum = 0;
    for (const auto& one : state) sum += hash_term(one.tensor.spec);
    for (int rank = 0; rank < kRanks; ++rank)
      for (const auto& piece : pieces_of(state, cut, rank, kRanks))
        sum += hash_elements(piece);
    EXPECT_EQ(sum, weights_hash_number(whole)) << cut.name;
  }
}

TEST_F(Boxes, TheSameCutIsSharedAndAnotherIsWritten) {
  // Large enough for a file to be more than its header.
  const std::vector<StateItem> state{
      item("w", at::arange(9600, at::kFloat).view({80, 120}))};
  const Cut columns{"columns", {80, 120}, 1, 3};
  (void)save_cut(root_, 1, state, columns);
  EXPECT_EQ(save_cut(root_, 2, state, columns).written_bytes, 0);
  const auto other = save_cut(root_, 3, state, {"rows", {80, 120}, 0, 1});
  EXPECT_EQ(other.linked_bytes, 0);
  test::expect_state(other.path, state);
}

TEST_F(Boxes, RanksThatCutInTwoWaysAreRefused) {
  const auto state = cut_state();
  const auto errors = test::on_ranks(2, [&](const TextExchange& exchange) {
    test::FailingDisk disk(test::kForever);
    CheckpointWriter writer(root_, {}, disk);
    Cut cut{"rows", {8, 12}, 0, 1};
    if (exchange.rank == 1) cut = {"columns", {16, 6}, 1, 1};
    writer.save(at_step(1), pieces_of(state, cut, exchange.rank, 2), exchange);
  });
  for (const auto& error : errors)
    EXPECT_THAT(error, AllOf(HasSubstr("'turned'"), HasSubstr("cut in two ways")));
}

TEST_F(Boxes, ABoxThatIsNoneIsNamedBeforeAnythingIsWritten) {
  auto pieces = pieces_of(cut_state(), every_cut()[3], 0, kRanks);
  pieces[0].tensor.spec.box.cut = {7, 12};
  test::FailingDisk disk(test::kForever);
  CheckpointWriter writer(root_, {}, disk);
  EXPECT_THAT(error_of([&] { (void)writer.save(at_step(1), pieces); }),
              AllOf(HasSubstr("'turned'"), HasSubstr("7x12; legal: a shape of 96")));
}

TEST_F(Boxes, DamageNamesTheBox) {
  const auto report = save_cut(root_, 1, cut_state(), every_cut()[3]);
  Checkpoint saved(report.path);
  const TensorRecord record = saved.tensor("w");
  const SavedChunk chunk = record.boxes[1].chunks[0];
  const std::string file = report.path + "/" + saved.manifest().files[chunk.file].name;
  std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
  bytes.seekp(chunk.offset);
  bytes.put('!');
  bytes.close();
  const auto troubles = Checkpoint(report.path).verify();
  ASSERT_EQ(troubles.size(), 1u);
  EXPECT_THAT(troubles[0], HasSubstr(text("tensor 'w'", box_text(record.boxes[1].box),
                                          ", elements ", chunk.begin)));
}

}  // namespace
}  // namespace cohort
