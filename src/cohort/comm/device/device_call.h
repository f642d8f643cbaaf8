// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "cohort/comm/arguments.h"

namespace cohort::device_comm {

// What one call of a communicator asks of the device's side of its group, in one lane.
// Tensors are on the device and, but where it is said, contiguous; what is only moved
// goes as bytes.
class DeviceCall {
 public:
  virtual ~DeviceCall() = default;
  DeviceCall(const DeviceCall&) = delete;
  DeviceCall& operator=(const DeviceCall&) = delete;

  // Any layout. `out` may be this rank's part of `in`.
  virtual void reduce_all(const Tensor& tensor, ReduceOp op) = 0;
  virtual void reduce_part(const Tensor& out, const Tensor& in, ReduceOp op) = 0;

  // `in` may be this rank's part of `out`.
  virtual void gather(const Tensor& out, const Tensor& in) = 0;
  virtual void broadcast(const Tensor& tensor, int root) = 0;
  // Numbers of elements.
  void swap(const Tensor& out, const Tensor& in, const Parts& parts);
  // Any layout. Empty ones are left out.
  void exchange(std::span<const Transfer> sends, std::span<const Transfer> receives);

 protected:
  struct Piece {
    void* data;
    int64_t bytes;
    int peer;
  };

  DeviceCall() = default;

  // All at once; the order between two ranks is kept. A piece may be empty, and may go
  // to this rank itself.
  virtual void transfer(const std::vector<Piece>& sent,
                        const std::vector<Piece>& received) = 0;

  // Where the values of `tensor` can be put one after another: itself, or other memory.
  static Tensor place_for(const Tensor& tensor);
  // Copies unless `values` lie there already.
  static void put(const Tensor& to, const Tensor& values);
};

}  // namespace cohort::device_comm
