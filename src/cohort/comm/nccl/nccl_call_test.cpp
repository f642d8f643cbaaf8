// SPDX-License-Identifier: Apache-2.0
// What is asked of NCCL, with one that moves memory of the host: no GPU is needed.
#include "cohort/comm/nccl/nccl_call.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

#include "cohort/comm/device/testing_device_call.h"
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
      library->CommInitRankConfig = [](Handle* handle, int, UniqueId, int,
                                       LibraryConfig*) {
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

class NcclCallTest : public testing::TestWithParam<int> {};

TEST_P(NcclCallTest, ReductionsAreThoseOfEveryBackend) {
  run_calls(GetParam(), device_comm::expect_reductions_of_every_backend);
}

TEST_P(NcclCallTest, PartsAndTransfersArriveAlsoAtTheSender) {
  run_calls(GetParam(), device_comm::expect_parts_and_transfers);
}

INSTANTIATE_TEST_SUITE_P(Sizes, NcclCallTest, testing::Values(1, 2, 3, 5));

}  // namespace
}  // namespace cohort::nccl_backend
