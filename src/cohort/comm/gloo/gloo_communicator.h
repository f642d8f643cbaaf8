// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "cohort/comm/gloo/group.h"
#include "cohort/comm/gloo/state.h"
#include "cohort/communicator.h"

namespace cohort::gloo_backend {

// A Communicator over one group of c10d. Contiguous tensors are passed as they are;
// others through a contiguous copy.
class GlooCommunicator : public Communicator {
 public:
  GlooCommunicator(std::shared_ptr<State> state, Store& store,
                   const GroupOptions& options, int generation);
  // Waits, for a moment, for the peers to come here too: closing connections under
  // a peer that still reads could cost it its last result.
  ~GlooCommunicator() override;

  std::string_view backend() const override { return "gloo"; }
  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  int generation() const override { return generation_; }

  Work all_reduce(Tensor& tensor, ReduceOp op) override;
  Work reduce_scatter(Tensor& out, const Tensor& in, ReduceOp op) override;
  Work all_gather(Tensor& out, const Tensor& shard) override;
  Work broadcast(Tensor& tensor, int root) override;
  Work all_to_all(Tensor& out, const Tensor& in, std::span<const int64_t> out_rows,
                  std::span<const int64_t> in_rows) override;
  Work exchange(std::span<const Transfer> sends,
                std::span<const Transfer> receives) override;
  Work barrier() override;
  std::unique_ptr<Communicator> split(int color) override;
  Tensor allocate(at::IntArrayRef shape, at::ScalarType dtype,
                  at::Device device) override;
  void abort(std::string_view reason) override;

 private:
  using Finish = std::function<void()>;
  using C10dWork = c10::intrusive_ptr<c10d::Work>;

  // Starts a collective of c10d.
  Work run(const Record& record, const std::function<C10dWork(c10d::Backend&)>& call,
           Finish finish = {});
  void copy_to_self(std::span<const Transfer> sends,
                    std::span<const Transfer> receives);

  std::shared_ptr<State> state_;
  Store& store_;
  GroupOptions options_;
  int generation_;
  int num_splits_ = 0;
};

// Collective: connects a group and wraps it.
std::unique_ptr<Communicator> make_group(Store& store, const GroupOptions& options,
                                         int generation);

}  // namespace cohort::gloo_backend
