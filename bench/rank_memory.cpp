// SPDX-License-Identifier: Apache-2.0
// rank_memory [--every-rank] [SIZE [RANKS [LAYOUT [OPTIMIZER]]]]: the first of so many
// ranks takes its state of a GPT, with first weights, alone; or each of them does, one
// after another, in a process of its own. Prints what its parts of tensors need at
// least beside what it allocated and what the process held. Exit code 1 where that is
// more than 1.1 times what is needed with the library.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "cohort/comm/backends.h"
#include "cohort/core/error.h"
#include "cohort/core/memory.h"
#include "cohort/core/parse.h"
#include "cohort/engine/flat_state.h"
#include "cohort/nn/first_value.h"
#include "cohort/nn/language_models.h"
#include "cohort/step/chain_specs.h"
#include "cohort/step/generator.h"
#include "cohort/step/mesh.h"
#include "cohort/update_rule.h"
#include "support/forwarding_communicator.h"

namespace cohort {
namespace {

constexpr double kMostOverIdeal = 1.1;

struct Setting {
  std::string size = "7B";
  int ranks = 8;
  std::string layout_text = "pp=4,tp=2";
  std::string optimizer = "adamw";
  bool every_rank = false;
  Layout layout = {};
};

// Stands at a place of the world, and meets nobody there.
class LoneRank final : public test::ForwardingCommunicator {
 public:
  LoneRank(Communicator& alone, int rank)
      : ForwardingCommunicator(alone), rank_(rank) {}
  int rank() const override { return rank_; }

 private:
  int rank_;
};

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

// Weights and moments, in float32, of the boxes of tensors that blocks at this place
// along the pipeline have: nothing is counted twice, and no padding.
int64_t ideal_bytes(const Chain& chain, const Schedule& schedule, int place,
                    int states) {
  std::set<std::string> seen;
  int64_t numel = 0;
  for (int b = 0; b < static_cast<int>(chain.blocks.size()); ++b) {
    if (schedule.place_of_block(b) != place) continue;
    const Block& block = *chain.blocks[b];
    for (size_t i = 0; i < block.parameters().size(); ++i) {
      const TensorSpec spec = parameter_spec(block, i);
      if (seen.insert(spec.name).second) numel += spec.box_numel();
    }
  }
  return numel * (1 + states) * size_of(at::kFloat);
}

int64_t parameters_of(const Chain& chain) {
  int64_t numel = 0;
  for (const auto& spec : parameter_specs(chain)) numel += spec.numel();
  return numel;
}

Chain make_part(const Setting& setting, int part) {
  const ModelsFilledLater later;
  return make_gpt(gpt_options(setting.size),
                  {.seed = 7, .tensor = {.rank = part, .size = setting.layout.tp}});
}

// Returns the exit code.
int measure(const Setting& setting, int rank) {
  const int64_t library = process_peak_memory();
  const Mesh mesh(setting.layout);
  const int part = mesh.coordinate(rank, Axis::kTensor);
  const Chain chain = make_part(setting, part);
  const auto rule = make_update_rule({.name = setting.optimizer});
  const int states = static_cast<int>(rule->states().size());
  const Schedule schedule = generate(specs_of(chain), setting.layout,
                                     {.slices = 1, .optimizer_states = states});
  const auto alone = connect_threads(1, std::chrono::seconds(1));
  LoneRank world(*alone[0], rank);
  RankGroups groups = RankGroups::of(*alone[0]);
  groups.world = &world;
  groups.part = part;
  groups.parts = setting.layout.tp;
  const FlatState state(chain, schedule, *rule, {}, groups, /*takes_over=*/false);
  int64_t held = 0;
  for (const auto& bucket : state.buckets()) {
    if (!bucket.own) continue;
    use(bucket);
    held += bytes_of(bucket);
  }
  const int64_t ideal =
      ideal_bytes(chain, schedule, mesh.coordinate(rank, Axis::kPipe), states);
  const int64_t peak = process_peak_memory();
  const double over = static_cast<double>(peak) / static_cast<double>(ideal + library);
  const auto mib = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  std::printf(
      "gpt %s, %lld parameters, %s, %s: rank %d needs %.0f MiB and allocated %.0f; the "
      "process had %.0f MiB before and has had %.0f at most, %.3fx of needs and "
      "library "
      "(legal: %.1fx)\n",
      setting.size.c_str(), static_cast<long long>(parameters_of(chain)),
      setting.layout.text().c_str(), setting.optimizer.c_str(), rank, mib(ideal),
      mib(held), mib(library), mib(peak), over, kMostOverIdeal);
  std::fflush(stdout);
  return over <= kMostOverIdeal ? 0 : 1;
}

int guarded(const Setting& setting, int rank) try {
  return measure(setting, rank);
} catch (const Error& error) {
  std::fprintf(stderr, "rank_memory: %s\n", error.what());
  return 2;
}

// Each starts with the memory that this process has, which runs no kernel itself.
int measure_every_rank(const Setting& setting) {
  int worst = 0;
  for (int rank = 0; rank < setting.ranks; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(guarded(setting, rank));
    int status = 0;
    if (child < 0 || ::waitpid(child, &status, 0) != child || !WIFEXITED(status))
      return 3;
    worst = std::max(worst, WEXITSTATUS(status));
  }
  return worst;
}

Setting setting_of(std::vector<std::string> args) {
  Setting setting;
  setting.every_rank = std::erase(args, "--every-rank") > 0;
  if (args.size() > 0) setting.size = args[0];
  if (args.size() > 1)
    setting.ranks = static_cast<int>(parse_int(args[1], "RANKS", 1, 1 << 16));
  if (args.size() > 2) setting.layout_text = args[2];
  if (args.size() > 3) setting.optimizer = args[3];
  setting.layout = parse_layout(setting.layout_text, setting.ranks);
  if (setting.layout.shard > 0)
    throw ConfigError(text("[rank_memory] layout ", setting.layout_text,
                           ": a shard is allocated by its ranks together; legal: "
                           "shard=0"));
  return setting;
}

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) try {
  const auto setting = cohort::setting_of({argv + 1, argv + argc});
  return setting.every_rank ? cohort::measure_every_rank(setting)
                            : cohort::guarded(setting, 0);
} catch (const cohort::Error& error) {
  std::fprintf(stderr, "rank_memory: %s\n", error.what());
  return 2;
}
