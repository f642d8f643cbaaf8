// SPDX-License-Identifier: Apache-2.0
// `cohort launch`, and ranks to run under it, without the rest of the program.
//
//   launch_tool [flags of cohort launch] -- PROGRAM ARGS
//   launch_tool [flags] --body ACT ARGS    ranks are forked and run the act
//   launch_tool --act ACT ARGS             one rank's act
//   launch_tool --resize PID RANKS         asks a running one
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "../../cli/launch_command.h"
#include "../../cli/resize_command.h"
#include "cohort/core/error.h"
#include "cohort/launch/agent.h"
#include "cohort/launch/error_file.h"
#include "cohort/launch/signals.h"
#include "elastic_act.h"

namespace {

using Args = std::vector<std::string>;
using cohort::text;

int number(const char* variable) { return std::atoi(std::getenv(variable)); }

// Ranks meet in the agent's store, ROUNDS times, PAUSE ms apart.
int meet(const Args& args) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(number("MASTER_PORT"));
  options.waitWorkers = false;
  options.timeout = std::chrono::seconds(5);
  c10d::TCPStore store(std::getenv("MASTER_ADDR"), options);
  const int world = number("WORLD_SIZE");
  for (int round = 0; round < std::stoi(args.at(0)); ++round) {
    const std::string key = text(std::getenv("COHORT_RUN_TOKEN"), "/",
                                 number("COHORT_GENERATION"), "/", round);
    if (store.add(key, 1) == world) store.set(key + "/all", {1});
    store.wait({key + "/all"});
    if (number("RANK") == 0) std::printf("round %d\n", round);
    std::fflush(stdout);
    std::this_thread::sleep_for(std::chrono::milliseconds(std::stoi(args.at(1))));
  }
  return 0;
}

volatile sig_atomic_t asked = 0;

// Ends with CODE once it gets SIGNAL.
int obey(const Args& args) {
  ::signal(std::stoi(args.at(0)), [](int) { asked = 1; });
  std::printf("ready\n");
  std::fflush(stdout);
  while (!asked) ::usleep(1000);
  return std::stoi(args.at(1));
}

// Says whether it can be asked to end.
int held(const Args&) {
  sigset_t mask;
  ::sigprocmask(SIG_SETMASK, nullptr, &mask);
  std::printf("%s\n", ::sigismember(&mask, SIGTERM) ? "held" : "free");
  return 0;
}

// The first of its generation to ask, in a store that must be empty; then fails while
// the generation is below LAST.
int fresh(const Args& args) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(number("MASTER_PORT"));
  options.waitWorkers = false;
  c10d::TCPStore store(std::getenv("MASTER_ADDR"), options);
  const int world = number("WORLD_SIZE");
  const int64_t count = store.add("came", 1);
  if (count > world) return 9;
  if (count == world) store.set("all", {1});
  store.wait({"all"});
  return number("COHORT_GENERATION") < std::stoi(args.at(0)) ? 7 : 0;
}

int error(const Args& args) {
  if (number("RANK") != std::stoi(args.at(0))) ::pause();
  throw cohort::DataError(args.at(1));
}

int act(const Args& args) {
  const Args rest(args.begin() + 1, args.end());
  if (args[0] == "meet") return meet(rest);
  if (args[0] == "fresh") return fresh(rest);
  if (args[0] == "obey") return obey(rest);
  if (args[0] == "held") return held(rest);
  if (args[0] == "error") return error(rest);
  if (args[0] == "elastic") return cohort::test::elastic_act(rest);
  return 2;
}

// The top of a rank of ours: the error goes to its file and to stderr.
int guarded(const std::function<int()>& body) {
  try {
    return body();
  } catch (const cohort::Error& error) {
    cohort::write_error_file(error.what());
    std::fprintf(stderr, "%s\n", error.what());
    if (error.kind() == cohort::ErrorKind::kComm) return 4;
    return error.kind() == cohort::ErrorKind::kConfig ? 2 : 3;
  } catch (const std::exception& error) {
    const std::string what(error.what(), std::strcspn(error.what(), "\n"));
    cohort::write_error_file(what);
    std::fprintf(stderr, "%s\n", what.c_str());
    return 4;
  }
}

int launch_body(const cohort::cli::LaunchArgs& args,
                const cohort::ElasticOptions& elastic, const Args& rest) {
  cohort::LaunchOptions options;
  options.elastic = elastic;
  options.ranks = std::stoi(args.ranks);
  options.grace = std::chrono::milliseconds(static_cast<int>(args.grace_s * 1000));
  options.stopped_limit =
      std::chrono::milliseconds(static_cast<int>(args.stopped_limit_s * 1000));
  options.max_restarts = cohort::cli::restarts_of(args.max_restarts, false);
  options.usr1_stops = true;
  options.json = args.json;
  options.body = [&] { return guarded([&] { return act(rest); }); };
  return cohort::launch(options).exit_code;
}

int resize(const Args& args) {
  const cohort::cli::ResizeArgs resize{std::stoi(args.at(0)), std::stoi(args.at(1))};
  return cohort::cli::run_resize(resize, std::cout);
}

int run(Args in) {
  cohort::cli::LaunchArgs args;
  cohort::ElasticOptions elastic;
  for (size_t i = 0; i < in.size(); ++i) {
    const Args rest(in.begin() + i + 1, in.end());
    const auto value = [&] { return in.at(++i); };
    if (in[i] == "--") {
      args.program = rest;
      return guarded([&] { return cohort::cli::run_launch(args); });
    }
    if (in[i] == "--resize") return guarded([&] { return resize(rest); });
    if (in[i] == "--act") return guarded([&] { return act(rest); });
    if (in[i] == "--body")
      return guarded([&] { return launch_body(args, elastic, rest); });
    if (in[i] == "-n")
      args.ranks = value();
    else if (in[i] == "--nnodes")
      args.nodes = value();
    else if (in[i] == "--rdzv")
      args.rdzv = value();
    else if (in[i] == "--rdzv-token")
      args.rdzv_token = value();
    else if (in[i] == "--max-restarts")
      args.max_restarts = std::stoi(value());
    else if (in[i] == "--grace")
      args.grace_s = std::stod(value());
    else if (in[i] == "--join-timeout")
      args.join_timeout_s = std::stod(value());
    else if (in[i] == "--stopped-limit")
      args.stopped_limit_s = std::stod(value());
    else if (in[i] == "--threads")
      args.threads = std::stoi(value());
    else if (in[i] == "--log-dir")
      args.log_dir = value();
    else if (in[i] == "--pin")
      args.pin = true;
    else if (in[i] == "--prefix-all")
      args.prefix_all = true;
    else if (in[i] == "--elastic")
      elastic.on = true;
    else if (in[i] == "--spares")
      elastic.spares = std::stoi(value());
    else if (in[i] == "--detect")
      elastic.detect = std::chrono::milliseconds(std::stoi(value()));
    else if (in[i] == "--max-ranks")
      elastic.max_ranks = std::stoi(value());
    else if (in[i] == "--hold")
      cohort::process::hold_requests();
    else if (in[i] == "--json")
      args.json = true;
    else
      return 2;
  }
  return 2;
}

}  // namespace

int main(int argc, char** argv) { return run(Args(argv + 1, argv + argc)); }
