// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cohort/data/dataset.h"

namespace cohort {

// Samples that are an input and the number of its class: the fields "input" and
// "target".
class LabelledDataset : public Dataset {
 public:
  std::span<const std::string> fields() const final { return fields_; }
  Batch gather(std::span<const int64_t> ids,
               std::span<const std::string> fields) const final;

 protected:
  LabelledDataset() = default;

  virtual Tensor inputs(std::span<const int64_t> ids) const = 0;
  virtual int64_t label(int64_t id) const = 0;

 private:
  Tensor labels(std::span<const int64_t> ids) const;

  const std::vector<std::string> fields_{"input", "target"};
};

}  // namespace cohort
