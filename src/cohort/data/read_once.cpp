// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/read_once.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>

#include "cohort/core/error.h"

namespace cohort {
namespace {

constexpr int64_t kSharedDims = 8;
constexpr int64_t kEntry = 2 + kSharedDims;  // dtype, number of dimensions, sizes

// What rank 0 announces before any data: how many tensors follow, or how many bytes
// of an error message.
struct ReadStatus {
  bool good = false;
  int64_t count = 0;
};

ReadStatus share_status(Communicator& node, ReadStatus mine) {
  auto wire = at::tensor({int64_t{mine.good}, mine.count}, at::kLong);
  node.broadcast(wire, 0).wait();
  const auto* w = wire.const_data_ptr<int64_t>();
  return {w[0] != 0, w[1]};
}

[[noreturn]] void share_failure(Communicator& node, std::string message,
                                int64_t length) {
  message.resize(length);
  auto wire = at::empty({length}, at::kByte);
  std::memcpy(wire.mutable_data_ptr<uint8_t>(), message.data(), length);
  node.broadcast(wire, 0).wait();
  std::memcpy(message.data(), wire.const_data_ptr<uint8_t>(), length);
  throw DataError(message);
}

void describe(const Tensor& tensor, int64_t* entry) {
  COHORT_CHECK(tensor.dim() <= kSharedDims, tensor.dim(), " dimensions");
  entry[0] = static_cast<int64_t>(tensor.scalar_type());
  entry[1] = tensor.dim();
  for (int64_t d = 0; d < tensor.dim(); ++d) entry[2 + d] = tensor.size(d);
}

std::vector<Tensor> share_tensors(Communicator& node, std::vector<Tensor> tensors,
                                  int64_t count) {
  auto sizes = at::zeros({count, kEntry}, at::kLong);
  auto* entries = sizes.mutable_data_ptr<int64_t>();
  for (size_t i = 0; i < tensors.size(); ++i)
    describe(tensors[i], entries + i * kEntry);
  node.broadcast(sizes, 0).wait();
  tensors.resize(count);
  for (int64_t i = 0; i < count; ++i) {
    const auto* entry = entries + i * kEntry;
    if (node.rank() != 0) {
      tensors[i] = at::empty(at::IntArrayRef(entry + 2, entry[1]),
                             static_cast<at::ScalarType>(entry[0]));
    }
    node.broadcast(tensors[i], 0).wait();
  }
  return tensors;
}

}  // namespace

std::vector<Tensor> read_once_per_node(
    Communicator* node, const std::function<std::vector<Tensor>()>& read) {
  if (node == nullptr || node->size() == 1) return read();
  std::vector<Tensor> tensors;
  std::string message;
  ReadStatus status;
  if (node->rank() == 0) {
    try {
      tensors = read();
      status = {true, static_cast<int64_t>(tensors.size())};
    } catch (const std::exception& error) {
      message = error.what();
      message.resize(std::min(message.find('\n'), message.size()));  // one line
      status = {false, static_cast<int64_t>(message.size())};
    }
  }
  status = share_status(*node, status);
  if (!status.good) share_failure(*node, std::move(message), status.count);
  return share_tensors(*node, std::move(tensors), status.count);
}

}  // namespace cohort
