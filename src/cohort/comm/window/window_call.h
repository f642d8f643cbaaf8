// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cohort/comm/device/device_call.h"
#include "cohort/comm/window/window_group.h"

namespace cohort::window_backend {

// What one call of a communicator does with windows, in rounds of a half each, in the
// current lane.
//
// A rank adds up all elements of a sum itself, instead of a share of them: ranks of one
// GPU share its bandwidth, and each time they wait for one another costs more than what
// that saves.
class WindowCall final : public device_comm::DeviceCall {
 public:
  WindowCall(WindowGroup& group, std::string what)
      : group_(group), what_(std::move(what)) {}

  void reduce_all(const Tensor& tensor, ReduceOp op) override;
  void reduce_part(const Tensor& out, const Tensor& in, ReduceOp op) override;
  void gather(const Tensor& out, const Tensor& in) override;
  void broadcast(const Tensor& tensor, int root) override;

 private:
  // A round of a call: so many elements, from there on.
  struct Round {
    int64_t begin, length;
  };
  using Halves = std::vector<const std::byte*>;     // every rank's, by rank
  using Chunks = std::vector<std::vector<Tensor>>;  // in their order, by rank

  void transfer(const std::vector<Piece>& sent,
                const std::vector<Piece>& received) override;

  // Everybody posts `elements`, at most `each` at once, and reads what all have posted.
  void in_rounds(int64_t elements, int64_t each,
                 const std::function<void(const Round&, std::byte*)>& fill,
                 const std::function<void(const Round&, const Halves&)>& take);
  void post_to(int peer, const Tensor& bytes);
  void read_from(int peer, const Tensor& bytes);
  Chunks cut(const std::vector<Piece>& pieces) const;
  Tensor memory_at(const void* data, at::IntArrayRef shape, at::ScalarType dtype) const;

  WindowGroup& group_;
  std::string what_;
};

}  // namespace cohort::window_backend
