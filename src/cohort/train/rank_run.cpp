// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/rank_run.h"

#include <ATen/Parallel.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <utility>

#include "cohort/checkpoint/load_weights.h"
#include "cohort/comm/world.h"
#include "cohort/core/error.h"
#include "cohort/core/exit_code.h"
#include "cohort/core/fault_point.h"
#include "cohort/core/freed_memory.h"
#include "cohort/core/parse.h"
#include "cohort/elastic/membership.h"
#include "cohort/elastic/watched_store.h"
#include "cohort/engine/cuda/cuda_lane.h"
#include "cohort/nn/first_value.h"
#include "cohort/step/chain_specs.h"
#include "cohort/train/agent_pages.h"
#include "cohort/train/checked_recipe.h"
#include "cohort/train/compute_threads.h"
#include "cohort/train/model_counts.h"
#include "cohort/train/rank_gpu.h"
#include "cohort/train/rank_identities.h"
#include "cohort/train/rank_loop.h"
#include "cohort/train/spare_gpu.h"

namespace cohort {
namespace {

// What the key is for ranks that share a GPU.
constexpr const char* kBucketKey = "step.bucket_bytes";
constexpr const char* kSharedBucket = "256M";

// Each lane of a step is a stream, and the stages of a pipeline have many that wait for
// one another: with fewer queues than streams one could hold up another. CUDA reads
// this when it starts; more queues make that slower. Nor may NCCL make a connection
// while a stage waits for another: it would wait for the device.
void allow_streams() {
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  ::setenv("NCCL_RUNTIME_CONNECT", "0", /*overwrite=*/0);
}

int64_t count_parameters(const Chain& chain) {
  int64_t sum = 0;
  for (const auto& spec : parameter_specs(chain)) sum += spec.numel();
  return sum;
}

// Stopped on request with its state saved, it can be run again.
int code_of(const DoneEvent& done) {
  if (!done.not_written.empty()) throw CheckpointError(done.not_written);
  if (done.stop_signal == 0) return 0;
  return done.saved ? kExitStopped : 128 + done.stop_signal;
}

// What the rank's loop asks for.
class RankRun final : public RankHost {
 public:
  RankRun(const ResolvedRun& run, const RankServices& services)
      : run_(run),
        services_(services),
        membership_(Membership::from_env()),
        connecting_(run.connect) {
    if (membership_) pages_.emplace(*membership_);
  }

  RankOutcome run() {
    const bool spare = membership_ && membership_->is_spare();
    // The variables around a spare are of whoever started the command.
    const World given = spare ? World{} : world_from_env();
    if (membership_)
      services_.hear_stop(/*launched_by_us=*/true);
    else
      services_.die_of_stop();  // there is nothing to save before its world stands
    // A spare knows of no world yet: it is prepared for the one the run began with.
    first_.layout = run_.layout_of(membership_ ? run_.launch.ranks : given.size);
    first_.ranks_here = given.local_size;
    choose_gpu(given);
    if (spare) first_.gpu = kNoGpu;  // that of the rank it replaces
    if (!spare)
      loading_ = begin_loading(*run_.recipe, run_.config, given.local_rank == 0);
    auto done = RankLoop(*this, membership_.get()).run(given);
    const int code = done ? with_backlog(code_of(*done)) : 0;
    return {std::move(done), code};
  }

  WorldTies connect(const World& world) override {
    WorldTies ties;
    ties.store = join(world, connecting_);
    if (membership_)
      ties.watched = std::make_unique<WatchedStore>(*ties.store, *membership_);
    Store& store = ties.watched ? *ties.watched : *ties.store;
    if (run_.on_gpu) ties.gpu.number = settle_gpu(world, store);
    ties.comm = on_gpu(cohort::connect(world, store, connecting_), ties.gpu);
    if (!membership_) services_.hear_stop(world.launcher == "cohort");
    return ties;
  }

  std::unique_ptr<Trainer> make_trainer(Communicator* node) override {
    if (!loading_ && !data_.train)
      loading_ = begin_loading(*run_.recipe, run_.config, node == nullptr);
    chain_ = make_chain(/*part=*/0);
    if (!data_.train) data_ = finish_loading(*run_.recipe, *loading_, node);
    if (run_.trainer.continuation) tokenizer_ = data_.tokenizer();
    count_blocks();
    return std::make_unique<Trainer>(
        chain_, *data_.train, data_.valid.get(), trainer_options(), services_.stop,
        TrainerServices{.membership = membership_.get(),
                        .pages = pages_ ? &*pages_ : nullptr,
                        .backlog = &backlog_,
                        .faults = &faults_,
                        .tokenizer = tokenizer_.get(),
                        .chain_of_part = [this](int part) { return make_chain(part); },
                        .augment = data_.augment});
  }

  Reporter& reporter() override {
    if (!reporter_) reporter_ = services_.make_reporter(&backlog_);
    return *reporter_;
  }

  void introduce(Communicator& comm, Reporter* reporter,
                 const Trainer& trainer) override {
    const auto ranks = identities(comm);
    if (!reporter) return;
    if (comm.generation() > 0) return reporter->ranks(ranks);
    Config config = run_.config;
    config.set_assignment(text("threads=", at::get_num_threads()));
    if (has_shared_bucket_) config.set(kBucketKey, kSharedBucket, "shared GPU");
    reporter->start({.config_json = config.to_json(),
                     .backend = std::string(comm.backend()),
                     .device = run_.on_gpu ? "cuda" : "cpu",
                     .threads = at::get_num_threads(),
                     .ranks = ranks,
                     .data = data_.train->describe(),
                     .parameters = count_parameters(chain_),
                     .total_steps = trainer.total_steps(),
                     .steps_per_epoch = trainer.steps_per_epoch()});
    const BackupOptions& backup = run_.trainer.backup;
    if (backup.resume && backup.dir.empty())
      reporter->note("--resume: there is no checkpoint.dir, so this run starts fresh");
    if (backup.every_steps > 0 && backup.dir.empty())
      reporter->note("checkpoint.every_steps: there is no checkpoint.dir to save in");
    if (connecting_.nccl_share_gpu && comm.backend() == "nccl")
      reporter->note(
          "comm.nccl_share_gpu: ranks that share a GPU are for tests; NCCL is slow so");
    const std::string why = why_no_graph(first_.layout.pp > 1, over_host_);
    if (run_.on_gpu && !why.empty()) reporter->note(why);
  }

 private:
  // Filled later by the engine, on each rank with what is its own.
  Chain make_chain(int part) const {
    const ModelsFilledLater later;
    Chain chain = checked_chain(*run_.recipe, run_.config, part_of_rank(part));
    if (!run_.weights.empty()) load_weights(run_.weights, chain);
    return chain;
  }

  TrainerOptions trainer_options() const {
    TrainerOptions options = run_.trainer;
    options.layout = first_.layout;
    options.ranks_here = first_.ranks_here;
    options.execute.gpu = first_.gpu;
    options.counted = counted_;
    options.counted_whole = counted_whole_;
    return options;
  }

  void choose_gpu(const World& world) {
    if (!run_.on_gpu) return;
    if (first_.layout.pp > 1) allow_streams();
    require_cuda("train");
    first_.gpu = gpu_of(world);
    set_cuda_math(run_.math);
  }

  TensorPart part_of_rank(int part) const {
    return tensor_part(run_.config, first_.layout, part);
  }

  // A spare that replaces a rank takes a GPU when it has a world; the backend that is
  // chosen there depends on the GPUs of all.
  int settle_gpu(const World& world, Store& store) {
    int& mine = first_.gpu;
    if (membership_)
      mine = cohort::settle_gpu(world, store, mine, cuda_device_count(),
                                connecting_.join_timeout);
    connecting_.gpu = cuda_device_id(mine);
    return mine;
  }

  std::unique_ptr<Communicator> on_gpu(std::unique_ptr<Communicator> comm,
                                       WorldGpu& gpu) {
    if (!run_.on_gpu) return comm;
    auto able = with_tensors_of_gpu(std::move(comm), *gpu.number, connecting_,
                                    run_.gpu_windows);
    over_host_ = able.over_host;
    // On one GPU nothing is won by summing early, and each sum lets all ranks meet.
    if (able.has_windows && run_.is_bucket_free) {
      has_shared_bucket_ = true;
      gpu.bucket_bytes = parse_bytes(kSharedBucket, kBucketKey);
    }
    return std::move(able.comm);
  }

  // Before anything is computed: what blocks need is known of a model without memory. A
  // model that cannot be counted is measured by the Trainer.
  // A rank of a pipeline computes a part of it.
  void count_blocks() {
    if (!counted_.empty()) return;
    const auto counts =
        count_model(*run_.recipe, run_.config, part_of_rank(0), *data_.train);
    if (!counts) return;
    counted_ = needs_of(*counts);
    count_whole();
    if (!run_.counts_threads) return;
    const Layout& layout = first_.layout;
    const TrainerOptions& asked = run_.trainer;
    const int slices = slices_for(asked.slices, layout, asked.batch);
    const double samples = static_cast<double>(asked.batch) / slices;
    const double flops = forward_flops(*counts).at(samples) / layout.pp;
    at::set_num_threads(compute_threads(flops, at::get_num_threads()));
  }

  // Only who has a part of it, and tells how much all compute, counts it once more.
  void count_whole() {
    if (first_.layout.tp == 1 || !chain_.loss.metrics.flops_per_step) return;
    const auto whole =
        count_model(*run_.recipe, run_.config, TensorPart{}, *data_.train);
    if (whole) counted_whole_ = needs_of(*whole);
  }

  // What this rank could not write is told last, when all else is done and saved.
  int with_backlog(int code) {
    const std::string trouble = backlog_.trouble();
    if (trouble.empty()) return code;
    if (code == 0) throw DataError(trouble + "; the run is done, its records are not");
    reporter_->note(trouble);
    return code;
  }

  const ResolvedRun& run_;
  const RankServices& services_;
  std::unique_ptr<Membership> membership_;  // null: not elastic
  std::optional<AgentPages> pages_;
  struct FirstWorld {  // what this rank knows of it
    Layout layout;
    int ranks_here = 1;
    int gpu = 0;
  };
  FirstWorld first_;
  std::vector<BlockMeasure> counted_;  // what blocks need; empty: nobody counted
  std::vector<BlockMeasure> counted_whole_;  // those of a model that ranks have in parts
  ConnectOptions connecting_;
  std::string over_host_;  // why tensors of the GPU go there; empty: they do not
  bool has_shared_bucket_ = false;
  FaultPlan faults_ = FaultPlan::from_env();
  // A reporter that is being made cannot tell.
  Backlog backlog_{[this](const std::string& line) {
    if (reporter_) return reporter_->note(line);
    services_.warn(line);
  }};
  std::unique_ptr<DataLoading> loading_;
  Chain chain_;
  DataSets data_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Reporter> reporter_;
};

}  // namespace

RankOutcome run_rank(const ResolvedRun& run, const RankServices& services) {
  keep_freed_memory();
  return RankRun(run, services).run();
}

}  // namespace cohort
