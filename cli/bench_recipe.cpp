// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_recipe.h"

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "cli/bench_steps.h"
#include "cli/step_options.h"
#include "cli/step_setting.h"
#include "cohort/comm/peer_memory.h"
#include "cohort/comm/world.h"
#include "cohort/core/freed_memory.h"
#include "cohort/data/sampler.h"
#include "cohort/train/checked_recipe.h"
#include "cohort/train/model_counts.h"

namespace cohort::cli {
namespace {

constexpr int kWarmUpSteps = 3;
constexpr int kStepsOfRound = 10;

StepSetting bench_setting(const BenchTrainArgs& args, const Recipe& recipe) {
  Config config = recipe.defaults();
  take_settings(args.config, args.set, config);
  return setting_of({.ranks = args.ranks.empty() ? "2" : args.ranks,
                     .layout = args.layout,
                     .exact = args.exact,
                     .measure = kStepsOfRound,
                     .backend = args.backend},
                    recipe, std::move(config));
}

std::vector<BlockMeasure> needs_of_blocks(const StepSetting& setting,
                                          const Chain& chain, const Dataset& data) {
  auto measures = measure_blocks(chain, data);
  if (const auto counts =
          count_model(*setting.recipe, setting.config,
                      tensor_part(setting.config, setting.layout, 0), data))
    take_flops(*counts, measures);
  return measures;
}

// The step of a run, with the weights as they are: a rate of 0 costs as much. Batches
// are gathered when they are needed, and not changed at random.
BenchVariant recipe_variant(const StepSetting& setting, const UpdateRule& rule,
                            const Dataset& data, Communicator& comm) {
  auto chain = std::make_unique<Chain>(setting.make_chain(comm.rank()));
  Schedule schedule =
      schedule_of(setting, specs_of(*chain), needs_of_blocks(setting, *chain, data),
                  setting.batch());
  const auto fields = fields_of(*chain, schedule.role_of(comm.rank()));
  const Sampler sampler({.size = data.size(),
                         .batch = setting.batch(),
                         .slices = setting.options.slices});
  auto executor = std::make_unique<Executor>(*chain, std::move(schedule), rule, comm,
                                             executor_options(setting.config));
  return {.chain = std::move(chain),
          .executor = std::move(executor),
          .batch = [&data, sampler, fields](int64_t step, int slice) {
            return data.gather(sampler.slice(sampler.position(step), slice), fields);
          }};
}

int bench_recipe_rank(const BenchTrainArgs& args, StepSetting setting) {
  keep_freed_memory();
  const World world = world_from_env();
  const ConnectOptions options{.backend = args.backend,
                               .timeout = std::chrono::minutes(10)};
  const auto loading =
      begin_loading(*setting.recipe, setting.config, world.local_rank == 0);
  const auto store = join(world, options);
  const auto comm = connect(world, *store, options);
  const DataSets data = finish_loading(*setting.recipe, *loading, comm.get());
  setting.options.shares_memory = shares_memory(*comm);
  setting.options.join_alignment = join_alignment(*comm);
  const auto rule = make_update_rule(update_options(*setting.recipe, setting.config));
  std::vector<BenchVariant> variants;
  variants.push_back(recipe_variant(setting, *rule, *data.train, *comm));
  const BenchWork work{.name = args.name,
                       .samples = static_cast<double>(setting.batch()),
                       .warmup = kWarmUpSteps,
                       .steps = kStepsOfRound};
  print_row(time_steps(work, *comm, variants, nullptr), work, *comm, args.json);
  comm->barrier().wait();
  return 0;
}

}  // namespace

int run_bench_recipe(const BenchTrainArgs& args, const Recipe& recipe) {
  const StepSetting setting = bench_setting(args, recipe);
  return launch_ranks(setting, args.backend, args.json,
                      [&] { return bench_recipe_rank(args, setting); });
}

}  // namespace cohort::cli
