// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "cohort/tensor.h"

namespace cohort {

// What makes a parameter's gradient later, by the target that it will then be written
// to.
struct GradTarget;
using LaterGradients = std::map<const GradTarget*, std::function<void()>>;

// Where the gradient of a parameter may be written directly, so that it is born in
// its bucket. Undefined: nowhere, return it as usual.
struct GradTarget {
  Tensor view;
  bool accumulate = false;  // add to what is there, from earlier slices
  // In a backward of two parts: a layer that can make the gradient without the graph
  // leaves here how, and returns none. Before that is called, the target is filled in.
  // Null: now or never.
  LaterGradients* later = nullptr;
};

// A target that is filled in before the backward that writes to it: while slices are
// under way nobody knows yet where their gradients will have room. Null: there is none.
using GradCell = std::shared_ptr<const GradTarget>;

// Hands out cells during a forward; for each parameter at most one, because two
// writers of one target would overwrite each other.
class GradSink {
 public:
  virtual ~GradSink() = default;
  virtual GradCell take(const Tensor& parameter) = 0;
};

// Random numbers of the samples at hand, made on a device from keys in its memory: so a
// captured step draws new ones each time it is replayed.
class DeviceRandom {
 public:
  virtual ~DeviceRandom() = default;
  // random_bits(RandomKey::of_sample(...), i) for `count` numbers i from `first` on,
  // one row per sample, int64.
  virtual Tensor bits(const std::string& operation, int64_t first, int64_t count) = 0;
};

}  // namespace cohort
