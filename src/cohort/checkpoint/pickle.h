// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/tensor.h"

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
  // For kText and kGlobal. Shared, as Python shares it: a pickle may name one text
  // again and again for two bytes each.
  std::shared_ptr<const std::string> letters;
  std::shared_ptr<struct PickleItems> items;  // shared as well
  Tensor tensor;

  // Empty for what is no text.
  const std::string& text() const;
};

// The items of a tuple or a list, or the keys and values of a dictionary in turns.
struct PickleItems {
  std::vector<PickleValue> values;
  int depth = 1;        // nesting depth of what is inside
  bool inside = false;  // another one: then it may not grow, which keeps depths true
};

// A storage that tensors are views of: its dtype's class, its key, its elements.
struct PickleStorage {
  std::string type;  // "torch.FloatStorage"
  std::string key;
  int64_t numel = 0;
};

// Reads a pickle of protocol 2 to 5. Nothing in it is executed: only functions that
// rebuild tensors and dictionaries have a meaning, others give kOther.
// `storage` returns a flat tensor of the whole storage. A tensor has no more elements
// than its storage: one that repeats them (x.expand()) is refused, since a few bytes
// would make it as large as one likes. Throws CheckpointError without the name of the
// file for anything malformed, unknown or nested too deep.
PickleValue read_pickle(std::string_view bytes,
                        const std::function<Tensor(const PickleStorage&)>& storage);

}  // namespace cohort
