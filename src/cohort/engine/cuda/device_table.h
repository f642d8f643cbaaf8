// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <cstring>
#include <span>

#include "cohort/tensor.h"

namespace cohort {

// Rows of words in the memory of a device, for kernels to read: size(0) of them.
template <typename Row>
Tensor device_table(std::span<const Row> rows, at::Device device) {
  static_assert(sizeof(Row) % sizeof(int64_t) == 0);
  constexpr auto kColumns = static_cast<int64_t>(sizeof(Row) / sizeof(int64_t));
  const Tensor host =
      at::empty({static_cast<int64_t>(rows.size()), kColumns}, at::kLong);
  if (!rows.empty()) std::memcpy(host.data_ptr(), rows.data(), rows.size_bytes());
  return host.to(device);
}

}  // namespace cohort
