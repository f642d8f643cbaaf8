// SPDX-License-Identifier: Apache-2.0
// What only a communicator with tensors of the GPU can do. All ranks share one GPU.
#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <string_view>
#include <thread>

#include "cohort/communicator.h"
#include "cohort/core/error.h"
#include "cohort/engine/cuda/cuda_lane.h"
#include "support/ranks.h"

namespace cohort {
namespace {

using namespace std::chrono_literals;
using test::comm_error;
using testing::HasSubstr;

test::World nccl_world(int size, std::chrono::milliseconds timeout = 20s) {
  return {"nccl", size, test::Kind::kProcesses, timeout};
}

// Each claim with each way between ranks of one GPU.
class GpuTensorsTest : public testing::TestWithParam<const char*> {
 protected:
  static test::World world(int size, std::chrono::milliseconds timeout = 20s) {
    auto world = nccl_world(size, timeout);
    const std::string_view way = GetParam();
    if (way == "nccl") return world;
    world.backend = way == "gloo_relay" ? "gloo" : "shm";
    world.windows = way == "windows";
    world.relay = !world.windows;
    return world;
  }
};

// Those ways that calls can be captured with.
class CapturedTensorsTest : public GpuTensorsTest {};
// Those over the host.
class RelayedTensorsTest : public GpuTensorsTest {};

at::TensorOptions on_gpu(at::ScalarType dtype = at::kFloat) {
  return at::TensorOptions().device(at::kCUDA).dtype(dtype);
}

at::Stream other_stream() {
  const c10::impl::VirtualGuardImpl cuda(at::kCUDA);
  return cuda.getStreamFromGlobalPool(cuda.getDevice());
}

double first(const Tensor& tensor) { return tensor.flatten()[0].item<double>(); }

TEST_P(GpuTensorsTest, TensorsOfTheCpuNeedNoGpu) {
  test::run_ranks(world(2), [](Communicator& comm) {
    EXPECT_EQ(comm.backend(), world(2).backend);
    EXPECT_TRUE(comm.takes_cuda());
    auto x = at::ones({100});
    comm.all_reduce(x, ReduceOp::kSum).wait();
    EXPECT_EQ(first(x), 2);
    EXPECT_TRUE(comm.allocate({3}, at::kFloat).is_cpu());
  });
}

TEST_P(GpuTensorsTest, AllocatesOnTheGpu) {
  test::run_ranks(world(2), [](Communicator& comm) {
    const Tensor memory = comm.allocate({3, 5}, at::kHalf, at::kCUDA);
    EXPECT_TRUE(memory.is_cuda());
    EXPECT_EQ(memory.sizes(), (std::vector<int64_t>{3, 5}));
    EXPECT_EQ(memory.abs().sum().item<double>(), 0);
  });
}

TEST_P(GpuTensorsTest, ACallHasTensorsOfOneDevice) {
  test::run_ranks(world(2), [](Communicator& comm) {
    auto out = at::zeros({4}, on_gpu());
    EXPECT_THROW((void)comm.all_gather(out, at::zeros({2})), ConfigError);
    const Transfer send[] = {{1 - comm.rank(), at::zeros({2})}};
    const Transfer receive[] = {{1 - comm.rank(), at::zeros({2}, on_gpu())}};
    EXPECT_THROW((void)comm.exchange(send, receive), ConfigError);
    comm.all_gather(out, at::ones({2}, on_gpu())).wait();
    EXPECT_EQ(first(out), 1);
  });
}

// The sum is started in another stream, and the host waits for none of it.
TEST_P(GpuTensorsTest, WhatFollowsAJoinFindsTheResult) {
  test::run_ranks(world(2), [](Communicator& comm) {
    for (int turn = 0; turn < 20; ++turn) {
      Tensor y;
      {
        auto x = at::full({1 << 20}, turn + 1.0, on_gpu());
        Work work;
        {
          const auto stream = other_stream();
          const c10::impl::VirtualGuardImpl cuda(at::kCUDA);
          cuda.synchronizeDevice(stream.device_index());  // x is there
          const c10::StreamGuard guard(stream);
          work = comm.all_reduce(x, ReduceOp::kSum);
        }
        work.join();
        y = x.mul(10);
        if (turn % 2) work.wait();
      }
      EXPECT_EQ(first(y), 20 * (turn + 1));
    }
  });
}

TEST_P(CapturedTensorsTest, CallsCanBeCapturedAndReplayed) {
  for (const auto dtype : {at::kFloat, at::kHalf}) {
    test::run_ranks(world(4), [&](Communicator& comm) {
      const auto lane = make_cuda_lane(0);
      Tensor x, whole, kept;
      const auto step = [&] {
        auto sum = comm.all_reduce(x, ReduceOp::kMean);
        sum.join();
        comm.all_gather(whole, x).join();
        kept = whole.mul(2);
      };
      lane->run([&] {
        x = at::full({1001}, 1, on_gpu(dtype));
        whole = at::zeros({4 * 1001}, on_gpu(dtype));
        step();
      });
      lane->wait();
      const int graph = lane->capture([&] {
        step();
        auto work = comm.all_reduce(x, ReduceOp::kSum);
        EXPECT_THROW(work.poll(), BugError);
        work.join();
        EXPECT_THROW(work.wait(), BugError);
      });
      for (int turn = 1; turn < 4; ++turn) {
        lane->run([&] { x.fill_(turn + comm.rank()); });
        lane->replay(graph);
        lane->wait();
        EXPECT_EQ(first(x), 4 * (turn + 1.5));
        EXPECT_EQ(first(kept), 2 * (turn + 1.5));
      }
    });
  }
}

// All kinds of calls, one of them in several rounds of a window; calls outside of the
// graph, in its stream and in another, come in between.
TEST_P(CapturedTensorsTest, ReplaysAndCallsFollowOneAnother) {
  test::run_ranks(world(2), [](Communicator& comm) {
    const auto lane = make_cuda_lane(0);
    const int me = comm.rank();
    const int64_t numel = (int64_t{33} << 20) / 4;
    Tensor x, large, whole, part, got;
    const auto calls = [&] {
      comm.all_reduce(large, ReduceOp::kSum).join();
      comm.all_gather(whole, x).join();
      comm.reduce_scatter(part, whole, ReduceOp::kSum).join();
      const Transfer send[] = {{1 - me, x}}, receive[] = {{1 - me, got}};
      comm.exchange(send, receive).join();
      comm.all_reduce(x, ReduceOp::kSum).join();
    };
    lane->run([&] {
      x = at::ones({1001}, on_gpu());
      large = at::ones({numel}, on_gpu());
      whole = at::zeros({2 * 1001}, on_gpu());
      part = at::zeros({1001}, on_gpu());
      got = at::zeros({1001}, on_gpu());
      calls();
    });
    const int graph = lane->capture(calls);
    for (int turn = 1; turn <= 5; ++turn) {
      for (const bool replays : {true, turn % 2 == 0}) {
        lane->run([&] {
          x.fill_(turn + me);
          large.fill_(turn + me);
        });
        if (replays)
          lane->replay(graph);
        else
          lane->run(calls);
        lane->wait();
        EXPECT_EQ(large.min().item<double>(), 2 * turn + 1);
        EXPECT_EQ(large.max().item<double>(), 2 * turn + 1);
        EXPECT_EQ(first(part), 2 * (turn + me));
        EXPECT_EQ(first(got), turn + 1 - me);
        EXPECT_EQ(first(x), 2 * turn + 1);
      }
      auto other = at::full({7 + turn}, me, on_gpu());
      comm.all_reduce(other, ReduceOp::kSum).wait();
      EXPECT_EQ(first(other), 1);
    }
  });
}

// The host sees no call in a replay, and yet gives up in time.
TEST_P(CapturedTensorsTest, AReplayWithoutItsPeerIsGivenUp) {
  test::run_ranks(world(2, 1s), [](Communicator& comm, Store& store) {
    const auto lane = make_cuda_lane(0);
    Tensor x;
    const auto call = [&] { comm.all_reduce(x, ReduceOp::kSum).join(); };
    lane->run([&] {
      x = at::ones({1000}, on_gpu());
      call();
    });
    const int graph = lane->capture(call);
    lane->replay(graph);
    lane->wait();
    EXPECT_EQ(first(x), 4);
    if (comm.rank() == 1) {
      store.get("given up", 40s);
      return;
    }
    lane->replay(graph);
    lane->run([&] { EXPECT_NE(comm_error([&] { comm.so_far().wait(); }), ""); });
    lane->drop_graphs();
    lane->wait();
    store.set("given up", "");
    EXPECT_EQ(first(at::ones({3}, on_gpu()).add(1)), 2);  // CUDA is as it was
  });
}

TEST_P(GpuTensorsTest, ALateRankIsGivenUpAndHearsOfIt) {
  test::run_ranks(world(2, 2s), [](Communicator& comm, Store& store) {
    auto x = at::ones({1000}, on_gpu());
    comm.all_reduce(x, ReduceOp::kSum).wait();
    if (comm.rank() == 0) {
      EXPECT_NE(comm_error([&] { comm.all_reduce(x, ReduceOp::kSum).wait(); }), "");
      store.set("given up", "");
    } else {
      store.get("given up", 20s);
      EXPECT_NE(comm_error([&] { comm.all_reduce(x, ReduceOp::kSum).wait(); }), "");
    }
    EXPECT_NE(comm_error([&] { comm.all_reduce(x, ReduceOp::kSum).wait(); }), "");
    EXPECT_EQ(first(at::ones({3}, on_gpu()).add(1)), 2);  // CUDA is as it was
  });
}

TEST_P(GpuTensorsTest, WhatALaneWasGivenHasADeadline) {
  test::run_ranks(world(2, 1s), [](Communicator& comm, Store& store) {
    auto x = at::ones({1000}, on_gpu());
    comm.so_far().wait();
    comm.all_reduce(x, ReduceOp::kSum).join();
    const Tensor after = x.add(1);
    comm.so_far().wait();
    EXPECT_EQ(first(after), 3);
    if (comm.rank() == 1) {
      store.get("given up", 20s);
      return;
    }
    comm.all_reduce(x, ReduceOp::kSum).join();
    EXPECT_NE(comm_error([&] { comm.so_far().wait(); }), "");
    store.set("given up", "");
  });
}

TEST_P(GpuTensorsTest, AnAbortOfAnotherThreadEndsAWait) {
  test::run_ranks(world(2), [](Communicator& comm, Store& store) {
    auto x = at::ones({1000}, on_gpu());
    comm.all_reduce(x, ReduceOp::kSum).wait();
    if (comm.rank() == 1) {
      store.get("aborted", 20s);
      EXPECT_THAT(comm_error([&] { comm.barrier().wait(); }), HasSubstr("enough"));
      return;
    }
    auto work = comm.all_reduce(x, ReduceOp::kSum);
    std::thread other([&] {
      std::this_thread::sleep_for(300ms);
      comm.abort("enough");
    });
    EXPECT_THAT(comm_error([&] { work.wait(); }), HasSubstr("enough"));
    other.join();
    store.set("aborted", "");
  });
}

// The survivors name it, keep CUDA, and meet again in a smaller world.
TEST_P(GpuTensorsTest, AKilledRankIsNamedAndTheOthersGoOn) {
  test::run_ranks(world(3, 10s),
                  [](Communicator& comm, Store& store) {
                    auto x = at::ones({1 << 20}, on_gpu());
                    comm.all_reduce(x, ReduceOp::kSum).wait();
                    if (comm.rank() == 1) raise(SIGKILL);
                    EXPECT_THAT(comm_error([&] {
                                  while (true)
                                    comm.all_reduce(x, ReduceOp::kSum).wait();
                                }),
                                HasSubstr("rank 1"));
                    const auto next =
                        test::connect_again(world(2), comm.rank() / 2, 1, store);
                    auto y = at::ones({1000}, on_gpu());
                    next->all_reduce(y, ReduceOp::kSum).wait();
                    EXPECT_EQ(first(y), 2);
                  },
                  {1});
}

// More than a half of a window, so in several rounds; and in two streams by turns,
// which know nothing of one another.
TEST_P(GpuTensorsTest, LargeTensorsInTwoStreamsArriveInOrder) {
  test::run_ranks(world(2), [](Communicator& comm) {
    const int64_t numel = (int64_t{70} << 20) / 4;
    const at::Stream streams[] = {other_stream(), other_stream()};
    std::vector<Tensor> sums;
    std::vector<Work> works;
    for (int turn = 0; turn < 6; ++turn) {
      const c10::StreamGuard guard(streams[turn % 2]);
      sums.push_back(at::full({numel}, turn + comm.rank(), on_gpu()));
      works.push_back(comm.all_reduce(sums.back(), ReduceOp::kSum));
    }
    for (int turn = 0; turn < 6; ++turn) {
      works[turn].wait();
      EXPECT_EQ(sums[turn].min().item<double>(), 2 * turn + 1);
      EXPECT_EQ(sums[turn].max().item<double>(), 2 * turn + 1);
    }
  });
}

// The thread of the host would not hear of a replay.
TEST_P(RelayedTensorsTest, ACapturedCallIsRefused) {
  test::run_ranks(world(2), [](Communicator& comm) {
    EXPECT_FALSE(comm.is_capturable());
    const auto lane = make_cuda_lane(0);
    Tensor x;
    lane->run([&] {
      x = at::ones({1000}, on_gpu());
      comm.all_reduce(x, ReduceOp::kSum).join();
    });
    lane->wait();
    lane->capture([&] {
      EXPECT_THROW((void)comm.all_reduce(x, ReduceOp::kSum), BugError);
      x.add_(1);
    });
    lane->run([&] { comm.all_reduce(x, ReduceOp::kSum).join(); });
    lane->wait();
    EXPECT_EQ(first(x), 4);
  });
}

// The first lane waits for a peer that comes late; the second does not. CUDA waits for
// all lanes when it loads a kernel and when it gives memory: so both are used before.
TEST_P(RelayedTensorsTest, OtherStreamsGoOnMeanwhile) {
  test::run_ranks(world(2), [](Communicator& comm, Store& store) {
    const at::Stream second = other_stream();
    const auto two_on_second = [&] {
      const c10::StreamGuard guard(second);
      return first(at::ones({1000}, on_gpu()).add(1));
    };
    EXPECT_EQ(two_on_second(), 2);
    auto x = at::ones({1 << 20}, on_gpu());
    comm.all_reduce(x, ReduceOp::kSum).wait();
    Work late;
    if (comm.rank() == 0) {
      late = comm.all_reduce(x, ReduceOp::kSum);
      EXPECT_EQ(two_on_second(), 2);
      EXPECT_FALSE(late.poll());
      store.set("went on", "");
    } else {
      store.get("went on", 20s);
      late = comm.all_reduce(x, ReduceOp::kSum);
    }
    late.wait();
    EXPECT_EQ(first(x), 4);
  });
}

const auto name_of_way = [](const auto& info) { return std::string(info.param); };

INSTANTIATE_TEST_SUITE_P(Ways, GpuTensorsTest,
                         testing::Values("nccl", "windows", "shm_relay", "gloo_relay"),
                         name_of_way);
INSTANTIATE_TEST_SUITE_P(Ways, CapturedTensorsTest, testing::Values("nccl", "windows"),
                         name_of_way);
INSTANTIATE_TEST_SUITE_P(Ways, RelayedTensorsTest,
                         testing::Values("shm_relay", "gloo_relay"), name_of_way);

}  // namespace
}  // namespace cohort
