// SPDX-License-Identifier: Apache-2.0
// Reads the command line, runs one command, and turns an exception into one line on
// stderr and an exit code, once, here.
#include "cohort/program.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <utility>

#include "cli/bench_comm.h"
#include "cli/bench_train.h"
#include "cli/doctor_command.h"
#include "cli/exit_of_error.h"
#include "cli/file_commands.h"
#include "cli/flags.h"
#include "cli/launch_command.h"
#include "cli/recipe_help.h"
#include "cli/resize_command.h"
#include "cli/step_command.h"
#include "cli/stop_signals.h"
#include "cli/train_command.h"
#include "cli/usage_error.h"
#include "cli/verify_command.h"
#include "cohort/comm/endpoint.h"
#include "cohort/core/error.h"
#include "cohort/core/exit_code.h"
#include "cohort/core/first_line.h"
#include "cohort/core/loaded_libtorch.h"
#include "cohort/core/parse.h"
#include "cohort/core/processor.h"
#include "cohort/version.h"

namespace cohort::cli {
namespace {

template <typename Args>
void add_world_flags(CLI::App& app, Args& args) {
  app.add_option("-n", args.ranks, "Ranks on this node, or auto (GPUs, else cores)");
  app.add_option("--nnodes", args.nodes, "Nodes: N, or MIN:MAX")->capture_default_str();
  app.add_option("--rdzv", args.rdzv, "HOST:PORT where the nodes meet");
  app.add_option("--rdzv-token", args.rdzv_token,
                 "File, yours alone: the secret the nodes share");
  app.add_option("--max-restarts", args.max_restarts,
                 "Restarts over the whole run (default: 0; 100 in an elastic run)")
      ->check(at_least(0, 1e6));
  app.add_option("--grace", args.grace_s,
                 "Seconds between asking a rank to stop and killing it")
      ->check(at_least(0, 1e6))
      ->capture_default_str();
}

void add_train(CLI::App& app, TrainArgs& args, const RecipeList& recipes,
               Command& command) {
  auto* sub = app.add_subcommand("train", "Train a recipe on one or many ranks");
  sub->add_option("recipe", args.recipe, "Name of the recipe")->required();
  add_world_flags(*sub, args);
  sub->add_option("--backend", args.backend,
                  "auto, local, shm, gloo, mpi, nccl or hybrid")
      ->capture_default_str();
  sub->add_option(
         "--device", args.device,
         "Where blocks compute: cpu, or cuda (ranks take a node's GPUs in turn)")
      ->capture_default_str();
  sub->add_option("--layout", args.layout, "Which rank holds what: dp=2,shard=0");
  sub->add_flag("--exact", args.exact,
                "The same weights, bit for bit, at any world size");
  sub->add_option("--max-steps", args.max_steps, "Stop after so many steps in total")
      ->check(at_least(1, 1e15));
  add_key_flags(*sub, args.set, args.config);
  sub->add_option("--out", args.out, "Folder for logs and TensorBoard scalars");
  sub->add_flag("--resume", args.resume, "Go on from what was saved");
  sub->add_flag("--json", args.json, "One JSON object per line on stdout");
  sub->add_flag("--quiet", args.quiet, "No progress, results alone");
  sub->add_option("--save-initial", args.save_initial,
                  "Weights before step 1 (safetensors)");
  sub->add_option("--save-final", args.save_final, "Weights at the end (safetensors)");
  sub->add_option("--sample-log", args.sample_log,
                  "One line \"epoch step rank sample\" for every sample");
  sub->add_option("--sample", args.sample,
                  "Text that a language model continues, after each validation and at "
                  "the end");
  sub->footer([&] { return recipe_help(recipes, args.recipe, kTrainHelp); });
  sub->callback([&] { command = [&] { return run_train(args, recipes); }; });
}

void add_launch(CLI::App& app, LaunchArgs& args, Command& command) {
  auto* sub =
      app.add_subcommand("launch", "Run any program as ranks, as torchrun does");
  add_world_flags(*sub, args);
  auto* const elastic =
      sub->add_flag("--elastic", args.elastic,
                    "Replace lost ranks of a program that uses cohort::ElasticRun");
  sub->add_option("--spares", args.spares,
                  "With --elastic: processes that wait to take a lost rank's place")
      ->needs(elastic)
      ->check(at_least(0, 64))
      ->capture_default_str();
  sub->add_option(
         "--detect", args.detect_s,
         "With --elastic: seconds after which a rank that does nothing is lost")
      ->needs(elastic)
      ->check(at_least(0.1, 1e6))
      ->capture_default_str();
  sub->add_option("--join-timeout", args.join_timeout_s,
                  "Seconds for all nodes to come")
      ->capture_default_str();
  sub->add_option("--stopped-limit", args.stopped_limit_s,
                  "Seconds after which a stopped rank is killed")
      ->capture_default_str();
  sub->add_option("--threads", args.threads,
                  "OMP_NUM_THREADS per rank; 0: cores / ranks");
  sub->add_flag("--pin", args.pin, "Give each rank cores of its own");
  sub->add_option("--log-dir", args.log_dir, "Folder for each rank's own output");
  sub->add_flag("--prefix-all", args.prefix_all,
                "\"[rank 0] \" before rank 0's lines too");
  sub->add_flag("--json", args.json, "Faults as JSON lines on stdout");
  sub->add_option("program", args.program, "Program and its arguments, behind --");
  sub->positionals_at_end();
  sub->footer(kLaunchHelp);
  sub->callback([&] { command = [&] { return run_launch(args); }; });
}

void add_resize(CLI::App& app, ResizeArgs& args, Command& command) {
  auto* sub =
      app.add_subcommand("resize", "Give a running elastic run more ranks, or fewer");
  sub->add_option("pid", args.pid, "Of the `cohort train` that started it")->required();
  sub->add_option("ranks", args.ranks, "How many it is to have")->required();
  sub->footer(kResizeHelp);
  sub->callback([&] { command = [&] { return run_resize(args, std::cout); }; });
}

struct BenchArgs {
  BenchCommArgs comm;
  std::string ranks = "2";
  std::vector<std::string> sizes = {"4K", "100M"};
  BenchTrainArgs train;
};

void add_bench_comm(CLI::App& app, BenchArgs& args, Command& command) {
  auto* sub = app.add_subcommand("comm", "Collectives, beside a bare loop over memory");
  sub->add_option("-n", args.ranks, "Ranks")->capture_default_str();
  sub->add_option("--backend", args.comm.backends, "Backends, with commas")
      ->delimiter(',')
      ->capture_default_str();
  sub->add_option("--device", args.comm.device, "cpu or cuda")->capture_default_str();
  sub->add_option("--op", args.comm.ops, "Operations, with commas")
      ->delimiter(',')
      ->capture_default_str();
  sub->add_option("--bytes", args.sizes,
                  "Sizes, with commas; K, M and G are 1000-based")
      ->delimiter(',')
      ->capture_default_str();
  sub->add_flag("--json", args.comm.json, "One JSON object per row");
  sub->add_option("--costs-out", args.comm.costs_out,
                  "Write them as links of a table of costs");
  sub->add_option("--link", args.comm.link, "With --costs-out: their name, such as tp")
      ->capture_default_str();
  sub->footer(kBenchCommHelp);
  sub->callback([&] {
    command = [&] {
      args.comm.ranks = parse_ranks(args.ranks);
      args.comm.bytes.clear();
      for (const auto& size : args.sizes)
        args.comm.bytes.push_back(parse_bytes(size, "--bytes"));
      return run_bench_comm(args.comm);
    };
  });
}

void add_bench(CLI::App& app, BenchArgs& args, const RecipeList& recipes,
               Command& command) {
  auto* sub = app.add_subcommand("bench", "Measure this machine and this library");
  sub->require_subcommand(1);
  add_bench_comm(*sub, args, command);
  BenchTrainArgs& train = args.train;
  auto* steps = sub->add_subcommand("train", "Whole training steps");
  steps
      ->add_option("case", train.name,
                   "mlp100, resnet50-cifar, fashion or a recipe; on a GPU resnet50, "
                   "resnet50-cifar or gpt")
      ->required();
  steps->add_option("-n", train.ranks, "Ranks; 2; on GPUs 1, or a list: 1,2,4");
  steps->add_option("--device", train.device, "cpu or cuda")->capture_default_str();
  steps->add_option("--precision", train.precision, "On a GPU: float32, bf16 or fp16")
      ->capture_default_str();
  steps->add_option("--batch", train.batch, "On GPUs: samples per rank and step")
      ->check(at_least(1, 1e9));
  steps->add_option("--costs-out", train.costs_out, "On a GPU: write a table of costs");
  steps->add_option("--costs", train.costs, "On GPUs: foretell from it, run nothing");
  steps->add_flag("--kernels", train.kernels,
                  "On a GPU: where the time of a step goes");
  steps->add_option("--links", train.links, "With --costs: as in step");
  steps->add_option("--backend", train.backend, "As in train")->capture_default_str();
  steps->add_option("--layout", train.layout, "As in train: shard=3");
  steps->add_flag("--exact", train.exact,
                  "With the same bits at every number of ranks");
  steps->add_option("--set", train.set, "Of a recipe: key=value; may be repeated")
      ->allow_extra_args(false);
  steps->add_option("--config", train.config, "Of a recipe: YAML file of keys");
  steps->add_flag("--json", train.json, "One JSON object");
  steps->footer([&] { return recipe_help(recipes, train.name, kBenchTrainHelp); });
  steps->callback([&] { command = [&] { return run_bench_train(train, recipes); }; });
}

void add_step(CLI::App& app, StepArgs& args, const RecipeList& recipes,
              Command& command) {
  auto* sub = app.add_subcommand("step", "Check, show and draw a training step");
  sub->add_option("recipe", args.recipe, "Name of the recipe");
  sub->add_option("--from", args.from, "CSV file of a step, instead of a recipe");
  sub->add_option("-n", args.ranks, "Ranks")->capture_default_str();
  sub->add_option("--layout", args.layout, "Which rank holds what: dp=4,shard=3");
  sub->add_flag("--exact", args.exact, "The step of a run with --exact");
  add_key_flags(*sub, args.set, args.config);
  sub->add_option("--costs", args.costs, "CSV table of what actions cost");
  sub->add_option("--links", args.links, "Published link speeds: nvlink4-ndr[-rails]");
  sub->add_option("--measure", args.measure,
                  "Start the ranks and time so many steps; needs the recipe's data")
      ->check(at_least(1, 1e6));
  sub->add_option(
         "--costs-at", args.costs_at,
         "With --measure: batches at which costs are measured, with commas; by "
         "default half of batch, and batch")
      ->delimiter(',')
      ->check(at_least(1, 1e9));
  sub->add_option("--backend", args.backend, "With --measure: as in train")
      ->capture_default_str();
  sub->add_option("--costs-out", args.costs_out, "Write the table of costs");
  sub->add_option("--svg", args.svg, "Write a picture of it");
  sub->add_option("--trace", args.trace, "Write a trace for Perfetto or Chrome");
  sub->add_option("--csv", args.csv, "Write it as a table, one row per action");
  sub->add_flag("--json", args.json, "One JSON object");
  sub->footer([&] { return recipe_help(recipes, args.recipe, kStepHelp); });
  sub->callback([&] { command = [&] { return run_step(args, recipes, std::cout); }; });
}

void add_verify(CLI::App& app, VerifyArgs& args, const RecipeList& recipes,
                Command& command) {
  auto* sub = app.add_subcommand(
      "verify", "Prove that a layout trains as one rank does, in one step");
  sub->add_option("recipe", args.recipe, "Name of the recipe")->required();
  sub->add_option("-n", args.ranks, "Ranks")->capture_default_str();
  sub->add_option("--layout", args.layout, "Which rank holds what: dp=2,tp=2,shard=3");
  sub->add_flag("--all", args.all, "Every layout that the model can be cut for");
  sub->add_option("--ranks", args.most_ranks, "Most ranks of --all")
      ->check(at_least(1, 64))
      ->capture_default_str();
  sub->add_option("--every", args.every, "Of the layouts of --all one in so many")
      ->check(at_least(1, 1e6))
      ->capture_default_str();
  sub->add_flag("--exact", args.exact, "Bit for bit, as runs with --exact are");
  add_key_flags(*sub, args.set, args.config);
  sub->add_flag("--json", args.json, "One JSON object per line on stdout");
  sub->footer([&] { return recipe_help(recipes, args.recipe, kVerifyHelp); });
  sub->callback(
      [&] { command = [&] { return run_verify(args, recipes, std::cout); }; });
}

void add_doctor(CLI::App& app, DoctorOptions& options, Command& command) {
  auto* sub =
      app.add_subcommand("doctor", "What is here, what is missing, what that costs");
  sub->add_flag("--json", options.json, "One JSON object per line");
  sub->footer("Examples:\n  cohort doctor\n  cohort doctor --json\n");
  sub->callback([&] {
    command = [&] {
      options.version = version();
      options.backends = known_backends();
      return run_doctor(options, std::cout);
    };
  });
}

int run(int argc, char** argv, const std::string& name, const RecipeList& recipes) {
  CLI::App app{"Distributed training of deep networks in C++", name};
  app.set_version_flag("--version", std::string(version()));
  app.require_subcommand(1);
  TrainArgs train;
  LaunchArgs launch;
  ResizeArgs resize;
  DoctorOptions doctor;
  BenchArgs bench;
  StepArgs step;
  VerifyArgs verify;
  FileArgs files;
  Command command;
  add_train(app, train, recipes, command);
  add_launch(app, launch, command);
  add_resize(app, resize, command);
  add_bench(app, bench, recipes, command);
  add_step(app, step, recipes, command);
  add_verify(app, verify, recipes, command);
  add_file_commands(app, files, recipes, command);
  add_doctor(app, doctor, command);
  app.footer(text("Start with:  ", name, " train fashion-mnist -n 2\n", name,
                  " COMMAND --help says more, with examples."));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    std::fprintf(stderr, "%s\n", usage_error(app, error).c_str());
    return kExitConfig;
  }
  if (!app.got_subcommand("train") && !app.got_subcommand("launch"))
    release_stop_signals();  // no agent comes that answers
  return command();
}

// What was printed may still be on its way. A reader that has gone wants no more; a
// disk that is full has lost results.
int code_after_output(const std::string& name, int code) {
  std::cout.flush();
  std::fflush(nullptr);
  if (std::cout && !std::ferror(stdout)) return code;
  errno = EIO;  // if it can be written to again
  const bool fails = ::write(STDOUT_FILENO, "\n", 1) < 0;
  if (fails && (errno == EPIPE || errno == EBADF)) return code;
  std::fprintf(stderr, "%s: stdout: %s; results are lost\n", name.c_str(),
               std::strerror(errno));
  return code == 0 ? kExitData : code;
}

// What the user typed, without its folder.
std::string name_of_program(int argc, char** argv) {
  const std::string name = argc > 0 ? std::filesystem::path(argv[0]).filename() : "";
  return name.empty() ? "cohort" : name;
}

}  // namespace
}  // namespace cohort::cli

namespace cohort {

int run_program(int argc, char** argv,
                std::vector<std::shared_ptr<const Recipe>> recipes) {
  for (const int error_by_write : {SIGPIPE, SIGXFSZ}) ::signal(error_by_write, SIG_IGN);
  silence_c10d();
  describe_processor();
  const std::string name = cli::name_of_program(argc, argv);
  int code = 0;
  try {
    require_built_libtorch();
    RecipeList all = built_in_recipes();
    for (auto& recipe : recipes) all.add(std::move(recipe));
    code = cli::run(argc, argv, name, all);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), first_line(error.what()).c_str());
    code = cli::exit_code_of(error);
  }
  return cli::code_after_output(name, code);
}

}  // namespace cohort
