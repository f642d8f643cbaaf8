// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <filesystem>
#include <fstream>

#include "cohort/checkpoint.h"
#include "cohort/core/testing_error.h"
#include "cohort/core/testing_folder.h"
#include "cohort/data_parallel.h"
#include "support/ranks.h"
#include "support/sine_weights.h"

namespace cohort {
namespace {

using test::message_of;
using testing::HasSubstr;

struct SavedNet : torch::nn::Module {
  explicit SavedNet(int64_t width = 30)
      : first(40, width), norm(width), second(width, 5) {
    register_module("first", first);
    register_module("norm", norm);
    register_module("second", second);
    test::fill_with_sines(parameters());
  }
  Tensor forward(const Tensor& x) { return second(norm(first(x)).tanh()); }
  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear second;
};

// All ranks have the same rows, so that any number of them makes the same step.
Tensor loss_of(SavedNet& net, int64_t step) {
  const Tensor rows = at::arange(8 * 40, at::kFloat).mul(0.1).add(step).cos();
  return net.forward(rows.reshape({8, 40})).square().mean();
}

std::vector<Tensor> values_of(const SavedNet& net) {
  std::vector<Tensor> all;
  for (const auto& tensor : net.parameters()) all.push_back(tensor.detach().clone());
  for (const auto& tensor : net.buffers()) all.push_back(tensor.detach().clone());
  return all;
}

void expect_same(const std::vector<Tensor>& ours, const std::vector<Tensor>& wanted) {
  ASSERT_EQ(ours.size(), wanted.size());
  for (size_t i = 0; i < ours.size(); ++i)
    EXPECT_TRUE(at::equal(ours[i], wanted[i])) << "tensor " << i;
}

struct OwnLoop {
  explicit OwnLoop(Communicator& comm)
      : optimizer(net.parameters(), torch::optim::AdamWOptions(0.01)),
        parallel(net, comm) {}
  void step(int64_t number) {
    parallel.backward(loss_of(net, number), 8);
    optimizer.step();
  }
  SavedNet net;
  torch::optim::AdamW optimizer;
  DataParallel parallel;
};

test::World threads(int size) { return {.backend = "local", .size = size}; }

TEST(Checkpoints, ALoopGoesOnWhereItWas) {
  const test::TempFolder folder;
  test::run_ranks(threads(2), [&](Communicator& comm) {
    OwnLoop loop(comm);
    std::string note = "of rank 0";
    Checkpoints saved(folder / "runs", comm);
    saved.keep(loop.net)
        .keep(loop.optimizer)
        .keep(
            "note", [&] { return note; },
            [&](const std::string& bytes) { note = bytes; });
    EXPECT_FALSE(saved.resume());
    for (int64_t step = 0; step < 3; ++step) loop.step(step);
    EXPECT_THAT(saved.save(3), HasSubstr("step-00000003"));
    const auto then = values_of(loop.net);
    for (int64_t step = 3; step < 5; ++step) loop.step(step);
    const auto undisturbed = values_of(loop.net);

    note = "another";
    EXPECT_EQ(saved.resume(), 3);
    EXPECT_EQ(note, "of rank 0");
    expect_same(values_of(loop.net), then);
    for (int64_t step = 3; step < 5; ++step) loop.step(step);
    expect_same(values_of(loop.net), undisturbed);
  });
}

class ShardedCheckpoints : public testing::TestWithParam<int> {};

// Every rank has the same gradient, so the sums of 2 ranks are those of 4, doubled and
// divided: the same bits.
TEST_P(ShardedCheckpoints, AnotherNumberOfRanksGoesOn) {
  const test::TempFolder folder;
  const ShardedOptions options{
      .level = GetParam(), .update = {.name = "adamw"}, .bucket_bytes = 2048};
  const auto train = [&](SavedNet& net, Sharded& sharded, int64_t from, int64_t to) {
    for (int64_t step = from; step < to; ++step) {
      sharded.backward(loss_of(net, step), 8);
      sharded.step(0.01);
    }
  };
  test::run_ranks(threads(2), [&](Communicator& comm) {
    SavedNet net;
    Sharded sharded(net, comm, options);
    Checkpoints saved(folder.path(), comm);
    saved.keep(sharded);
    train(net, sharded, 0, 3);
    saved.save(3);
  });
  test::run_ranks(threads(4), [&](Communicator& comm) {
    SavedNet net, other;
    Sharded sharded(net, comm, options), undisturbed(other, comm, options);
    train(other, undisturbed, 0, 5);
    Checkpoints saved(folder.path(), comm);
    saved.keep(sharded);
    ASSERT_EQ(saved.resume(), 3);
    train(net, sharded, 3, 5);
    expect_same(values_of(net), values_of(other));
  });
}

INSTANTIATE_TEST_SUITE_P(Levels, ShardedCheckpoints, testing::Values(0, 1, 2));

TEST(Checkpoints, AModelOfAnotherShapeIsRefusedOnEveryRank) {
  const test::TempFolder folder;
  test::run_ranks(threads(3), [&](Communicator& comm) {
    SavedNet net, wide(31);
    Checkpoints saved(folder.path(), comm);
    saved.keep(net);
    saved.save(1);
    comm.barrier().wait();
    SavedNet& mine = comm.rank() == 1 ? wide : net;  // on one of them alone
    Checkpoints again(folder / "other", comm);
    again.keep(mine);
    if (comm.rank() == 0)
      std::filesystem::copy(folder / "step-00000001", folder / "other/step-00000001");
    comm.barrier().wait();
    EXPECT_THAT(message_of<CheckpointError>([&] { again.resume(); }),
                HasSubstr("first.weight"));
  });
}

TEST(Checkpoints, AFolderThatAnotherRunWritesToIsRefused) {
  const test::TempFolder folder;
  test::run_ranks(threads(2), [&](Communicator& comm) {
    const Checkpoints first(folder.path(), comm);
    EXPECT_THAT(message_of<ConfigError>([&] { Checkpoints(folder.path(), comm); }),
                HasSubstr(folder.path()));
  });
}

// The file of a checkpoint that holds tensors, with one byte changed.
void damage(const std::string& checkpoint) {
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint)) {
    if (entry.path().extension() != ".safetensors") continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-1, std::ios::end);
    const char last = static_cast<char>(file.get());
    file.seekp(-1, std::ios::end);
    file.put(static_cast<char>(~last));
  }
}

TEST(Checkpoints, ADamagedOneIsPassedOverAndNamed) {
  const test::TempFolder folder;
  test::run_ranks(threads(2), [&](Communicator& comm) {
    SavedNet net;
    Checkpoints saved(folder.path(), comm);
    saved.keep(net);
    saved.save(1);
    const auto first = values_of(net);
    for (auto& parameter : net.parameters()) parameter.data().add_(1);
    const std::string second = saved.save(2);
    if (comm.rank() == 0) damage(second);
    comm.barrier().wait();
    EXPECT_EQ(saved.resume(), 1);
    expect_same(values_of(net), first);
    EXPECT_THAT(saved.passed_over(), testing::ElementsAre(HasSubstr("step-00000002")));

    if (comm.rank() == 0)
      std::filesystem::resize_file(folder / "step-00000001/manifest.json", 9);
    comm.barrier().wait();
    EXPECT_THAT(message_of<CheckpointError>([&] { saved.resume(); }),
                HasSubstr("step-0000000"));
  });
}

TEST(Checkpoints, AFolderOfAnotherRunIsNotWrittenTo) {
  const test::TempFolder folder;
  test::run_ranks(threads(2), [&](Communicator& comm) {
    SavedNet net;
    {
      Checkpoints saved(folder.path(), comm);
      saved.keep(net);
      saved.save(7);
      saved.save(8);  // its own
    }
    comm.barrier().wait();
    Checkpoints again(folder.path(), comm);
    again.keep(net);
    EXPECT_THAT(message_of<ConfigError>([&] { again.save(1); }),
                HasSubstr("resume() before the first save()"));
    EXPECT_EQ(again.resume(), 8);
    again.save(9);
  });
}

TEST(Checkpoints, AnOptimizerOfAnotherKindIsNamed) {
  const test::TempFolder folder;
  test::run_ranks(threads(2), [&](Communicator& comm) {
    OwnLoop loop(comm);
    loop.step(0);
    {
      Checkpoints saved(folder.path(), comm);
      saved.keep(loop.net).keep(loop.optimizer).save(1);
    }
    comm.barrier().wait();
    torch::optim::SGD other(loop.net.parameters(),
                            torch::optim::SGDOptions(0.1).momentum(0.9));
    Checkpoints saved(folder.path(), comm);
    saved.keep(loop.net).keep(other);
    EXPECT_THAT(message_of<CheckpointError>([&] { saved.resume(); }),
                HasSubstr("optimizer.bytes does not fit"));
  });
}

TEST(Checkpoints, WhatIsNoNameIsRefused) {
  const test::TempFolder folder;
  test::run_ranks(threads(1), [&](Communicator& comm) {
    Checkpoints saved(folder.path(), comm);
    const auto keep = [&](const std::string& name) {
      saved.keep(
          name, [] { return ""; }, [](const std::string&) {});
    };
    EXPECT_THAT(message_of<ConfigError>([&] { keep("a.b"); }), HasSubstr("legal"));
    keep("once");
    EXPECT_THAT(message_of<ConfigError>([&] { keep("once"); }), HasSubstr("already"));
  });
}

}  // namespace
}  // namespace cohort
