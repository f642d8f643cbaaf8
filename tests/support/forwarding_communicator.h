// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "cohort/communicator.h"

namespace cohort::test {

// Another communicator, of which a test changes what it likes.
class ForwardingCommunicator : public Communicator {
 public:
  explicit ForwardingCommunicator(Communicator& inner) : inner_(inner) {}

  std::string_view backend() const override { return inner_.backend(); }
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  int generation() const override { return inner_.generation(); }
  Work all_reduce(Tensor& tensor, ReduceOp op) override {
    return inner_.all_reduce(tensor, op);
  }
  Work reduce_scatter(Tensor& out, const Tensor& in, ReduceOp op) override {
    return inner_.reduce_scatter(out, in, op);
  }
  Work all_gather(Tensor& out, const Tensor& shard) override {
    return inner_.all_gather(out, shard);
  }
  Work broadcast(Tensor& tensor, int root) override {
    return inner_.broadcast(tensor, root);
  }
  Work all_to_all(Tensor& out, const Tensor& in, std::span<const int64_t> out_rows,
                  std::span<const int64_t> in_rows) override {
    return inner_.all_to_all(out, in, out_rows, in_rows);
  }
  Work exchange(std::span<const Transfer> sends,
                std::span<const Transfer> receives) override {
    return inner_.exchange(sends, receives);
  }
  Work barrier() override { return inner_.barrier(); }
  std::unique_ptr<Communicator> split(int color) override {
    return inner_.split(color);
  }
  Tensor allocate(at::IntArrayRef shape, at::ScalarType dtype,
                  at::Device device) override {
    return inner_.allocate(shape, dtype, device);
  }
  void abort(std::string_view reason) override { inner_.abort(reason); }

 private:
  Communicator& inner_;
};

}  // namespace cohort::test
