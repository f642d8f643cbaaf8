// SPDX-License-Identifier: Apache-2.0
#pragma once

// What kernels are launched with: one struct for each, passed by value. One text for
// the compiler of the host and for NVRTC, as update_arithmetic.h. Pointers are those of
// the device.

#include <cstdint>

namespace cohort {

// The numbers of one step, in device memory: so that a captured launch is never out of
// date. Powers of beta are the host's, which rounds them alike everywhere.
struct StepNumbers {
  double rate = 0;
  double mean_scale = 1;   // 1 / count: what makes the summed gradient the mean one
  double grad_scale = 1;   // the same times the factor of clipping
  double correction1 = 1;  // 1 - beta1^step
  double correction2 = 1;  // 1 - beta2^step
  double norm = 0;         // that of the mean gradient
  int64_t step = 1;        // counted from 1
  int64_t voted = 0;       // the step, once this rank has voted on it
  int64_t decided = 0;     // the step, once the votes of all ranks are there
  int32_t gate = 1;        // 0: an update changes nothing
  int32_t not_finite = 0;  // 1: a gradient is infinite or no number
};

namespace kernels {

constexpr int kThreads = 256;     // in each block
constexpr int kMostInputs = 128;  // that one launch sums
constexpr int kMostNodes = 256;   // that one fold adds
constexpr int kMostLeft = 32;     // that one fold leaves
constexpr int kTile = 4096;       // elements that a block updates at once
constexpr int kNormChunk = 1024;  // as in optim/gradient_norm.h
constexpr double kClipEps = 1e-6;

struct SumArguments {
  const void* inputs[kMostInputs];
  float* out;
  int64_t count;
  int32_t num_inputs;
};

struct FoldArguments {
  const float* values[kMostNodes];
  float* out[kMostLeft];
  int64_t count;
  int32_t num_values;
  int32_t num_out;
  int8_t merges[kMostNodes];  // after each value
};

struct NarrowArguments {
  const float* in;
  void* out;
  int64_t count;
};

// Elements [begin, begin + count) of a shard; at most kNormChunk.
struct Chunk {
  int64_t begin;
  int64_t count;
  int64_t slot;  // where its sums go
};

struct ChunkArguments {
  const void* values;
  const Chunk* chunks;
  int64_t num_chunks;
  double* sums;
};

// All values, or, with chunks, those in them.
struct FiniteArguments {
  const void* values;
  int64_t count;
  const Chunk* chunks;
  int64_t num_chunks;
  int32_t* flag;
};

// A vote is a word, 2 * step, and 1 more if it is for the step.
struct VoteArguments {
  StepNumbers* numbers;
  const bool* hindered;
  const int32_t* stop;  // memory of the host; or null
  int64_t* word;
};

struct CountArguments {
  StepNumbers* numbers;
  const int64_t* words;
  int64_t count;
};

struct NormArguments {
  const double* sums;
  int64_t count;
  double limit;
  StepNumbers* numbers;
};

// The chunks of one tensor, in the sums of all of them.
struct TensorChunks {
  int64_t first;
  int64_t count;
};

struct TreeArguments {
  const double* sums;
  const TensorChunks* tensors;
  int64_t num_tensors;
  int64_t width;  // sums of each chunk
  double* totals;
};

struct ElementArguments {
  const void* data;
  int64_t count;
  uint64_t key;   // the first element's
  uint64_t step;  // from one element's key to the next
  uint64_t* sum;
};

// Rows of `stride` elements, of which the first `columns` are logits.
struct LogitArguments {
  void* logits;
  int64_t rows;
  int64_t columns;
  int64_t stride;
  const int64_t* places;
  double* log_sums;
  double* targets;      // in a forward
  const bool* counted;  // in a backward
  const double* factor;
};

struct TimeArguments {
  int64_t* at;
};

// What a rule has for all steps.
struct RuleNumbers {
  double momentum, beta1, beta2, eps, trust;
};

// What is alike in a range of a shard.
struct RangeTraits {
  double weight_decay;
  int64_t place;  // place of what adapts: its totals begin at place * width; else -1
};

// Elements [begin, begin + count) of a shard, which lie in one range; at most kTile,
// or kNormChunk where sums of chunks are made.
struct Tile {
  int64_t begin;
  int32_t count;
  int32_t range;
  int64_t slot;  // where the sums of its chunk go
};

struct UpdateArguments {
  float* master;
  float* states[2];
  const void* gradient;
  void* published;
  const RangeTraits* ranges;
  const Tile* tiles;
  int64_t num_tiles;
  double* sums;          // per chunk, where they are made
  const double* totals;  // per tensor, where they are used
  const StepNumbers* numbers;
  RuleNumbers rule;
};

}  // namespace kernels
}  // namespace cohort
