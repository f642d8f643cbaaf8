// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/layout_oracle.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>

#include "cohort/comm/backends.h"
#include "cohort/core/error.h"
#include "cohort/engine/executor.h"
#include "cohort/nn/first_value.h"
#include "cohort/step/checker.h"
#include "cohort/step/generator.h"
#include "cohort/step/piece_overlap.h"
#include "cohort/train/block_outputs.h"
#include "cohort/train/last_touch.h"

namespace cohort {
namespace {

constexpr std::chrono::seconds kRankPatience{120};

// Tensors that are all but zero have noise: it is measured by the largest of all.
constexpr double kLeastOfLargest = 1e-3;

bool is_gradient(const StateTensor& tensor) {
  return tensor.kind == TensorKind::kMoment;
}

// "optimizer.STATE.NAME" without the first two.
std::string parameter_of(const StateTensor& tensor) {
  if (!is_gradient(tensor)) return tensor.spec.name;
  const auto state = tensor.spec.name.find('.') + 1;
  return tensor.spec.name.substr(tensor.spec.name.find('.', state) + 1);
}

StatePiece copy_of(const StatePiece& piece) {
  return {piece.tensor, piece.data.detach().clone()};
}

Values copies_of(const Values& values) {
  Values copies;
  for (const auto& value : values)
    copies.push_back(value.defined() ? value.detach().clone() : value);
  return copies;
}

// The whole that a piece is of, as one piece.
StatePiece whole_of(StateTensor tensor, const Tensor& elements) {
  tensor.spec.box = {};
  tensor.spec.begin = 0;
  tensor.spec.end = tensor.spec.numel();
  return {std::move(tensor), elements};
}

double largest_of(const Tensor& tensor) {
  return tensor.numel() == 0 ? 0 : tensor.abs().max().item().toDouble();
}

}  // namespace

struct LayoutOracle::RankState {
  double loss = 0;
  std::vector<StatePiece> pieces;       // that this rank holds
  std::vector<std::string> parameters;  // names, in the order of the chain
  std::vector<int> blocks;              // by parameter: the first that uses it
  Schedule schedule;
  BlockOutputs outputs;              // those of a reference
  std::optional<OutputPlace> wrong;  // the first output that is another one
  std::exception_ptr error;
};

struct LayoutOracle::Reference {
  double loss = 0;
  std::map<std::string, Tensor> tensors;  // whole and flat, by name
  std::map<std::string, double> largest;  // elements
  double largest_gradient = 0, largest_weight = 0;
  std::vector<BlockOutputs> outputs;  // by tensor-parallel rank
};

std::string LayoutCase::text() const {
  std::string out;
  const auto add = [&](const std::string& word) {
    out += (out.empty() ? "" : ",") + word;
  };
  add(cohort::text("dp=", layout.dp));
  if (layout.tp > 1) add(cohort::text("tp=", layout.tp));
  if (layout.pp > 1) add(cohort::text("pp=", layout.pp));
  add(cohort::text("shard=", layout.shard));
  if (layout.replicate > 1) add(cohort::text("replicate=", layout.replicate));
  if (layout.pp > 1) out += cohort::text(", ", name_of(pipeline.order));
  if (layout.tp > 1 && !sequence) out += ", whole sequences";
  if (recompute) out += ", recompute";
  return out;
}

std::string Deviation::text() const {
  return cohort::text(what, " deviates by ", by, " of its largest element on rank ",
                      rank, touched.empty() ? "" : "; ", touched,
                      began.empty() ? "" : "; began with ", began);
}

LayoutOracle::LayoutOracle(OracleOptions options)
    : options_(std::move(options)), rule_(make_update_rule(options_.update)) {
  COHORT_CHECK(!rule_->states().empty(), "[verify] optimizer ", rule_->name(),
               " keeps nothing that shows a gradient");
}

LayoutOracle::~LayoutOracle() = default;

Batch LayoutOracle::batch_of(int slice, const std::vector<std::string>& fields) const {
  const int64_t begin = options_.batch * slice / options_.slices;
  const int64_t end = options_.batch * (slice + 1) / options_.slices;
  std::vector<int64_t> ids(static_cast<size_t>(end - begin));
  std::iota(ids.begin(), ids.end(), begin);
  return options_.data->gather(ids, fields);
}

void LayoutOracle::watch(Chain& chain, const Reference* wanted, int part,
                         RankState& state) const {
  watch_outputs(
      chain, [=, this, &state](const OutputPlace& place, const Values& given) {
        if (!wanted) {
          state.outputs[place] = copies_of(given);
          return;
        }
        const bool alone = wanted->outputs.size() == 1;
        const BlockOutputs& outputs = wanted->outputs[alone ? 0 : part];
        const auto other = outputs.find(place);
        if (other == outputs.end() || (state.wrong && *state.wrong <= place)) return;
        const double by = output_difference(given, other->second, alone ? part : 0);
        if (options_.exact ? by > 0 : !(by <= options_.bound)) state.wrong = place;
      });
}

LayoutOracle::RankState LayoutOracle::run_rank(const LayoutCase& one,
                                               const Reference* wanted,
                                               Communicator& comm) const {
  const int part = Mesh(one.layout).coordinate(comm.rank(), Axis::kTensor);
  Chain chain;
  {
    const ModelsFilledLater later;
    chain = options_.make_chain(
        {.rank = part, .size = one.layout.tp, .sequence = one.sequence});
  }
  const auto type = options_.exact ? at::kFloat : at::kDouble;
  RankState state;
  state.schedule =
      generate(specs_of(chain), one.layout,
               {.slices = options_.slices,
                .pipeline = one.pipeline,
                .clip = options_.clip > 0,
                .tensor_sums = rule_->reductions() > 0,
                .recompute = one.recompute,
                .exact = options_.exact,
                .precision = {type, type, type},
                .optimizer_states = static_cast<int>(rule_->states().size())});
  check(state.schedule, {});
  watch(chain, wanted, part, state);
  Executor executor(chain, state.schedule, *rule_, comm,
                    {.update = options_.update,
                     .decay = options_.decay,
                     .clip = options_.clip,
                     .seed = options_.seed});
  const auto fields = fields_of(chain, state.schedule.role_of(comm.rank()));
  state.loss = executor
                   .run({.rate = options_.rate,
                         .batch = [&](int slice) { return batch_of(slice, fields); }})
                   .loss;
  for (const auto& piece : executor.state(Holding::kHeld))
    state.pieces.push_back(copy_of(piece));
  for (int b = 0; b < static_cast<int>(chain.blocks.size()); ++b)
    for (const auto& named : chain.blocks[b]->parameters())
      if (std::ranges::find(state.parameters, named.name) == state.parameters.end()) {
        state.parameters.push_back(named.name);
        state.blocks.push_back(b);
      }
  return state;
}

// What one rank throws ends the others; that of the first rank with an own reason
// counts.
std::vector<LayoutOracle::RankState> LayoutOracle::run(const LayoutCase& one,
                                                       const Reference* wanted) const {
  const auto comms = connect_threads(one.layout.world(), kRankPatience);
  std::vector<RankState> states(comms.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < comms.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        states[r] = run_rank(one, wanted, *comms[r]);
        comms[r]->barrier().wait();  // nobody's memory goes while others look at it
      } catch (const std::exception& error) {
        states[r].error = std::current_exception();
        comms[r]->abort(error.what());
      }
    });
  for (auto& thread : threads) thread.join();
  return states;
}

const LayoutOracle::Reference& LayoutOracle::reference(int tensor_ranks,
                                                       bool sequence) {
  auto& known = references_[{tensor_ranks, sequence}];
  if (known) return *known;
  auto ranks = run({.layout = {.tp = tensor_ranks}, .sequence = sequence}, nullptr);
  auto made = std::make_unique<Reference>();
  for (auto& rank : ranks) {
    if (rank.error) std::rethrow_exception(rank.error);
    made->loss = rank.loss;
    made->outputs.push_back(std::move(rank.outputs));
    for (const auto& piece : rank.pieces) {
      const TensorSpec& spec = piece.tensor.spec;
      Tensor& whole = made->tensors[spec.name];
      if (!whole.defined()) whole = at::zeros({spec.numel()}, piece.data.options());
      copy_overlap(piece, whole_of(piece.tensor, whole));
    }
  }
  for (const auto& [name, tensor] : made->tensors) {
    const double largest = made->largest[name] = largest_of(tensor);
    double& of_kind =
        name.starts_with("optimizer.") ? made->largest_gradient : made->largest_weight;
    of_kind = std::max(of_kind, largest);
  }
  known = std::move(made);
  return *known;
}

Verdict LayoutOracle::compare(const LayoutCase& one) {
  const Reference& wanted =
      options_.exact ? reference(one.layout.tp, one.sequence) : reference(1, true);
  const auto ranks = run(one, &wanted);
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (!ranks[r].error) continue;
    try {
      std::rethrow_exception(ranks[r].error);
    } catch (const ConfigError&) {
      throw;
    } catch (const CommError&) {
      continue;  // because of another
    } catch (const std::exception& error) {
      return {.deviation = Deviation{.what = text("the step (", error.what(), ")"),
                                     .by = INFINITY,
                                     .rank = static_cast<int>(r)}};
    }
  }
  return judge(ranks, wanted);
}

int LayoutOracle::first_wrong(const std::vector<RankState>& ranks) {
  int first = kNone;
  for (int r = 0; r < static_cast<int>(ranks.size()); ++r) {
    if (ranks[r].error) std::rethrow_exception(ranks[r].error);
    if (ranks[r].wrong && (first == kNone || *ranks[r].wrong < *ranks[first].wrong))
      first = r;
  }
  return first;
}

std::string LayoutOracle::output_text(const RankState& state, int rank) {
  const auto [block, slice] = *state.wrong;
  return text("the output of ", state.schedule.blocks[block], " on rank ", rank, ": ",
              forward_action(state.schedule, rank, block, slice));
}

// The loss, then gradients from the last block to the first, as they come to be, then
// weights: what is wrong first has made the rest wrong.
Verdict LayoutOracle::judge(const std::vector<RankState>& ranks,
                            const Reference& wanted) const {
  Verdict verdict;
  int64_t first = std::numeric_limits<int64_t>::max();
  const auto note = [&](int64_t when, double by, bool fails, auto make) {
    verdict.largest = std::max(verdict.largest, by);
    if (!fails || when >= first) return;
    first = when;
    verdict.deviation = make();
  };
  const int began = first_wrong(ranks);
  for (int r = 0; r < static_cast<int>(ranks.size()); ++r) {
    const RankState& rank = ranks[r];
    const double loss = std::abs(rank.loss - wanted.loss) / std::abs(wanted.loss);
    note(-1, loss, options_.exact ? loss > 0 : !(loss <= options_.bound), [&] {
      return Deviation{
          .what = "the loss",
          .by = loss,
          .rank = began == kNone ? r : began,  // all have the same loss
          .touched = last_touch_of_loss(rank.schedule, began == kNone ? r : began)};
    });
    const auto count = static_cast<int64_t>(rank.parameters.size());
    for (const auto& piece : rank.pieces) {
      const StateTensor& tensor = piece.tensor;
      if (!wanted.tensors.contains(tensor.spec.name)) {
        note(-2, INFINITY, true, [&] {
          return Deviation{
              .what = text(parameter_of(tensor), ", which one rank has not,"),
              .by = INFINITY,
              .rank = r};
        });
        continue;
      }
      const Tensor expected = at::empty_like(piece.data);
      copy_overlap(whole_of(tensor, wanted.tensors.at(tensor.spec.name)),
                   {tensor, expected});
      const double of_kind =
          is_gradient(tensor) ? wanted.largest_gradient : wanted.largest_weight;
      const double by =
          largest_of(piece.data - expected) /
          std::max(wanted.largest.at(tensor.spec.name), kLeastOfLargest * of_kind);
      const bool fails =
          options_.exact ? !piece.data.equal(expected) : !(by <= options_.bound);
      const std::string parameter = parameter_of(tensor);
      const int64_t place =
          std::ranges::find(rank.parameters, parameter) - rank.parameters.begin();
      note(is_gradient(tensor) ? count - place : 2 * count + place, by, fails, [&] {
        return Deviation{.what = is_gradient(tensor)
                                     ? text("the gradient of ", parameter)
                                     : parameter,
                         .by = by,
                         .rank = r,
                         .touched = last_touch(rank.schedule, r, rank.blocks[place])};
      });
    }
  }
  if (verdict.deviation && began != kNone)
    verdict.deviation->began = output_text(ranks[began], began);
  return verdict;
}

}  // namespace cohort
