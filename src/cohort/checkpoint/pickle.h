// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/core/tensor.h"

namespace cohort {

// What Python pickled, as far as files of tensors need it. LibTorch's own reader does
// not know the OrderedDict that every state_dict is.
struct PickleValue {
  enum class Kind {
    kOther,  // None, or an object that means nothing here
    kInt,
    kText,
    kTuple,
    kList,
    kDict,
    kGlobal,  // a name: "torch.FloatStorage"
    kTensor
  };
  Kind kind = Kind::kOther;
  int64_t number = 0;
  std::string text;                           // of kText and kGlobal
  std::shared_ptr<struct PickleItems> items;  // shared as Python shares them
  Tensor tensor;
};

// Of tuples and lists; of a dictionary keys and values in turns.
struct PickleItems {
  std::vector<PickleValue> values;
  int depth = 1;        // of what is inside
  bool inside = false;  // another one: then it may not grow, which keeps depths true
};

// A storage that tensors are views of: its dtype's class, its key, its elements.
struct PickleStorage {
  std::string type;  // "torch.FloatStorage"
  std::string key;
  int64_t numel = 0;
};

// Reads a pickle of protocol 2 to 5. Nothing in it is executed: of all functions only
// those that rebuild tensors and dictionaries have a meaning, others give kOther.
// `storage` returns a flat tensor of the whole storage. Throws CheckpointError without
// the name of the file for anything malformed, unknown or nested too deep.
PickleValue read_pickle(std::string_view bytes,
                        const std::function<Tensor(const PickleStorage&)>& storage);

}  // namespace cohort
