// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/device/device_call.h"

#include "cohort/comm/staging.h"

namespace cohort::device_comm {

Tensor DeviceCall::place_for(const Tensor& tensor) {
  return tensor.is_contiguous() ? tensor.detach() : contiguous_like(tensor);
}

void DeviceCall::put(const Tensor& to, const Tensor& values) {
  if (to.const_data_ptr() != values.const_data_ptr()) copy_into(to, values);
}

void DeviceCall::swap(const Tensor& out, const Tensor& in, const Parts& parts) {
  const auto pieces = [](const Tensor& tensor, const std::vector<int64_t>& counts) {
    std::vector<Piece> all;
    auto* at = static_cast<std::byte*>(const_cast<void*>(tensor.const_data_ptr()));
    for (size_t peer = 0; peer < counts.size(); ++peer) {
      const int64_t bytes = counts[peer] * tensor.element_size();
      all.push_back({at, bytes, static_cast<int>(peer)});
      at += bytes;
    }
    return all;
  };
  transfer(pieces(in, parts.sent), pieces(out, parts.received));
}

void DeviceCall::exchange(std::span<const Transfer> sends,
                          std::span<const Transfer> receives) {
  std::vector<Tensor> sources, places;
  std::vector<Piece> sent, received;
  const auto add = [](std::vector<Piece>& pieces, int peer, const Tensor& tensor) {
    pieces.push_back({const_cast<void*>(tensor.const_data_ptr()),
                      static_cast<int64_t>(tensor.nbytes()), peer});
  };
  for (const auto& [peer, tensor] : sends) {
    sources.push_back(contiguous_copy(tensor));
    add(sent, peer, sources.back());
  }
  for (const auto& [peer, tensor] : receives) {
    places.push_back(place_for(tensor));
    add(received, peer, places.back());
  }
  transfer(sent, received);
  for (size_t i = 0; i < receives.size(); ++i)
    if (receives[i].tensor.numel() > 0) put(receives[i].tensor, places[i]);
}

}  // namespace cohort::device_comm
