// SPDX-License-Identifier: Apache-2.0
// The bytes that the checker counts for each rank are those that a step gives to its
// communicators.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "cohort/engine/block_count.h"
#include "cohort/engine/executor.h"
#include "cohort/nn/language_models.h"
#include "cohort/nn/without_memory.h"
#include "cohort/step/checker.h"
#include "cohort/step/generator.h"
#include "support/forwarding_communicator.h"
#include "support/ranks.h"

namespace cohort {
namespace {

// Adds up what goes through it and its splits. Rings send and receive alike.
class CountingCommunicator : public test::ForwardingCommunicator {
 public:
  CountingCommunicator(Communicator& inner, std::vector<int> members, const Mesh& mesh,
                       RoleVolume& moved)
      : ForwardingCommunicator(inner),
        inner_(inner),
        members_(std::move(members)),
        mesh_(mesh),
        moved_(moved) {}

  Work all_reduce(Tensor& tensor, ReduceOp op) override {
    count_ring(2, tensor);
    return inner_.all_reduce(tensor, op);
  }
  Work reduce_scatter(Tensor& out, const Tensor& in, ReduceOp op) override {
    count_ring(1, in);
    return inner_.reduce_scatter(out, in, op);
  }
  Work all_gather(Tensor& out, const Tensor& shard) override {
    count_ring(1, out);
    return inner_.all_gather(out, shard);
  }
  Work broadcast(Tensor& tensor, int root) override {
    way().sent += bytes_of(tensor);
    way().received += bytes_of(tensor);
    return inner_.broadcast(tensor, root);
  }
  Work all_to_all(Tensor& out, const Tensor& in, std::span<const int64_t> out_rows,
                  std::span<const int64_t> in_rows) override {
    way().sent += (size() - 1) * bytes_of(in) / size();
    way().received += (size() - 1) * bytes_of(out) / size();
    return inner_.all_to_all(out, in, out_rows, in_rows);
  }
  Work exchange(std::span<const Transfer> sends,
                std::span<const Transfer> receives) override {
    for (const auto& [peer, tensor] : sends)
      moved_.links.sent += bytes_of_value(tensor);
    for (const auto& [peer, tensor] : receives)
      moved_.links.received += bytes_of_value(tensor);
    return inner_.exchange(sends, receives);
  }
  std::unique_ptr<Communicator> split(int color) override;

 protected:
  bool is_part_ = false;

 private:
  static double bytes_of(const Tensor& tensor) {
    return static_cast<double>(tensor.nbytes());
  }
  // Whole numbers over links say which form a value has: 8 bytes, which nothing plans.
  static double bytes_of_value(const Tensor& tensor) {
    return tensor.is_floating_point() ? bytes_of(tensor) : 0;
  }
  // Tensors are cut between ranks that meet inside blocks, and nowhere else but in the
  // world, where no more ranks are.
  MovedBytes& way() {
    const bool in_blocks = is_part_ && size() > 1 &&
                           mesh_.members(members_[rank()], kTensorAxis) == members_;
    return in_blocks ? moved_.blocks : moved_.groups;
  }
  void count_ring(int rounds, const Tensor& whole) {
    const double moved = rounds * (size() - 1) * bytes_of(whole) / size();
    way().sent += moved;
    way().received += moved;
  }

  Communicator& inner_;
  std::vector<int> members_;  // ranks of the world
  const Mesh& mesh_;
  RoleVolume& moved_;
};

class CountingPart final : public CountingCommunicator {
 public:
  CountingPart(std::unique_ptr<Communicator> inner, std::vector<int> members,
               const Mesh& mesh, RoleVolume& moved)
      : CountingCommunicator(*inner, std::move(members), mesh, moved),
        part_(std::move(inner)) {
    is_part_ = true;
  }

 private:
  std::unique_ptr<Communicator> part_;
};

std::unique_ptr<Communicator> CountingCommunicator::split(int color) {
  auto part = inner_.split(color);
  if (!part) return nullptr;
  Tensor ranks = at::empty({part->size()}, at::kInt);
  part->all_gather(ranks, at::full({1}, members_[rank()], at::kInt)).wait();
  const int* const first = ranks.const_data_ptr<int>();
  return std::make_unique<CountingPart>(
      std::move(part), std::vector<int>(first, first + ranks.numel()), mesh_, moved_);
}

constexpr int64_t kVolumeTokens = 8, kVolumeSamples = 2;

Chain small_gpt(const TensorPart& part) {
  return make_gpt(
      {.vocab = 50, .context = kVolumeTokens, .width = 16, .depth = 4, .heads = 4},
      {.seed = 3, .tensor = part});
}

Batch some_tokens(int64_t samples, at::Device device) {
  const Tensor tokens =
      at::arange(samples * kVolumeTokens, at::TensorOptions(device).dtype(at::kLong))
          .remainder(50)
          .reshape({samples, kVolumeTokens});
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < samples; ++i) ids.push_back(i);
  return Batch::of({{"tokens", tokens}, {"target", tokens}}, ids);
}

Schedule planned(const Chain& chain, const TensorPart& part, const Layout& layout,
                 const char* order) {
  auto specs = specs_of(chain);
  {
    const ModelsWithoutMemory shapes_alone;
    const auto counts = count_blocks(
        small_gpt(part), [](int64_t n) { return some_tokens(n, at::kMeta); }, 2);
    set_bytes(needs_of(counts.value()), kVolumeSamples, at::kFloat, specs);
  }
  return generate(specs, layout,
                  {.slices = 4 * layout.dp,
                   .pipeline = parse_pipeline({.schedule = order}),
                   .bucket_bytes = 4'000,
                   .shares_memory = false});
}

struct VolumeCase {
  Layout layout;
  const char* order = "1f1b";
};

std::ostream& operator<<(std::ostream& out, const VolumeCase& c) {
  return out << c.layout.text() << " " << c.order;
}

class Volume : public testing::TestWithParam<VolumeCase> {};

// The first step also sends the forms of what follows over links.
TEST_P(Volume, IsWhatAStepGivesToItsCommunicators) {
  const auto& [layout, order] = GetParam();
  const Mesh mesh(layout);
  std::vector<int> all(layout.world());
  for (int r = 0; r < layout.world(); ++r) all[r] = r;
  std::mutex mutex;
  test::run_local_ranks(layout.world(), 0, [&](Communicator& comm) {
    const TensorPart part{.rank = mesh.coordinate(comm.rank(), Axis::kTensor),
                          .size = layout.tp};
    Chain chain = small_gpt(part);
    const Schedule schedule = planned(chain, part, layout, order);
    const CheckReport report = check(schedule, {});
    RoleVolume moved;
    CountingCommunicator counting(comm, all, mesh, moved);
    const auto rule = make_update_rule({.name = "sgd"});
    Executor executor(chain, schedule, *rule, counting, {});
    const Batch batch = some_tokens(kVolumeSamples, at::kCPU);
    for (int64_t step = 0; step < 2; ++step) {
      moved = {};
      executor.run({.step = step, .rate = 0.01, .batch = [&](int) { return batch; }});
    }
    const auto role = &schedule.role_of(comm.rank()) - schedule.roles.data();
    const RoleVolume& counted = report.volumes[static_cast<size_t>(role)];
    const std::lock_guard lock(mutex);
    SCOPED_TRACE(testing::Message() << "rank " << comm.rank());
    const auto expect_same = [](const char* way, MovedBytes foretold, MovedBytes seen) {
      EXPECT_NEAR(foretold.sent, seen.sent, 0.5) << way;
      EXPECT_NEAR(foretold.received, seen.received, 0.5) << way;
    };
    expect_same("between blocks", counted.groups, moved.groups);
    expect_same("inside blocks", counted.blocks, moved.blocks);
    expect_same("over links", counted.links, moved.links);
    EXPECT_EQ(moved.groups.sent > 0, layout.world() > 1);
    EXPECT_EQ(moved.blocks.sent > 0, layout.tp > 1);
    EXPECT_EQ(moved.links.sent > 0, layout.pp > 1);
  });
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, Volume,
    testing::Values(
        VolumeCase{{}}, VolumeCase{{.dp = 3}}, VolumeCase{{.dp = 2, .shard = 1}},
        VolumeCase{{.dp = 2, .shard = 2}}, VolumeCase{{.dp = 3, .shard = 3}},
        VolumeCase{{.tp = 2}}, VolumeCase{{.pp = 3}},
        VolumeCase{{.dp = 2, .tp = 2, .pp = 2}, "gpipe"},
        VolumeCase{{.dp = 2, .tp = 2, .pp = 2, .shard = 1}},
        VolumeCase{{.dp = 2, .tp = 2, .pp = 2, .shard = 2}, "zero-bubble"},
        VolumeCase{{.dp = 2, .tp = 2, .pp = 2, .shard = 3}, "interleaved"}));

}  // namespace
}  // namespace cohort
