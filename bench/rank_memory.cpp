// SPDX-License-Identifier: Apache-2.0
// rank_memory [SIZE [RANKS [LAYOUT [OPTIMIZER]]]]: the first of so many ranks takes its
// state of a GPT, with first weights, alone. Prints its bytes beside what the process
// holds.
#include <cstdio>
#include <cstdlib>

#include "cohort/comm/backends.h"
#include "cohort/core/error.h"
#include "cohort/core/memory.h"
#include "cohort/engine/flat_state.h"
#include "cohort/nn/first_value.h"
#include "cohort/nn/language_models.h"
#include "cohort/step/chain_specs.h"
#include "cohort/step/generator.h"
#include "cohort/update_rule.h"

namespace cohort {
namespace {

int64_t bytes_of(const Tensor& tensor) {
  return tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0;
}

// Float32 weights are computed with where they are kept: that memory counts once.
int64_t bytes_of(const BucketState& bucket) {
  const bool one = bucket.whole.defined() && bucket.master.defined() &&
                   bucket.whole.data_ptr() == bucket.master.data_ptr();
  int64_t bytes = bytes_of(bucket.whole) + (one ? 0 : bytes_of(bucket.master));
  for (const auto& state : bucket.states) bytes += bytes_of(state);
  return bytes;
}

// Touches every page, as a first step does.
void use(const BucketState& bucket) {
  for (const auto& state : bucket.states) state.fill_(0);
}

void measure(const std::string& size, const Layout& layout,
             const std::string& optimizer) {
  const int64_t library = process_peak_memory();
  Chain chain;
  {
    const ModelsFilledLater later;
    chain = make_gpt(gpt_options(size), {.seed = 7, .tensor = {.size = layout.tp}});
  }
  int64_t numel = 0;
  for (const auto& spec : parameter_specs(chain)) numel += spec.numel();
  const auto rule = make_update_rule({.name = optimizer});
  const Schedule schedule = generate(
      specs_of(chain), layout,
      {.slices = 1, .optimizer_states = static_cast<int>(rule->states().size())});
  const auto alone = connect_threads(1, std::chrono::seconds(1));
  RankGroups groups = RankGroups::of(*alone[0]);
  groups.parts = layout.tp;
  const FlatState state(chain, schedule, *rule, {}, groups, /*takes_over=*/false);
  int64_t held = 0;
  for (const auto& bucket : state.buckets()) {
    if (!bucket.own) continue;
    use(bucket);
    held += bytes_of(bucket);
  }
  const int64_t peak = process_peak_memory();
  const auto mib = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  std::printf(
      "gpt %s, %lld parameters, %s, %s: rank 0 holds %.0f MiB; the process had %.0f "
      "MiB before and has had %.0f at most, %.3fx of both\n",
      size.c_str(), static_cast<long long>(numel), layout.text().c_str(),
      optimizer.c_str(), mib(held), mib(library), mib(peak),
      static_cast<double>(peak) / static_cast<double>(held + library));
}

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) try {
  const int ranks = argc > 2 ? std::atoi(argv[2]) : 8;
  cohort::measure(argc > 1 ? argv[1] : "7B",
                  cohort::parse_layout(argc > 3 ? argv[3] : "pp=4,tp=2", ranks),
                  argc > 4 ? argv[4] : "adamw");
  return 0;
} catch (const cohort::Error& error) {
  std::fprintf(stderr, "rank_memory: %s\n", error.what());
  return 1;
}
