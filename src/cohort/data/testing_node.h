// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <barrier>
#include <functional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "cohort/communicator.h"

namespace cohort::test {

// The least node that can broadcast: ranks are threads, data moves through a pointer.
class Node {
 public:
  explicit Node(int size) : size(size), gate(size) {}
  const int size;
  std::barrier<> gate;
  Tensor root;
};

class NodeCommunicator final : public Communicator {
 public:
  NodeCommunicator(Node& node, int rank) : node_(node), rank_(rank) {}

  std::string_view backend() const override { return "test"; }
  int rank() const override { return rank_; }
  int size() const override { return node_.size; }
  int generation() const override { return 0; }

  Work broadcast(Tensor& tensor, int root) override {
    if (rank_ == root) node_.root = tensor;
    node_.gate.arrive_and_wait();
    if (rank_ != root) {
      if (tensor.sizes() != node_.root.sizes()) throw std::logic_error("other sizes");
      tensor.copy_(node_.root);
    }
    node_.gate.arrive_and_wait();
    return {};
  }

  Work all_reduce(Tensor&, ReduceOp) override { return unused(); }
  Work reduce_scatter(Tensor&, const Tensor&, ReduceOp) override { return unused(); }
  Work all_gather(Tensor&, const Tensor&) override { return unused(); }
  Work all_to_all(Tensor&, const Tensor&, std::span<const int64_t>,
                  std::span<const int64_t>) override {
    return unused();
  }
  Work exchange(std::span<const Transfer>, std::span<const Transfer>) override {
    return unused();
  }
  Work barrier() override { return unused(); }
  std::unique_ptr<Communicator> split(int) override {
    unused().wait();
    return nullptr;
  }
  Tensor allocate(at::IntArrayRef, at::ScalarType, at::Device) override {
    unused().wait();
    return {};
  }
  void abort(std::string_view) override {}

 private:
  static Work unused() { throw std::logic_error("only broadcast is there"); }

  Node& node_;
  int rank_;
};

// Runs `body` on every rank of a node of `size` ranks.
inline void run_node(int size, const std::function<void(Communicator&)>& body) {
  Node node(size);
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&node, &body, rank] {
      NodeCommunicator comm(node, rank);
      body(comm);
    });
  }
}

}  // namespace cohort::test
