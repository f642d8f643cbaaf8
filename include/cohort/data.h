// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/tensor.h"

// Data sets of your own: a Dataset gives samples by their numbers, as named fields.
// Which rank computes which samples, in which order and with which prefetch, is not its
// business.

namespace [[gnu::visibility("default")]] cohort {

// Samples as named tensors, in each of which they are stacked along dim 0. Images and
// their classes are the fields "input" and "target".
struct Batch {
  std::map<std::string, Tensor> fields = {};
  int64_t count = 0;              // samples: rows of each field, also where none is
  std::vector<int64_t> ids = {};  // the samples', where someone keys by them

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

// Changes the samples of a batch in place: those fields that are there, since a rank of
// a pipeline has not all of them. What becomes of a sample depends on its id and the
// epoch alone: not on the batch, the slice or the rank it is in.
//
// Called once for each batch, behind Dataset::gather(), in the thread that loads, while
// another one computes: one call at a time in a process. What it throws ends the rank.
// The batch is the caller's: keep nothing of it.
using Augment = std::function<void(Batch& batch, int64_t epoch)>;

struct CropFlipOptions {
  int64_t padding = 4;
  std::vector<float> fill;  // for the padding, by channel; empty: 0
  uint64_t seed = 0;
};

// For the field "input", float32 images [n, channels, height, width]: `padding` pixels
// on every side, from which a window of the old size is cut at random; every other
// window is mirrored, left to right. He et al. 2016, section 4.2.
Augment crop_and_flip(CropFlipOptions options);

// What tokens mean: [0, size). Those of [begin, end) stand for text.
struct Vocabulary {
  int64_t size = 0;
  int64_t begin = 0, end = 0;
  int64_t end_of_text = 0;  // stands behind each document
  int64_t mask = 0;         // for masked language models; may be one past the last

  int64_t size_with_mask() const { return std::max(size, mask + 1); }
};

// Text to tokens and back. What encode() makes of a text, decode() turns into the same
// bytes. Thread safety: immutable.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  virtual const Vocabulary& vocabulary() const = 0;
  // Adds the tokens of `text` to `tokens`.
  virtual void encode(std::string_view text, std::vector<uint16_t>& tokens) const = 0;
  // Tokens that stand for no text give none.
  virtual std::string decode(std::span<const int64_t> tokens) const = 0;

 protected:
  Tokenizer() = default;
};

}  // namespace cohort
