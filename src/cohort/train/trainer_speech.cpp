// SPDX-License-Identifier: Apache-2.0
// How a language model that is being trained continues a text, on all ranks together.
#include <ATen/ATen.h>

#include "cohort/core/error.h"
#include "cohort/nn/logits_block.h"
#include "cohort/train/step_plan.h"
#include "cohort/train/trainer.h"

namespace cohort {

void Trainer::prepare_to_speak() {
  if (!options_.continuation) return;
  COHORT_CHECK(services_.tokenizer && speech_.context > 0,
               "a text is to be continued without tokens");
  speech_.logits = make_logits_block(chain_);
  speech_.forward =
      make_forward_schedule(chain_, measures_, here_, speech_.logits.get());
}

// The model reads as many tokens as in training, at every layout: values that cross
// links have one shape, and logits the same bits wherever they are computed.
std::optional<int64_t> Trainer::next_token(const Continuation& text) {
  require_world();
  const Mesh mesh(here_.layout);
  const bool reads = mesh.index(comm_->rank(), kDataAxes) == 0;
  const Batch batch = reads ? text.batch(speech_.context, speech_.context) : Batch();
  const Values logits = runner_->outputs(speech_.forward, batch, *speech_.logits);
  const int64_t token = logits.empty() ? kNone : text.choose(logits[0]);
  Tensor said = at::tensor({token, int64_t{asked_to_stop() != 0}}, at::kLong);
  comm_->all_reduce(said, ReduceOp::kMax).wait();
  if (said[1].item<int64_t>() != 0) return std::nullopt;
  return said[0].item<int64_t>();
}

// All ranks write the same text; the rank that has the last block chooses for all. A
// run that is asked to stop leaves it.
void Trainer::speak() {
  if (!options_.continuation) return;
  Continuation text(*services_.tokenizer, *options_.continuation);
  while (!text.is_done()) {
    const auto token = next_token(text);
    if (!token) return;
    text.add(*token);
  }
  recorder_.continuation({.step = state_.committed,
                          .prompt = options_.continuation->prompt,
                          .text = text.text(),
                          .tokens = text.tokens()});
}

}  // namespace cohort
