// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "cohort/core/error.h"
#include "cohort/train/trainer.h"

namespace cohort {

// Every data-parallel rank looks at its part, in equally many turns: a model that is
// sharded needs all ranks for every one of them, and so do the stages of a pipeline.
// The sums are everyone's.
void Trainer::validate(int64_t epoch) {
  const Mesh mesh(here_.layout);
  const int64_t size = valid_->size(), parts = mesh.size(kDataAxes);
  const int64_t part = mesh.index(comm_->rank(), kDataAxes);
  const int64_t begin = size * part / parts;
  const int64_t end = size * (part + 1) / parts;
  const int64_t most = (size + parts - 1) / parts;
  const auto& names = chain_.loss.metrics.named;
  Tensor sums = at::zeros({3 + static_cast<int64_t>(names.size())}, at::kDouble);
  double* values = sums.data_ptr<double>();
  Tensor fits = at::full({1}, work_.valid_samples, at::kLong);
  comm_->all_reduce(fits, ReduceOp::kMin).wait();
  const int64_t piece = fits.item<int64_t>();  // on every rank
  for (int64_t turn = 0; turn < most; turn += piece) {
    const int64_t at = std::min(begin + turn, end);
    std::vector<int64_t> ids(std::min(piece, end - at));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = at + static_cast<int64_t>(i);
    const WeightedLoss loss =
        runner_->evaluate(work_.forward_only, valid_->gather(ids, work_.valid_fields));
    values[0] += loss.sum.item<double>();
    values[1] += loss.count;
    values[2] += loss.correct;
    // A rank whose loss another one tells has none.
    if (!loss.named.empty() && loss.named.size() != names.size())
      throw ConfigError(text("[train] the loss has ", loss.named.size(),
                             " metrics of its own and names ", names.size(),
                             "; legal: a sum in WeightedLoss::named for each of "
                             "Metrics::named"));
    for (size_t i = 0; i < loss.named.size(); ++i) values[3 + i] += loss.named[i];
  }
  reach("train.validate", comm_->generation());
  comm_->all_reduce(sums, ReduceOp::kSum).wait();
  reach("train.validated", comm_->generation());
  facts_.validated = epoch;
  ValidEvent event{.epoch = epoch, .loss = values[0] / values[1]};
  if (chain_.loss.metrics.accuracy) event.accuracy = values[2] / values[1];
  if (chain_.loss.metrics.perplexity) event.perplexity = std::exp(event.loss);
  for (size_t i = 0; i < names.size(); ++i)
    event.named.emplace_back(names[i], values[3 + i] / values[1]);
  facts_.accuracy = event.accuracy;
  recorder_.valid(event);
  reach("train.validation_told", comm_->generation());
}

}  // namespace cohort
