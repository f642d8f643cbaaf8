// SPDX-License-Identifier: Apache-2.0
#include "cohort/elastic/state_exchange.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "cohort/core/error.h"
#include "cohort/elastic/state_listing.h"
#include "support/ranks.h"

namespace cohort {
namespace {

using test::run_ranks;
using test::World;

constexpr int64_t kCount = 1000;

Tensor truth(const std::string& name) {
  return at::arange(kCount, at::kFloat).add(name == "a" ? 0.5 : 0.25);
}

StatePiece piece(const std::string& name, int64_t begin, int64_t end, bool filled) {
  StatePiece out{
      {.spec = {.name = name, .shape = {10, 100}, .begin = begin, .end = end}},
      at::full({end - begin}, -1, at::kFloat)};
  if (filled) out.data.copy_(truth(name).narrow(0, begin, end - begin));
  return out;
}

// Adds shard `shard` of `shards` of each of the two tensors.
void add_shard(std::vector<StatePiece>& pieces, int shard, int shards, bool filled) {
  for (const char* name : {"a", "b"})
    pieces.push_back(
        piece(name, kCount * shard / shards, kCount * (shard + 1) / shards, filled));
}

void expect_true(const std::vector<StatePiece>& pieces) {
  for (const auto& [tensor, data] : pieces)
    EXPECT_TRUE(at::equal(
        data, truth(tensor.spec.name)
                  .narrow(0, tensor.spec.begin, tensor.spec.end - tensor.spec.begin)));
}

class StateExchange : public testing::TestWithParam<World> {};

TEST_P(StateExchange, WholeStateComesTogetherFromShards) {
  run_ranks(GetParam(), [](Communicator& comm) {
    std::vector<StatePiece> have, want;
    add_shard(have, comm.rank(), comm.size(), true);
    add_shard(want, 0, 1, false);
    EXPECT_EQ(exchange_state(comm, have, want), "");
    expect_true(want);
  });
}

// Each rank has its own shard and its predecessor's, but for the last, which is new.
TEST_P(StateExchange, ANewcomerIsServedByTheNeighbourWhoHasACopy) {
  if (GetParam().size < 2) return;  // one rank has no neighbour
  run_ranks(GetParam(), [](Communicator& comm) {
    const int size = comm.size(), rank = comm.rank();
    std::vector<StatePiece> have, want;
    if (rank + 1 < size) {
      add_shard(have, rank, size, true);
      add_shard(have, (rank + size - 1) % size, size, true);
    }
    add_shard(want, size - 1 - rank, size, false);
    EXPECT_EQ(exchange_state(comm, have, want), "");
    expect_true(want);
  });
}

TEST_P(StateExchange, WhatNobodyHasIsNamedEverywhereAndNothingMoves) {
  run_ranks(GetParam(), [](Communicator& comm) {
    std::vector<StatePiece> have, want;
    have.push_back(piece("a", 0, 600, true));
    want.push_back(piece("a", 0, kCount, false));
    EXPECT_EQ(exchange_state(comm, have, want), "elements from 600 on of a are lost");
    EXPECT_TRUE(at::all(want[0].data == -1).item<bool>());
  });
}

TEST_P(StateExchange, MemoryMayBeItsOwnTarget) {
  run_ranks(GetParam(), [](Communicator& comm) {
    std::vector<StatePiece> have;
    add_shard(have, 0, 1, true);
    EXPECT_EQ(exchange_state(comm, have, have), "");
    expect_true(have);
  });
}

// Columns of a (10, 100) matrix, each box cut into two ranges.
StatePiece columns(const std::string& name, int rank, int size, bool filled) {
  const int64_t boxes = (size + 1) / 2, box = rank / 2;
  const bool alone = box == boxes - 1 && size % 2 == 1;
  StatePiece out = piece(name, 0, 0, false);
  TensorSpec& spec = out.tensor.spec;
  spec.box = {.cut = {10, 100},
              .from = {0, 100 * box / boxes},
              .to = {10, 100 * (box + 1) / boxes}};
  const int64_t half = spec.box_numel() / 2;
  spec.begin = rank % 2 == 1 ? half : 0;
  spec.end = alone || rank % 2 == 1 ? spec.box_numel() : half;
  const Tensor all = truth(name)
                         .view({10, 100})
                         .slice(1, spec.box.from[1], spec.box.to[1])
                         .contiguous()
                         .view({-1});
  out.data = all.narrow(0, spec.begin, spec.end - spec.begin).clone();
  if (!filled) out.data.fill_(-1);
  return out;
}

TEST_P(StateExchange, BoxesComeFromRangesAndRangesFromBoxes) {
  run_ranks(GetParam(), [](Communicator& comm) {
    const int size = comm.size(), rank = comm.rank();
    std::vector<StatePiece> ranges, boxes, whole;
    add_shard(ranges, rank, size, true);
    for (const char* name : {"a", "b"})
      boxes.push_back(columns(name, size - 1 - rank, size, false));
    EXPECT_EQ(exchange_state(comm, ranges, boxes), "");
    for (const auto& box : boxes)
      EXPECT_TRUE(at::equal(
          box.data, columns(box.tensor.spec.name, size - 1 - rank, size, true).data));
    EXPECT_EQ(compare_held(comm, boxes).what, "");
    add_shard(whole, (rank + 1) % size, size, false);
    EXPECT_EQ(exchange_state(comm, boxes, whole), "");
    expect_true(whole);
  });
}

TEST_P(StateExchange, ABoxThatNobodyHasIsNamed) {
  run_ranks(GetParam(), [](Communicator& comm) {
    const std::vector have{piece("a", 0, 500, true)};
    const std::vector want{columns("a", 0, 2, false)};
    EXPECT_EQ(exchange_state(comm, have, want), "");
    const std::vector all{columns("a", 0, 1, false)};
    EXPECT_EQ(exchange_state(comm, have, all),
              "elements from 500 on of a[0:10,0:100] are lost");
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, StateExchange,
                         testing::ValuesIn(std::vector<World>{
                             {"local", 1}, {"local", 2}, {"local", 3}, {"shm", 4}}),
                         test::world_name);

TEST(StateListing, OfAPeerThatMakesNoSenseIsRefused) {
  const auto mine = to_record(list_state(std::vector{piece("a", 0, 10, true)}, {}));
  ASSERT_EQ(read_listing(mine).have.size(), 1u);
  EXPECT_EQ(read_listing(mine).have[0].end, 10);
  const auto record_of = [](const Listing& one) {
    return to_record(StateListing{.have = {one}, .want = {}});
  };
  const TensorBox box{{9}, {0}, {2}};
  EXPECT_EQ(read_listing(record_of({"a", box, 0, 2, 4})).have[0].box, box);
  const std::string no_more = mine.substr(0, mine.size() - 1);
  for (const auto& list : {std::string(), std::string("x"), no_more})
    EXPECT_THROW(read_listing(list), CommError) << list;
  const std::vector<int64_t> long_cut(65, 1), zeros(65, 0), giant(2, int64_t{1} << 32);
  const Listing wrong[] = {{"a", {}, 5, 1, 4},
                           {"a", {}, 0, 1, 0},
                           {"a", {}, 0, 9'000'000'000'000'000'000, 8},
                           {"a", {}, -1, 1, 4},
                           {"a", {long_cut, zeros, long_cut}, 0, 1, 4},
                           {"a", {{9}, {0}, {}}, 0, 1, 4},
                           {"a", {{9}, {0}, {10}}, 0, 1, 4},
                           {"a", box, 0, 3, 4},
                           {"a", {giant, {0, 0}, {1, 1}}, 0, 1, 4}};
  for (const auto& one : wrong) {
    EXPECT_THROW(read_listing(record_of(one)), CommError);
    const auto wanted = to_record(StateListing{.have = {}, .want = {one}});
    EXPECT_THROW(read_listing(wanted), CommError);
  }
}

}  // namespace
}  // namespace cohort
