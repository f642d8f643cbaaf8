// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/pickle.h"

#include <ATen/ATen.h>

#include "fuzz/target.h"

COHORT_FUZZ_TARGET(pickle) {
  constexpr int64_t kMost = 1000;
  allow<CheckpointError>([&] {
    const auto value = read_pickle(bytes, [](const PickleStorage& want) {
      if (want.numel > kMost) throw CheckpointError("a storage that is not there");
      return at::zeros({want.numel}, at::kFloat);
    });
    if (value.kind != PickleValue::Kind::kDict) return;
    for (const auto& item : value.items->values) {
      if (!item.tensor.defined()) continue;
      demand(item.tensor.numel() <= kMost, "more elements than are stored");
      (void)item.tensor.contiguous();
    }
  });
}
