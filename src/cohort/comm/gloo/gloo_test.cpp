// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/gloo/gloo.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <thread>

#include "cohort/comm/gloo/forked_ranks_test.h"
#include "cohort/core/error.h"

namespace cohort {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

constexpr at::ScalarType kDtypes[] = {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16,
                                      at::kLong,   at::kInt,   at::kByte};

// 0, 1, ... plus 10 times the rank: exact in every dtype.
Tensor numbers(int64_t count, int rank, at::ScalarType dtype) {
  return (at::arange(count, at::kLong) + 10 * rank).to(dtype);
}

void reduce_every_way(Communicator& comm) {
  const int size = comm.size(), rank = comm.rank();
  const int64_t last = size - 1;
  for (at::ScalarType dtype : kDtypes) {
    const Tensor base = at::arange(3, at::kLong);
    const Tensor sum = (base * size + 10 * (last * size / 2)).to(dtype);
    Tensor x = numbers(3, rank, dtype);
    comm.all_reduce(x, ReduceOp::kSum).wait();
    EXPECT_TRUE(at::equal(x, sum)) << dtype << x << sum;
    x = numbers(3, rank, dtype);
    comm.all_reduce(x, ReduceOp::kMax).wait();
    EXPECT_TRUE(at::equal(x, numbers(3, size - 1, dtype))) << dtype;
    x = numbers(3, rank, dtype);
    comm.all_reduce(x, ReduceOp::kMin).wait();
    EXPECT_TRUE(at::equal(x, numbers(3, 0, dtype))) << dtype;

    const Tensor parts = numbers(2 * size, rank, dtype);
    Tensor part = at::zeros({2}, dtype);
    comm.reduce_scatter(part, parts, ReduceOp::kMax).wait();
    EXPECT_TRUE(at::equal(
        part, numbers(2 * size, size - 1, dtype).slice(0, 2 * rank, 2 * rank + 2)));
    comm.reduce_scatter(part, parts, ReduceOp::kSum).wait();
    const Tensor sums = (at::arange(2 * size, at::kLong) * size + 5 * last * size);
    EXPECT_TRUE(at::equal(part, sums.slice(0, 2 * rank, 2 * rank + 2).to(dtype)))
        << dtype << part;
    if (!at::isFloatingType(dtype)) {
      EXPECT_THROW((void)comm.all_reduce(x, ReduceOp::kMean), ConfigError);
      continue;
    }
    x = at::full({4}, 2.0 * rank, dtype);
    comm.all_reduce(x, ReduceOp::kMean).wait();
    EXPECT_TRUE(at::equal(x, at::full({4}, static_cast<double>(last), dtype))) << x;
    comm.reduce_scatter(part, at::full({2 * size}, 2.0 * rank, dtype), ReduceOp::kMean)
        .wait();
    EXPECT_TRUE(at::equal(part, at::full({2}, static_cast<double>(last), dtype)));
  }
}

void move_every_way(Communicator& comm) {
  const int size = comm.size(), rank = comm.rank();
  for (at::ScalarType dtype : kDtypes) {
    Tensor x = numbers(5, rank, dtype);
    comm.broadcast(x, size - 1).wait();
    EXPECT_TRUE(at::equal(x, numbers(5, size - 1, dtype)));

    Tensor all = at::zeros({size, 3}, dtype);
    comm.all_gather(all, numbers(3, rank, dtype)).wait();
    for (int peer = 0; peer < size; ++peer) {
      EXPECT_TRUE(at::equal(all[peer], numbers(3, peer, dtype)));
    }
    // Part i of rank r is r * 10 + i.
    Tensor out = at::zeros({size}, dtype);
    comm.all_to_all(out, numbers(size, rank, dtype)).wait();
    EXPECT_TRUE(at::equal(out, (at::arange(size, at::kLong) * 10 + rank).to(dtype)));
  }
}

// Rank r sends s rows to rank s; so rank 0 gets nothing at all.
void move_uneven_parts(Communicator& comm) {
  const int size = comm.size(), rank = comm.rank();
  std::vector<int64_t> in_rows(size), out_rows(size, rank);
  for (int peer = 0; peer < size; ++peer) in_rows[peer] = peer;
  const Tensor in = at::full({size * (size - 1) / 2, 2}, rank, at::kFloat);
  Tensor out = at::full({size * rank, 2}, -1.0, at::kFloat);
  comm.all_to_all(out, in, out_rows, in_rows).wait();
  const Tensor from = at::arange(size, at::kFloat).repeat_interleave(rank);
  EXPECT_TRUE(at::equal(out, from.unsqueeze(1).expand({size * rank, 2}))) << out;
}

void exchange_around_the_ring(Communicator& comm) {
  const int size = comm.size(), rank = comm.rank();
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  Tensor first = at::zeros({4}, at::kBFloat16), second = at::zeros({2, 3}).t();
  const std::vector<Transfer> sends{{right, at::full({4}, rank, at::kBFloat16)},
                                    {right, at::full({3, 2}, rank + 0.5)}};
  const std::vector<Transfer> receives{{left, first}, {left, second}};
  Work work = comm.exchange(sends, receives);
  while (!work.poll()) std::this_thread::yield();
  work.wait();
  EXPECT_TRUE(at::equal(first, at::full({4}, left, at::kBFloat16)));
  EXPECT_TRUE(at::equal(second, at::full({3, 2}, left + 0.5)));
  // Only those named take part.
  if (size > 1 && rank < 2) {
    Tensor got = at::zeros({2}, at::kLong);
    const std::vector<Transfer> to{{1 - rank, at::full({2}, rank, at::kLong)}};
    const std::vector<Transfer> back{{1 - rank, got}};
    comm.exchange(to, back).wait();
    EXPECT_TRUE(at::equal(got, at::full({2}, 1 - rank, at::kLong)));
  }
}

void pass_odd_tensors(Communicator& comm) {
  const int size = comm.size(), rank = comm.rank();
  Tensor whole = at::full({4, 3}, rank, at::kFloat);
  Tensor column = whole.select(1, 1);
  comm.all_reduce(column, ReduceOp::kMax).wait();
  EXPECT_EQ(whole.select(1, 1).min().item<float>(), size - 1);
  EXPECT_EQ(whole.select(1, 0).max().item<float>(), rank);
  Tensor gathered = at::zeros({3, size}).t();
  comm.all_gather(gathered, whole[0]).wait();
  EXPECT_EQ(gathered[size - 1][1].item<float>(), size - 1);
  Tensor empty = at::zeros({0, 3}), empty_too = at::zeros({0});
  comm.all_reduce(empty, ReduceOp::kSum).wait();
  comm.broadcast(empty, 0).wait();
  comm.all_gather(empty, empty_too).wait();
  comm.all_to_all(empty, empty_too).wait();
  comm.reduce_scatter(empty, empty_too, ReduceOp::kMean).wait();
  Tensor scalar = at::scalar_tensor(rank, at::kLong);
  comm.all_reduce(scalar, ReduceOp::kSum).wait();
  EXPECT_EQ(scalar.item<int64_t>(), size * (size - 1) / 2);
}

void keep_many_in_flight(Communicator& comm) {
  std::vector<Tensor> tensors;
  std::vector<Work> works;
  for (int i = 0; i < 16; ++i)
    tensors.push_back(at::full({1000 * i + 1}, i, at::kFloat));
  for (Tensor& tensor : tensors)
    works.push_back(comm.all_reduce(tensor, ReduceOp::kSum));
  works.back().wait();
  for (Work& work : works) EXPECT_TRUE(work.poll());  // they finish in order
  for (Work& work : works) work.wait();
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(tensors[i].max().item<float>(), i * comm.size());
    EXPECT_EQ(tensors[i].min().item<float>(), i * comm.size());
  }
}

void split_in_two(Communicator& comm) {
  auto half = comm.split(comm.rank() % 2);
  ASSERT_TRUE(half);
  EXPECT_EQ(half->size(), (comm.size() + 1 - comm.rank() % 2) / 2);
  EXPECT_EQ(half->rank(), comm.rank() / 2);
  EXPECT_EQ(half->generation(), comm.generation());
  Tensor x = at::full({2}, comm.rank(), at::kLong);
  half->all_reduce(x, ReduceOp::kMax).wait();
  EXPECT_EQ(x[0].item<int64_t>() % 2, comm.rank() % 2);
  auto some = comm.split(comm.rank() == 0 ? 0 : -1);
  EXPECT_EQ(some != nullptr, comm.rank() == 0);
  comm.barrier().wait();
}

class GlooSizes : public testing::TestWithParam<int> {};

TEST_P(GlooSizes, DoesEverythingACommunicatorMust) {
  const auto ranks = test::run_forked(GetParam(), {}, [](Communicator& comm) {
    reduce_every_way(comm);
    move_every_way(comm);
    move_uneven_parts(comm);
    exchange_around_the_ring(comm);
    pass_odd_tensors(comm);
    keep_many_in_flight(comm);
    split_in_two(comm);
    const Tensor memory = comm.allocate({2, 3}, at::kHalf);
    EXPECT_TRUE(at::equal(memory, at::zeros({2, 3}, at::kHalf)));
    return std::string("done");
  });
  for (const auto& rank : ranks) {
    EXPECT_TRUE(rank.exited_well()) << rank;
    EXPECT_EQ(rank.said, "done");  // and nothing of gloo's on stdout
  }
}

INSTANTIATE_TEST_SUITE_P(EverySize, GlooSizes, testing::Values(1, 2, 3, 5));

// Reduces until the group breaks; what the error says.
std::string reduce_until_it_breaks(Communicator& comm, int fatal_step, int signal) {
  Tensor x = at::ones({1000}, at::kFloat);
  try {
    for (int step = 0;; ++step) {
      Work work = comm.all_reduce(x, ReduceOp::kMax);
      if (step == fatal_step) raise(signal);
      work.wait();
    }
  } catch (const CommError& error) {
    // From now on the group is dead, and says why at once.
    EXPECT_THROW((void)comm.barrier(), CommError);
    return error.what();
  }
}

// Survivors must not sit out the timeout, which is longer than run_forked's
// patience.
TEST(GlooFailure, AllSurvivorsNameARankThatWasKilled) {
  const auto ranks = test::run_forked(5, {.timeout = 60s}, [](Communicator& comm) {
    return reduce_until_it_breaks(comm, comm.rank() == 3 ? 20 : -1, SIGKILL);
  });
  for (const auto& rank : ranks) {
    if (rank.rank == 3) {
      EXPECT_EQ(rank.signal(), SIGKILL);
      continue;
    }
    EXPECT_TRUE(rank.exited_well()) << rank;
    EXPECT_THAT(rank.said, HasSubstr("[comm.gloo] all_reduce(float32, 1000, max) #"));
    EXPECT_THAT(rank.said, HasSubstr("rank 3 is missing"));
    EXPECT_THAT(rank.said, HasSubstr(text("(rank ", rank.rank, " of 5)")));
  }
}

TEST(GlooFailure, AllSurvivorsNameARankThatIsFrozen) {
  const auto ranks = test::run_forked(5, {.timeout = 1500ms}, [](Communicator& comm) {
    return reduce_until_it_breaks(comm, comm.rank() == 2 ? 10 : -1, SIGSTOP);
  });
  for (const auto& rank : ranks) {
    if (rank.rank == 2) {
      EXPECT_EQ(rank.signal(), SIGKILL);  // by run_forked, when the others were done
      continue;
    }
    EXPECT_TRUE(rank.exited_well()) << rank;
    EXPECT_THAT(rank.said, HasSubstr("rank 2 is missing"));
  }
}

TEST(GlooFailure, AnAbortReachesAllRanksWithItsReason) {
  const auto ranks = test::run_forked(3, {.timeout = 60s}, [](Communicator& comm) {
    if (comm.rank() == 1) {
      Tensor x = at::ones({1000});
      Work pending = comm.all_reduce(x, ReduceOp::kMax);
      comm.abort("loss is not finite");
      try {
        pending.wait();
      } catch (const CommError& error) {
        return std::string(error.what());
      }
    }
    return reduce_until_it_breaks(comm, -1, 0);
  });
  for (const auto& rank : ranks) {
    EXPECT_TRUE(rank.exited_well()) << rank;
    EXPECT_THAT(rank.said, HasSubstr("aborted by rank 1: loss is not finite"));
  }
}

TEST(GlooFailure, RanksThatCallDifferentThingsAreToldWhoIsWhere) {
  const auto ranks = test::run_forked(3, {.timeout = 500ms}, [](Communicator& comm) {
    Tensor x = at::ones({4});
    try {
      comm.all_reduce(x, ReduceOp::kSum).wait();
      if (comm.rank() == 2) comm.broadcast(x, 0).wait();
      comm.all_reduce(x, ReduceOp::kSum).wait();
      comm.barrier().wait();
    } catch (const CommError& error) {
      return std::string(error.what());
    }
    return std::string("not noticed");
  });
  for (const auto& rank : ranks) {
    EXPECT_TRUE(rank.exited_well()) << rank;
    EXPECT_THAT(rank.said, Not(HasSubstr("missing")));
    EXPECT_THAT(rank.said,
                HasSubstr(rank.rank == 2 ? "rank 0 is at all_reduce(float32, 4, sum) #2"
                                         : "rank 2 is at broadcast"));
  }
}

// Gloo itself ends the process when sizes differ; the tag keeps them apart.
TEST(GlooFailure, ADifferentSizeOrTypeOrReductionIsRefusedToo) {
  for (int variant = 0; variant < 4; ++variant) {
    const auto ranks =
        test::run_forked(3, {.timeout = 300ms}, [variant](Communicator& comm) {
          const bool odd = comm.rank() == 1;
          Tensor x = at::ones({odd && variant == 0 ? 5 : 4},
                              odd && variant == 1 ? at::kDouble : at::kFloat);
          try {
            if (variant < 3) {
              comm.all_reduce(x, odd && variant == 2 ? ReduceOp::kMax : ReduceOp::kSum)
                  .wait();
            } else if (comm.rank() < 2) {
              const std::vector<Transfer> sends{{1 - comm.rank(), at::ones({7})}};
              const std::vector<Transfer> receives{
                  {1 - comm.rank(), at::ones({odd ? 6 : 7})}};
              comm.exchange(sends, receives).wait();
            } else {
              return std::string("[comm.gloo]");
            }
          } catch (const CommError& error) {
            return std::string(error.what());
          }
          return std::string("not noticed");
        });
    for (const auto& rank : ranks) {
      EXPECT_TRUE(rank.exited_well()) << variant << rank;
      EXPECT_THAT(rank.said, HasSubstr("[comm.gloo]")) << variant;
    }
  }
}

TEST(GlooFailure, ARankThatDiesBeforeConnectingIsNamed) {
  const auto ranks = test::run_forked(
      3, {.timeout = 500ms}, [](Communicator&) { return std::string("connected"); },
      [](int rank) {
        if (rank == 1) raise(SIGKILL);
      });
  for (const auto& rank : ranks) {
    if (rank.rank == 1) continue;
    EXPECT_THAT(rank.said, HasSubstr("[comm.gloo] connect: rank 1 is missing"));
  }
}

}  // namespace
}  // namespace cohort
