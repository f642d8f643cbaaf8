// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace [[gnu::visibility("default")]] cohort {

// The numbers of one step that an update needs beside the tensors.
struct StepScalars {
  double rate = 0;        // learning rate
  double grad_scale = 1;  // what the summed gradient is multiplied with: 1 / count
  int64_t step = 1;       // counted from 1
};

// What differs between the parameters of a model under one rule.
struct ParameterTraits {
  double weight_decay = 0;
  // Whether lars and lamb give the tensor a rate of its own. Published recipes leave
  // out biases and norms, and do not decay them either.
  bool adapts = true;

  bool operator==(const ParameterTraits&) const = default;
};

// How many elements a state has. Rows are those of a matrix: a row is one index of the
// first dimension, a column one place in a row. With fewer than two dimensions a tensor
// is no matrix.
enum class StateShape {
  kParameter,  // as many as the parameter
  kScalar,     // one
  kRows,       // one for each row; none if the tensor is no matrix
  kColumns,    // one for each column; none if the tensor is no matrix
  kNoMatrix,   // as many as the parameter if it is no matrix, else none
};

int64_t state_numel(StateShape shape, std::span<const int64_t> sizes);

// A state of a rule; all elements are zero at first.
struct StateSpec {
  std::string_view name;
  StateShape shape = StateShape::kParameter;
};

// A stretch of a parameter, and what belongs to it. Real is float, or double where
// results are verified; const where nothing may change.
template <typename Real>
struct UpdateStretch {
  Real* parameter = nullptr;
  const Real* gradient = nullptr;
  // In the order of UpdateRule::states(): those like the parameter from the stretch's
  // first element on, others whole.
  std::span<Real* const> states;
  int64_t count = 0;
};

// How a parameter changes with its gradient.
//
// Works on stretches of flat memory, so that the same rule serves whole tensors,
// buckets and shards. The bits of an element do not depend on where the stretch it lies
// in begins or ends.
//
// Without reductions() an update is apply(), for stretches that may span tensors with
// equal traits. With them it has two phases, and a stretch lies in one tensor:
//
//   every rank: reduce() each chunk that it holds of each tensor that adapts; chunks
//               are cut at multiples of 1024 elements from the tensor's start
//   together:   bring the sums of all chunks to every rank that holds a part of the
//               tensor, and add_chunks() them
//   every rank: apply() with these totals
//
// Both phases of a step have the same gradient, traits and scalars.
//
// Failure: what a user can mend is a ConfigError of the constructor; what reduce() and
// apply() throw ends the rank, with weights that are half changed. Memory of stretches
// is the caller's, for the time of the call.
//
// Thread safety: reduce() and apply() are const and may run for different stretches at
// once.
class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  UpdateRule(const UpdateRule&) = delete;
  UpdateRule& operator=(const UpdateRule&) = delete;

  virtual std::string_view name() const = 0;
  virtual std::span<const StateSpec> states() const = 0;

  // How many sums over each tensor that adapts apply() needs.
  virtual int reductions() const = 0;

  // sums = those of one chunk; `sums` has reductions() elements. Changes nothing else.
  virtual void reduce(const UpdateStretch<const float>& chunk,
                      const ParameterTraits& traits, const StepScalars& scalars,
                      std::span<double> sums) const = 0;
  virtual void reduce(const UpdateStretch<const double>& chunk,
                      const ParameterTraits& traits, const StepScalars& scalars,
                      std::span<double> sums) const = 0;

  // Updates the parameter and the states in place. `totals`: the sums over the whole
  // tensor; of a tensor that does not adapt they are not looked at.
  virtual void apply(const UpdateStretch<float>& stretch, const ParameterTraits& traits,
                     std::span<const double> totals,
                     const StepScalars& scalars) const = 0;
  virtual void apply(const UpdateStretch<double>& stretch,
                     const ParameterTraits& traits, std::span<const double> totals,
                     const StepScalars& scalars) const = 0;

 protected:
  UpdateRule() = default;
};

// A rule that looks at each element alone.
class ElementwiseRule : public UpdateRule {
 public:
  int reductions() const final { return 0; }
  void reduce(const UpdateStretch<const float>&, const ParameterTraits&,
              const StepScalars&, std::span<double>) const final {}
  void reduce(const UpdateStretch<const double>&, const ParameterTraits&,
              const StepScalars&, std::span<double>) const final {}
};

// The sums of all chunks of one tensor, chunk after chunk, are added in a tree that
// depends on their number alone. `totals` has reductions() elements.
void add_chunks(std::span<const double> chunks, std::span<double> totals);

struct UpdateOptions {
  std::string name = "sgd";
  double momentum = 0.9;  // sgd and lars
  bool nesterov = false;
  double beta1 = 0.9;  // adam, adamw and lamb
  double beta2 = 0.999;
  double eps = 1e-8;     // all but sgd
  double trust = 0.001;  // lars: a step moves a tensor by rate * trust of its norm
  // Makes a rule of one's own, whatever the name above says: the same each time. On
  // processors: GPUs have kernels for the rules above.
  std::function<std::unique_ptr<UpdateRule>()> own = nullptr;
};

// Which parameters a rule pulls towards zero, and how much.
struct DecayOptions {
  double weight_decay = 0;
  std::string no_decay;  // comma list; a name that contains an entry is left alone
};

// ConfigError for an unknown name, with the nearest legal one.
std::unique_ptr<UpdateRule> make_update_rule(const UpdateOptions& options);

}  // namespace cohort
