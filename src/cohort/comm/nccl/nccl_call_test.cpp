// SPDX-License-Identifier: Apache-2.0
// What is asked of NCCL, with one that moves memory of the host: no GPU is needed.
#include "cohort/comm/nccl/nccl_call.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

#include "cohort/comm/local/local.h"
#include "cohort/core/error.h"

namespace cohort::nccl_backend {
namespace {

using namespace std::chrono_literals;

// An ncclComm in the place of a real one. Its ranks are threads.
struct HostComm {
  Communicator& comm;
  std::vector<Transfer> sends, receives;
};

thread_local HostComm* in_group = nullptr;

HostComm& host_of(Handle handle) { return *reinterpret_cast<HostComm*>(handle); }

Tensor memory_at(const void* data, size_t count, DataType type) {
  at::ScalarType dtype = at::kByte;
  for (const auto one : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong,
                         at::kInt, at::kByte})
    if (data_type(one) == type) dtype = one;
  return at::from_blob(const_cast<void*>(data), {static_cast<int64_t>(count)}, dtype);
}

ReduceOp op_of(RedOp op) {
  return op == kSum ? ReduceOp::kSum : op == kMax ? ReduceOp::kMax : ReduceOp::kMin;
}

std::shared_ptr<const Library> host_library() {
  auto table = std::make_shared<Library>();
  table->GetUniqueId = [](UniqueId*) { return kSuccess; };
  table->CommGetAsyncError = [](Handle, Result* state) {
    *state = kSuccess;
    return kSuccess;
  };
  table->CommFinalize = [](Handle) { return kSuccess; };
  table->CommDestroy = [](Handle) { return kSuccess; };
  table->CommAbort = [](Handle) { return kSuccess; };
  table->AllReduce = [](const void* in, void* out, size_t count, DataType type,
                        RedOp op, Handle handle, Stream) {
    Tensor result = memory_at(out, count, type);
    if (in != out) result.copy_(memory_at(in, count, type));
    host_of(handle).comm.all_reduce(result, op_of(op)).wait();
    return kSuccess;
  };
  table->ReduceScatter = [](const void* in, void* out, size_t count, DataType type,
                            RedOp op, Handle handle, Stream) {
    Communicator& comm = host_of(handle).comm;
    Tensor part = memory_at(out, count, type);
    comm.reduce_scatter(part, memory_at(in, count * comm.size(), type), op_of(op))
        .wait();
    return kSuccess;
  };
  table->AllGather = [](const void* in, void* out, size_t count, DataType type,
                        Handle handle, Stream) {
    Communicator& comm = host_of(handle).comm;
    Tensor whole = memory_at(out, count * comm.size(), type);
    comm.all_gather(whole, memory_at(in, count, type)).wait();
    return kSuccess;
  };
  table->Broadcast = [](const void*, void* out, size_t count, DataType type, int root,
                        Handle handle, Stream) {
    Tensor tensor = memory_at(out, count, type);
    host_of(handle).comm.broadcast(tensor, root).wait();
    return kSuccess;
  };
  table->GroupStart = [] { return kSuccess; };
  table->Send = [](const void* in, size_t count, DataType type, int peer, Handle handle,
                   Stream) {
    in_group = &host_of(handle);
    in_group->sends.push_back({peer, memory_at(in, count, type)});
    return kSuccess;
  };
  table->Recv = [](void* out, size_t count, DataType type, int peer, Handle handle,
                   Stream) {
    in_group = &host_of(handle);
    in_group->receives.push_back({peer, memory_at(out, count, type)});
    return kSuccess;
  };
  table->GroupEnd = [] {
    if (HostComm* const host = std::exchange(in_group, nullptr)) {
      host->comm.exchange(host->sends, host->receives).wait();
      host->sends.clear();
      host->receives.clear();
    }
    return kSuccess;
  };
  return table;
}

// The handle of the rank of this thread: CommInitRankConfig has no other way to it.
thread_local HostComm* next_comm = nullptr;

using Body = std::function<void(Communicator& comm, NcclCall& call)>;

// Runs `body` on every rank with a communicator of the host to compare with.
void run_calls(int size, const Body& body) {
  auto hosts = make_local(size, 20s), data = make_local(size, 20s),
       others = make_local(size, 20s);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      HostComm comm{*data[rank], {}, {}};
      next_comm = &comm;
      auto library = std::make_shared<Library>(*host_library());
      library->CommInitRankConfig = [](Handle* handle, int, UniqueId, int, Config*) {
        *handle = reinterpret_cast<Handle>(next_comm);
        return kSuccess;
      };
      NcclGroup group(library, std::move(hosts[rank]), {.timeout = 20s});
      NcclCall call(group, "a test", nullptr, size);
      body(*others[rank], call);
    });
  }
  for (auto& thread : threads) thread.join();
}

Tensor values_of(int rank, int64_t numel, at::ScalarType dtype) {
  return at::arange(numel, at::kLong).mul(3).add(rank * 5).remainder(11).to(dtype);
}

class NcclCallTest : public testing::TestWithParam<int> {};

TEST_P(NcclCallTest, ReductionsAreThoseOfEveryBackend) {
  run_calls(GetParam(), [](Communicator& comm, NcclCall& call) {
    const int n = comm.size();
    for (const auto dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16,
                             at::kLong, at::kInt, at::kByte}) {
      for (const auto op :
           {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMax, ReduceOp::kMin}) {
        if (op == ReduceOp::kMean && !at::isFloatingType(dtype)) continue;
        for (const int64_t numel : {1, 17, 60, 901}) {
          for (const bool turned : {false, true}) {
            const auto mine = [&] {
              const Tensor x = values_of(comm.rank(), 2 * numel, dtype).sub(5);
              return turned ? x.view({2, numel}).t() : x;
            };
            Tensor x = mine(), y = mine();
            call.reduce_all(x, op);
            comm.all_reduce(y, op).wait();
            EXPECT_TRUE(at::equal(x, y)) << dtype << " " << numel << " " << turned;
          }
          const Tensor in = values_of(comm.rank(), numel * n, dtype);
          Tensor x = at::zeros({numel}, dtype), y = at::zeros({numel}, dtype);
          call.reduce_part(x, in, op);
          comm.reduce_scatter(y, in, op).wait();
          EXPECT_TRUE(at::equal(x, y)) << dtype << " " << numel;
          const Tensor own = in.clone();
          call.reduce_part(own.narrow(0, comm.rank() * numel, numel), own, op);
          EXPECT_TRUE(at::equal(own.narrow(0, comm.rank() * numel, numel), y));
        }
      }
    }
  });
}

TEST_P(NcclCallTest, PartsAndTransfersArriveAlsoAtTheSender) {
  run_calls(GetParam(), [](Communicator& comm, NcclCall& call) {
    const int n = comm.size(), me = comm.rank();
    // Rank r sends i elements to rank i.
    Parts parts;
    for (int r = 0; r < n; ++r) {
      parts.sent.push_back(r);
      parts.received.push_back(me);
    }
    const Tensor in = at::full({n * (n - 1) / 2}, me, at::kFloat);
    const Tensor out = at::full({n * me}, -1, at::kFloat);
    call.swap(out, in, parts);
    for (int r = 0; r < n; ++r)
      EXPECT_TRUE(at::equal(out.narrow(0, r * me, me), at::full({me}, r, at::kFloat)));

    std::vector<Transfer> sends, receives;
    for (int r = 0; r < n; ++r) {
      for (const int64_t side : {0, 2, 3}) {
        sends.push_back({r, at::full({side, 4}, 10 * me + side, at::kHalf).t()});
        receives.push_back({r, at::zeros({side, 4}, at::kHalf).t()});
      }
    }
    call.exchange(sends, receives);
    for (const auto& [r, got] : receives)
      EXPECT_TRUE(at::equal(got, at::full_like(got, 10 * r + got.size(1))));

    const Tensor told = at::full({7}, me, at::kInt);
    call.broadcast(told, n - 1);
    EXPECT_TRUE(at::equal(told, at::full({7}, n - 1, at::kInt)));
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, NcclCallTest, testing::Values(1, 2, 3, 5));

}  // namespace
}  // namespace cohort::nccl_backend
