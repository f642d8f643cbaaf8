// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "cohort/launch/seating.h"
#include "cohort/step/pipeline.h"
#include "faults/model.h"

namespace cohort::threads {

// What happens in a run besides the faults that are tried.
enum class Plot {
  kCalm,
  kKilled,   // a rank dies, so there is a recovery to strike at
  kFlipped,  // a bit flips, so the run goes back
  kHealed,   // a bit flips in a run that is not exact, so the odd one is healed
  kGrows,
  kShrinks,
  kResumed,  // the run goes on from a folder
};
inline constexpr const char* kPlotNames[] = {"calm",  "killed",  "flipped", "healed",
                                             "grows", "shrinks", "resumed"};

struct Scenario {
  Plot plot = Plot::kCalm;
  int ranks = 2;
  int shard = 0;
  bool async = false;  // checkpoints are written in the background
  int stages = 1;      // in a pipeline
  int parts = 1;       // that tensors are cut into
  Model model = Model::kMlp;
  PipelineOrder order = PipelineOrder::kOneForwardOneBackward;
  bool short_form = true;  // else it is tried in the long form alone

  // Ranks that come and go together.
  Team team() const { return {.stages = stages, .parts = parts}; }

  // Sums inside blocks depend on how many ranks there are.
  bool is_exact() const { return plot != Plot::kHealed && model != Model::kCalling; }
};
inline constexpr const char* kOrderNames[] = {"_gpipe", "", "_interleaved",
                                              "_zero_bubble"};

inline std::ostream& operator<<(std::ostream& out, const Scenario& s) {
  return out << kPlotNames[static_cast<int>(s.plot)] << "_n" << s.ranks << "_shard"
             << s.shard << (s.async ? "_async" : "")
             << (s.stages > 1 ? "_pp" + std::to_string(s.stages) : "")
             << (s.parts > 1 ? "_tp" + std::to_string(s.parts) : "")
             << kModelNames[static_cast<int>(s.model)]
             << kOrderNames[static_cast<int>(s.order)];
}

// Runs that are tried with a fault at each of their points.
inline std::vector<Scenario> every_scenario() {
  std::vector<Scenario> all;
  for (const int ranks : {2, 3})
    for (const int shard : {0, 1, 2, 3}) all.push_back({Plot::kCalm, ranks, shard});
  for (const Plot plot : {Plot::kKilled, Plot::kFlipped})
    for (const int ranks : {2, 3})
      for (const int shard : {0, 3}) all.push_back({plot, ranks, shard});
  all.push_back({Plot::kHealed, 3, 0});
  all.push_back({Plot::kGrows, 2, 3});
  all.push_back({Plot::kShrinks, 3, 3});
  all.push_back({Plot::kResumed, 2, 2});
  all.push_back({Plot::kCalm, 2, 0, true});
  for (const Plot plot : {Plot::kCalm, Plot::kKilled, Plot::kFlipped})
    all.push_back({.plot = plot, .ranks = 3, .stages = 3});
  for (const int shard : {0, 3})
    all.push_back({.ranks = 4, .shard = shard, .stages = 2});
  for (const auto order : {PipelineOrder::kInterleaved, PipelineOrder::kZeroBubble}) {
    all.push_back({.ranks = 2, .stages = 2, .order = order});
    all.push_back({.ranks = 4, .shard = 3, .stages = 2, .order = order});
    all.push_back({.plot = Plot::kKilled, .ranks = 2, .stages = 2, .order = order});
  }
  all.push_back({.ranks = 2, .stages = 2, .model = Model::kTied});
  all.push_back({.ranks = 4, .shard = 1, .stages = 2, .model = Model::kTied});
  all.push_back(
      {.plot = Plot::kKilled, .ranks = 3, .stages = 3, .model = Model::kTied});
  for (const int ranks : {2, 3})
    for (const int shard : {0, 3})
      all.push_back({.ranks = ranks, .shard = shard, .model = Model::kCalling});
  all.push_back({.ranks = 4, .shard = 1, .stages = 2, .model = Model::kCalling});
  all.push_back({.plot = Plot::kKilled, .ranks = 3, .model = Model::kCalling});
  all.push_back(
      {.plot = Plot::kGrows, .ranks = 3, .shard = 1, .model = Model::kCalling});
  for (const Plot plot : {Plot::kGrows, Plot::kShrinks})
    all.push_back({.plot = plot,
                   .ranks = plot == Plot::kGrows ? 2 : 4,
                   .shard = plot == Plot::kGrows ? 0 : 3,
                   .stages = 2});
  const Scenario gpt{.ranks = 4, .model = Model::kGpt, .short_form = false};
  for (const auto& [stages, parts] : {std::pair(1, 2), std::pair(2, 1)})
    for (const Plot plot : {Plot::kCalm, Plot::kKilled, Plot::kFlipped}) {
      Scenario& one = all.emplace_back(gpt);
      one.plot = plot;
      one.stages = stages;
      one.parts = parts;
      one.short_form = false;
    }
  all.push_back(
      {.ranks = 4, .shard = 3, .parts = 2, .model = Model::kGpt, .short_form = false});
  all.push_back(
      {.ranks = 4, .stages = 2, .parts = 2, .model = Model::kGpt, .short_form = false});
  for (const Plot plot : {Plot::kCalm, Plot::kKilled, Plot::kFlipped})
    all.push_back({.plot = plot,
                   .parts = 2,
                   .model = Model::kGpt,
                   .short_form = plot != Plot::kFlipped});
  all.push_back({.plot = Plot::kShrinks,
                 .ranks = 4,
                 .parts = 2,
                 .model = Model::kGpt,
                 .short_form = false});
  all.push_back({.plot = Plot::kShrinks,
                 .ranks = 4,
                 .shard = 3,
                 .parts = 2,
                 .model = Model::kGpt,
                 .short_form = false});
  all.push_back(
      {.plot = Plot::kGrows, .parts = 2, .model = Model::kGpt, .short_form = false});
  return all;
}

inline std::vector<Scenario> short_scenarios() {
  auto some = every_scenario();
  std::erase_if(some, [](const Scenario& one) { return !one.short_form; });
  return some;
}

}  // namespace cohort::threads
