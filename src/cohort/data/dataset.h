// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "cohort/core/tensor.h"

namespace cohort {

// Samples as named tensors, in each of which they are stacked along dim 0. Images and
// their classes are the fields "input" and "target".
struct Batch {
  std::map<std::string, Tensor> fields = {};
  int64_t count = 0;              // of samples: rows of each field, also where none is
  std::vector<int64_t> ids = {};  // of the samples, where someone keys by them

  // With as many samples as the fields have rows; it is our bug if they differ.
  static Batch of(std::map<std::string, Tensor> fields, std::vector<int64_t> ids = {});

  // BugError that names the fields there are.
  const Tensor& at(const std::string& field) const;
  Tensor& at(const std::string& field);

  // The tensors of these fields, in this order.
  std::vector<Tensor> tensors(std::span<const std::string> names) const;
};

// A fixed set of samples, known by their ids [0, size()). Sample i is the same on
// every rank and in every run.
//
// Thread safety: gather() may be called from several threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;

  virtual int64_t size() const = 0;

  // What samples consist of.
  virtual std::span<const std::string> fields() const = 0;

  // New tensors with `fields` of the samples `ids`, in that order, and the ids. No ids
  // give tensors with zero rows; no fields, nothing but ids and their number. An id
  // outside the set is a bug of the caller, and so is a field that is not there.
  virtual Batch gather(std::span<const int64_t> ids,
                       std::span<const std::string> fields) const = 0;
  Batch gather_all(std::span<const int64_t> ids) const { return gather(ids, fields()); }

  // One line for people: "fashion-mnist train: 60000 images 1x28x28, 10 classes".
  virtual std::string describe() const = 0;

 protected:
  Dataset() = default;
};

// What a gather() fills in: ids, count, and the fields as tensors that are yet
// undefined. Checks both against the set.
Batch empty_batch(const Dataset& data, std::span<const int64_t> ids,
                  std::span<const std::string> fields);

// ConfigError unless the set has all of `fields`: says which one it lacks, and what it
// has.
void require_fields(const Dataset& data, std::span<const std::string> fields);

}  // namespace cohort
