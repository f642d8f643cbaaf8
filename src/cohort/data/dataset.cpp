// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/dataset.h"

#include <algorithm>
#include <utility>

#include "cohort/core/error.h"
#include "cohort/core/parse.h"

namespace cohort {
namespace {

std::string names_of(const std::map<std::string, Tensor>& fields) {
  std::string names;
  for (const auto& [name, tensor] : fields) names += (names.empty() ? "" : ", ") + name;
  return names.empty() ? "none" : names;
}

}  // namespace

Batch Batch::of(std::map<std::string, Tensor> fields, std::vector<int64_t> ids) {
  COHORT_CHECK(!fields.empty(), "a batch of no fields");
  const int64_t count = fields.begin()->second.size(0);
  for (const auto& [name, tensor] : fields)
    COHORT_CHECK(tensor.size(0) == count, "field ", name, " has ", tensor.size(0),
                 " rows, another ", count);
  return {.fields = std::move(fields), .count = count, .ids = std::move(ids)};
}

const Tensor& Batch::at(const std::string& field) const {
  const auto it = fields.find(field);
  if (it == fields.end())
    throw BugError(text("[data] a batch without the field '", field,
                        "'; it has: ", names_of(fields)));
  return it->second;
}

Tensor& Batch::at(const std::string& field) {
  return const_cast<Tensor&>(std::as_const(*this).at(field));
}

std::vector<Tensor> Batch::tensors(std::span<const std::string> names) const {
  std::vector<Tensor> found;
  for (const auto& name : names) found.push_back(at(name));
  return found;
}

Batch empty_batch(const Dataset& data, std::span<const int64_t> ids,
                  std::span<const std::string> fields) {
  Batch batch{.count = static_cast<int64_t>(ids.size()),
              .ids = {ids.begin(), ids.end()}};
  for (const int64_t id : ids)
    COHORT_CHECK(id >= 0 && id < data.size(), "sample ", id, " of ", data.size());
  const auto legal = data.fields();
  for (const auto& field : fields) {
    COHORT_CHECK(std::ranges::find(legal, field) != legal.end(), "field ", field);
    batch.fields[field];
  }
  return batch;
}

void require_fields(const Dataset& data, std::span<const std::string> fields) {
  const auto legal = data.fields();
  for (const auto& field : fields)
    if (std::ranges::find(legal, field) == legal.end())
      throw ConfigError(text("[data] the model takes the field '", field,
                             "' of a batch; ", data.describe(),
                             " has: ", join({legal.begin(), legal.end()}, ", ")));
}

}  // namespace cohort
