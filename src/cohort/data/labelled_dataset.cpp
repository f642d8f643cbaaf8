// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/labelled_dataset.h"

#include <ATen/ATen.h>

namespace cohort {

Batch LabelledDataset::gather(std::span<const int64_t> ids,
                              std::span<const std::string> fields) const {
  Batch batch = empty_batch(*this, ids, fields);
  for (auto& field : batch.fields)
    field.second = field.first == "input" ? inputs(ids) : labels(ids);
  return batch;
}

Tensor LabelledDataset::labels(std::span<const int64_t> ids) const {
  Tensor all = at::empty({static_cast<int64_t>(ids.size())}, at::kLong);
  auto* out = all.mutable_data_ptr<int64_t>();
  for (size_t row = 0; row < ids.size(); ++row) out[row] = label(ids[row]);
  return all;
}

}  // namespace cohort
