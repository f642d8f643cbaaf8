// SPDX-License-Identifier: Apache-2.0
#include "support/gpu_tensors.h"

#include <ATen/ATen.h>

#include <map>
#include <utility>
#include <vector>

#include "cohort/comm/staging.h"

namespace cohort::test {
namespace {

struct Pair {
  Tensor host, device;
};

// The tensors of one call.
class Copies {
 public:
  Tensor read(const Tensor& tensor) {
    if (!tensor.defined() || !tensor.is_cpu() || tensor.layout() != at::kStrided ||
        tensor.is_neg())
      return tensor;
    Tensor copy =
        at::empty({0}, tensor.options().device(at::kCUDA).requires_grad(false));
    copy.set_(storage_of(tensor).storage(), tensor.storage_offset(), tensor.sizes(),
              tensor.strides());
    return tensor.requires_grad() ? copy.requires_grad_(true) : copy;
  }

  Tensor write(const Tensor& tensor) {
    Tensor copy = read(tensor);
    if (copy.defined() && copy.is_cuda()) written_.push_back({tensor, copy});
    return copy;
  }

  std::vector<Pair> written() { return std::move(written_); }

 private:
  Tensor storage_of(const Tensor& tensor) {
    const auto& storage = tensor.storage();
    Tensor& copy = storages_[storage.unsafeGetStorageImpl()];
    if (!copy.defined()) {
      const auto bytes = static_cast<int64_t>(storage.nbytes());
      const Tensor all = at::from_blob(const_cast<void*>(storage.data()), {bytes},
                                       at::TensorOptions().dtype(at::kByte));
      copy = all.to(at::kCUDA);
    }
    return copy;
  }

  std::map<const void*, Tensor> storages_;
  std::vector<Pair> written_;
};

class BringsBack final : public Operation {
 public:
  BringsBack(Work work, std::vector<Pair> written)
      : work_(std::move(work)), written_(std::move(written)) {}

  void wait() override {
    work_.wait();
    for (const auto& [host, device] : written_) copy_into(host, device);
  }
  bool poll() override { return work_.poll(); }

 private:
  Work work_;
  std::vector<Pair> written_;
};

class GpuTensors final : public Communicator {
 public:
  explicit GpuTensors(std::unique_ptr<Communicator> inner) : inner_(std::move(inner)) {}

  std::string_view backend() const override { return inner_->backend(); }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  int generation() const override { return inner_->generation(); }

  Work all_reduce(Tensor& tensor, ReduceOp op) override {
    Copies copies;
    Tensor copy = copies.write(tensor);
    return bring_back(inner_->all_reduce(copy, op), copies);
  }
  Work reduce_scatter(Tensor& out, const Tensor& in, ReduceOp op) override {
    Copies copies;
    Tensor copy = copies.write(out);
    return bring_back(inner_->reduce_scatter(copy, copies.read(in), op), copies);
  }
  Work all_gather(Tensor& out, const Tensor& shard) override {
    Copies copies;
    Tensor copy = copies.write(out);
    return bring_back(inner_->all_gather(copy, copies.read(shard)), copies);
  }
  Work broadcast(Tensor& tensor, int root) override {
    Copies copies;
    Tensor copy = copies.write(tensor);
    return bring_back(inner_->broadcast(copy, root), copies);
  }
  Work all_to_all(Tensor& out, const Tensor& in, std::span<const int64_t> out_rows,
                  std::span<const int64_t> in_rows) override {
    Copies copies;
    Tensor copy = copies.write(out);
    return bring_back(inner_->all_to_all(copy, copies.read(in), out_rows, in_rows),
                      copies);
  }
  Work exchange(std::span<const Transfer> sends,
                std::span<const Transfer> receives) override {
    Copies copies;
    std::vector<Transfer> sent, received;
    for (const auto& [peer, tensor] : sends)
      sent.push_back({peer, copies.read(tensor)});
    for (const auto& [peer, tensor] : receives)
      received.push_back({peer, copies.write(tensor)});
    return bring_back(inner_->exchange(sent, received), copies);
  }
  Work barrier() override { return inner_->barrier(); }
  std::unique_ptr<Communicator> split(int color) override {
    auto part = inner_->split(color);
    return part ? with_gpu_tensors(std::move(part)) : nullptr;
  }
  Tensor allocate(at::IntArrayRef shape, at::ScalarType dtype,
                  at::Device device) override {
    return inner_->allocate(shape, dtype, device);
  }
  void abort(std::string_view reason) override { inner_->abort(reason); }

 private:
  static Work bring_back(Work work, Copies& copies) {
    return Work(std::make_unique<BringsBack>(std::move(work), copies.written()));
  }

  std::unique_ptr<Communicator> inner_;
};

}  // namespace

std::unique_ptr<Communicator> with_gpu_tensors(std::unique_ptr<Communicator> inner) {
  return std::make_unique<GpuTensors>(std::move(inner));
}

}  // namespace cohort::test
