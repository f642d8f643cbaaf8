// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cohort/tensor.h"

namespace cohort {

// What a comparison of copies found.
struct ReplicaReport {
  std::string what;  // which tensor, of which ranks; empty: all copies are equal
  std::vector<int>
      odd;  // ranks whose copies are not those of most; empty: nobody knows
};

// Collects comparisons of one tensor after another. Ranks that add the same facts come
// to the same report.
class ReplicaComparison {
 public:
  // `hashes`: of what each rank holds of tensor `name`.
  void add(const std::string& name, const std::map<int, uint64_t>& hashes);
  ReplicaReport report() const;

 private:
  std::string what_;
  std::map<int, bool> odd_;
  bool certain_ = true;  // for every tensor, most copies are equal
};

// Hashes the elements, wherever and however they lie.
uint64_t tensor_hash(const Tensor& tensor);

}  // namespace cohort
