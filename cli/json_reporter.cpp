// SPDX-License-Identifier: Apache-2.0
#include "cli/json_reporter.h"

#include <cmath>
#include <cstdio>
#include <optional>

#include "cohort/core/json.h"
#include "cohort/version.h"

namespace cohort::cli {
namespace {

void print(const JsonObject& object) {
  std::puts(object.text().c_str());
  std::fflush(stdout);
}

void add_known(JsonObject& line, const char* name, std::optional<double> value) {
  if (value) line.add(name, *value);
}

}  // namespace

void JsonReporter::start(const StartEvent& event) {
  print(JsonObject()
            .add("event", "start")
            .add("config", RawJson{event.config_json})
            .add("version", version())
            .add("world", event.ranks.size())
            .add("backend", event.backend)
            .add("device", event.device));
  ranks(event.ranks);
}

void JsonReporter::ranks(const std::vector<RankIdentity>& ranks) {
  for (const auto& rank : ranks)
    print(JsonObject()
              .add("event", "rank")
              .add("rank", rank.rank)
              .add("pid", rank.pid)
              .add("host", rank.host)
              .add("generation", rank.generation));
}

void JsonReporter::recovered(const RecoveredEvent& event) {
  print(JsonObject()
            .add("event", "recovered")
            .add("generation", event.generation)
            .add("ranks", event.ranks)
            .add("seconds", event.seconds));
}

void JsonReporter::step(const StepEvent& event) {
  scalars_.step(event);
  if (event.step % log_every_ != 0) return;
  JsonObject line;
  line.add("event", "step")
      .add("step", event.step)
      .add("loss", event.loss)
      .add("lr", event.rate)
      .add("samples_per_second", event.samples_per_second);
  add_known(line, "tokens_per_second", event.tokens_per_second);
  print(line);
}

void JsonReporter::valid(const ValidEvent& event) {
  scalars_.valid(event);
  JsonObject line;
  line.add("event", "valid").add("epoch", event.epoch).add("loss", event.loss);
  add_known(line, "accuracy", event.accuracy);
  add_known(line, "perplexity", event.perplexity);
  if (!event.named.empty()) {
    JsonObject metrics;
    for (const auto& [name, value] : event.named) metrics.add(name, value);
    line.add("metrics", metrics);
  }
  print(line);
}

void JsonReporter::continuation(const ContinuationEvent& event) {
  print(JsonObject()
            .add("event", "sample")
            .add("step", event.step)
            .add("prompt", event.prompt)
            .add("text", event.text)
            .add("tokens", event.tokens));
}

void JsonReporter::checkpoint(const CheckpointEvent& event) {
  print(JsonObject()
            .add("event", "checkpoint")
            .add("path", event.path)
            .add("step", event.step));
}

void JsonReporter::checkpoint_failed(const CheckpointFailedEvent& event) {
  print(JsonObject()
            .add("event", "checkpoint_failed")
            .add("step", event.step)
            .add("cause", event.cause));
}

void JsonReporter::note(const std::string& line) {
  std::fprintf(stderr, "%s\n", line.c_str());
}

void JsonReporter::done(const DoneEvent& event) {
  scalars_.finish();
  JsonObject line;
  line.add("event", "done").add("steps", event.steps).add("epoch", event.epoch);
  const double unknown = std::nan("");  // null
  line.add("loss", event.loss.value_or(unknown));
  line.add("accuracy", event.accuracy.value_or(unknown));
  line.add("samples_per_second", event.samples_per_second);
  add_known(line, "tokens_per_second", event.tokens_per_second);
  add_known(line, "flops_per_step", event.flops_per_step);
  add_known(line, "mfu", event.mfu);
  print(line.add("step_ms", event.step_ms)
            .add("first_step_s", event.first_step_s)
            .add("peak_memory_bytes", event.peak_memory_bytes)
            .add("restarts", event.restarts)
            .add("weights_hash", event.weights_hash));
}

}  // namespace cohort::cli
