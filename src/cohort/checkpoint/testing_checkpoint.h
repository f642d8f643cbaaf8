// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "cohort/checkpoint/checkpoint.h"
#include "cohort/checkpoint/save.h"
#include "cohort/checkpoint/testing_disk.h"
#include "cohort/core/error.h"
#include "cohort/core/testing_error.h"
#include "cohort/core/testing_folder.h"

// For tests: a state of every kind, worlds that save it, disks that fail.
namespace cohort::test {

namespace fs = std::filesystem;

class CheckpointFolder : public testing::Test {
 protected:
  TempFolder folder_;
  std::string dir_ = folder_.path(), root_ = dir_ + "/run";
};

// What CheckpointError `body` ends with, or "no error".
template <typename Body>
std::string error_of(const Body& body) {
  return message_of<CheckpointError>(body);
}

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

// What rank `rank` of `size` owns: an even shard of every tensor, cut anywhere.
inline std::vector<StatePiece> shard(const std::vector<StateItem>& state, int rank,
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
    int size, const std::function<void(const TextExchange&)>& body) {
  const auto exchanges = thread_text_exchanges(size);
  std::vector<std::string> errors(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      try {
        body(exchanges[rank]);
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
  const auto errors = on_ranks(size, [&](const TextExchange& exchange) {
    FailingDisk disk(kForever);
    CheckpointWriter writer(root, {.chunk_bytes = kSmallChunk, .retention = retention},
                            disk);
    const auto mine =
        writer.save(at_step(step), shard(state, exchange.rank, size), exchange);
    if (exchange.rank == 0) report = mine;
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

inline int hidden_entries(const std::string& root) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(root))
    count += entry.path().filename().string().starts_with('.');
  return count;
}

}  // namespace cohort::test
