// SPDX-License-Identifier: Apache-2.0
// What every DeviceCall must do, for tests: the ranks are threads, and the device is
// the host.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "cohort/comm/device/device_call.h"
#include "cohort/communicator.h"

namespace cohort::device_comm {

inline Tensor testing_values(int rank, int64_t numel, at::ScalarType dtype) {
  return at::arange(numel, at::kLong).mul(3).add(rank * 5).remainder(11).to(dtype);
}

inline void expect_equal_reductions(Communicator& comm, DeviceCall& call,
                                    at::ScalarType dtype, ReduceOp op, int64_t numel) {
  const int n = comm.size();
  for (const bool turned : {false, true}) {
    const auto mine = [&] {
      const Tensor x = testing_values(comm.rank(), 2 * numel, dtype).sub(5);
      return turned ? x.view({2, numel}).t() : x;
    };
    Tensor x = mine(), y = mine();
    call.reduce_all(x, op);
    comm.all_reduce(y, op).wait();
    EXPECT_TRUE(at::equal(x, y)) << dtype << " " << numel << " " << turned;
  }
  const Tensor in = testing_values(comm.rank(), numel * n, dtype);
  Tensor x = at::zeros({numel}, dtype), y = at::zeros({numel}, dtype);
  call.reduce_part(x, in, op);
  comm.reduce_scatter(y, in, op).wait();
  EXPECT_TRUE(at::equal(x, y)) << dtype << " " << numel;
  const Tensor own = in.clone();
  call.reduce_part(own.narrow(0, comm.rank() * numel, numel), own, op);
  EXPECT_TRUE(at::equal(own.narrow(0, comm.rank() * numel, numel), y));
}

// `comm` is one to compare with.
inline void expect_reductions_of_every_backend(Communicator& comm, DeviceCall& call) {
  for (const auto dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong,
                           at::kInt, at::kByte}) {
    for (const auto op :
         {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMax, ReduceOp::kMin}) {
      if (op == ReduceOp::kMean && !at::isFloatingType(dtype)) continue;
      for (const int64_t numel : {1, 17, 60, 901})
        expect_equal_reductions(comm, call, dtype, op, numel);
    }
  }
}

// Also what a rank sends to itself.
inline void expect_parts_and_transfers(Communicator& comm, DeviceCall& call) {
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
}

}  // namespace cohort::device_comm
