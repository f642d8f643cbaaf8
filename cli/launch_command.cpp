// SPDX-License-Identifier: Apache-2.0
#include "launch_command.h"

#include <unistd.h>

#include <charconv>
#include <chrono>

#include "cohort/core/error.h"
#include "cohort/launch/agent.h"
#include "cohort/launch/cores.h"

namespace cohort::cli {
namespace {

// A whole number of at least 1 and nothing else; 0 if it is not one.
int positive(const std::string& digits) {
  int value = 0;
  const char* end = digits.data() + digits.size();
  const auto [rest, error] = std::from_chars(digits.data(), end, value);
  return error == std::errc() && rest == end && value > 0 ? value : 0;
}

int count_gpus() {
  int gpus = 0;
  while (::access(text("/dev/nvidia", gpus).c_str(), F_OK) == 0) ++gpus;
  return gpus;
}

std::chrono::milliseconds milliseconds(double seconds, const char* flag) {
  if (!(seconds >= 0) || seconds > 1e9) {
    throw ConfigError(
        text("[launch] ", flag, " ", seconds, "; legal: seconds, 0 or more"));
  }
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

}  // namespace

int parse_ranks(const std::string& ranks) {
  if (ranks == "auto") {
    const int gpus = count_gpus();
    return gpus > 0 ? gpus : static_cast<int>(process::allowed_cores().size());
  }
  const int value = positive(ranks);
  if (value == 0) {
    throw ConfigError(text("[launch] -n ", ranks, "; legal: 1 or more, or auto"));
  }
  return value;
}

NodeRange parse_nodes(const std::string& nodes) {
  const size_t colon = nodes.find(':');
  const int min = positive(nodes.substr(0, colon));
  const int max = colon == std::string::npos ? min : positive(nodes.substr(colon + 1));
  if (min == 0 || max < min) {
    throw ConfigError(text("[launch] --nnodes ", nodes, "; legal: N, or MIN:MAX"));
  }
  return {min, max};
}

int run_launch(const LaunchArgs& args) {
  if (args.program.empty()) {
    throw ConfigError("[launch] no program; legal: cohort launch -n 2 -- PROGRAM ARGS");
  }
  const NodeRange nodes = parse_nodes(args.nodes);
  LaunchOptions options;
  options.ranks = parse_ranks(args.ranks);
  options.program = args.program;
  options.min_nodes = nodes.min;
  options.max_nodes = nodes.max;
  options.rdzv = args.rdzv;
  options.rdzv_token = args.rdzv_token;
  options.join_timeout = milliseconds(args.join_timeout_s, "--join-timeout");
  options.max_restarts = restarts_of(args.max_restarts, args.elastic);
  options.elastic = {.on = args.elastic,
                     .spares = args.spares,
                     .detect = milliseconds(args.detect_s, "--detect")};
  options.grace = milliseconds(args.grace_s, "--grace");
  options.stopped_limit = milliseconds(args.stopped_limit_s, "--stopped-limit");
  options.threads = args.threads;
  options.pin = args.pin;
  options.log_dir = args.log_dir;
  options.prefix_all = args.prefix_all;
  options.json = args.json;
  return launch(options).exit_code;
}

}  // namespace cohort::cli
