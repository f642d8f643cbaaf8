// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "cohort/communicator.h"

namespace cohort {

// What a Communicator may be given, checked in this one place. Every backend begins
// every call with its check, before it counts the call or touches memory: what is
// refused has not happened, and the group is as it was.
//
// Throws ConfigError: "[comm.shm] broadcast: root 4; legal: 0 to 1 (rank 0)".
void check_all_reduce(const Communicator& comm, const Tensor& tensor, ReduceOp op);
void check_reduce_scatter(const Communicator& comm, const Tensor& out, const Tensor& in,
                          ReduceOp op);
void check_all_gather(const Communicator& comm, const Tensor& out, const Tensor& shard);
void check_broadcast(const Communicator& comm, const Tensor& tensor, int root);
void check_exchange(const Communicator& comm, std::span<const Transfer> sends,
                    std::span<const Transfer> receives);
void check_allocate(const Communicator& comm, at::IntArrayRef shape,
                    at::ScalarType dtype, at::Device device);
// One that is read in place, by `op`.
void check_tensor(const Communicator& comm, const char* op, const Tensor& tensor);

// Elements to and from each rank.
struct Parts {
  std::vector<int64_t> sent, received;
};
Parts check_all_to_all(const Communicator& comm, const Tensor& out, const Tensor& in,
                       std::span<const int64_t> out_rows,
                       std::span<const int64_t> in_rows);

// For what only one backend can know.
[[noreturn]] void refuse_call(const Communicator& comm, const char* op,
                              const std::string& what);

}  // namespace cohort
