// SPDX-License-Identifier: Apache-2.0
#include "cohort/config.h"

namespace cohort {
namespace {

void add_run(Keys& keys) {
  keys.add_int("seed", 0, "of every random number of the run", {.lowest = 0})
      .add_int("epochs", 1, "passes over the training set",
               {.lowest = 1, .highest = 1'000'000'000})
      .add_int("batch", 128, "samples per step, over all ranks",
               {.lowest = 1, .highest = 1'000'000'000})
      .add_int("slices", 0, "parts of the batch; 0: one per data-parallel rank",
               {.lowest = 0, .highest = 1 << 20})
      .add_int("threads", 0,
               "of computation per rank; 0: what the model gains from, at most "
               "cores / ranks",
               {.lowest = 0, .highest = 1024})
      .add_choice("precision", "float32", {"float32", "bf16", "fp16"},
                  "of forward and backward; masters stay float32")
      .add_choice("elastic", "on", {"on", "off"}, "go on when a rank is lost")
      .add_int("elastic.spares", 1, "processes that wait, ready to replace a rank",
               {.lowest = 0, .highest = 64})
      .add_bool("elastic.replace", true,
                "start a process for a rank that is lost; else spares alone take its "
                "place, and without one the run goes on with fewer ranks")
      .add_float("elastic.detect_s", 5,
                 "a rank that is stopped, or says nothing, for so long is replaced",
                 {.lowest = 0.1, .highest = 1e6})
      .add_int("elastic.max_ranks", 0,
               "most ranks that `cohort resize` may ask for; 0: as many as slices, times "
               "tp x pp",
               {.lowest = 0, .highest = 1023});
}

void add_optim(Keys& keys) {
  const FloatRange not_negative{.lowest = 0};
  const FloatRange below_one{.lowest = 0, .highest = 1, .below_highest = true};
  keys.add_choice("optim.name", "sgd", {"sgd", "adam", "adamw", "lars", "lamb"},
                  "update rule")
      .add_float("optim.lr", 0.05, "learning rate, before schedule and scaling",
                 not_negative)
      .add_float("optim.momentum", 0.9, "of sgd and lars", below_one)
      .add_bool("optim.nesterov", false, "look ahead along the momentum (sgd, lars)")
      .add_float("optim.weight_decay", 0, "pull towards zero", not_negative)
      .add_string("optim.no_decay", "",
                  "parameters without weight decay, and without a rate of their own "
                  "(lars, lamb): parts of names, with commas")
      .add_float("optim.beta1", 0.9, "decay of the first moment (adam, lamb)",
                 below_one)
      .add_float("optim.beta2", 0.999, "decay of the second moment (adam, lamb)",
                 below_one)
      .add_float("optim.eps", 1e-8, "added to the denominator (all but sgd)",
                 not_negative)
      .add_float("optim.trust", 0.001,
                 "a step moves a tensor by the rate times so much of its norm (lars)",
                 not_negative)
      .add_float("optim.clip", 0, "largest norm of the whole gradient; 0: any",
                 not_negative);
}

void add_schedule(Keys& keys) {
  keys.add_choice(
          "schedule.name", "constant",
          {"constant", "step", "cosine", "linear", "warmup-stable-decay", "wsd"},
          "of the learning rate after the warm-up; wsd: warmup-stable-decay")
      .add_int("schedule.warmup_steps", 0, "steps in which the rate grows from zero",
               {.lowest = 0})
      .add_int("schedule.total_steps", 0,
               "where the schedule ends; 0: with the last epoch", {.lowest = 0})
      .add_int("schedule.step_every", 0,
               "steps between two falls of step; 0: a third of the run", {.lowest = 0})
      .add_float("schedule.gamma", 0.1, "what a fall of step multiplies the rate with",
                 {.lowest = 1e-9})
      .add_int("schedule.decay_steps", 0,
               "last steps, in which wsd decays; 0: a tenth of the run", {.lowest = 0})
      .add_float("schedule.floor", 0,
                 "where cosine, linear and wsd end, as a fraction of the peak",
                 {.lowest = 0, .highest = 1})
      .add_choice("schedule.scale", "none", {"none", "linear", "sqrt"},
                  "how the rate grows with batch / schedule.reference_batch")
      .add_int("schedule.reference_batch", 0,
               "the batch optim.lr is meant for; 0: the recipe's own", {.lowest = 0});
}

void add_step(Keys& keys) {
  keys.add_string("step.recompute", "none",
                  "blocks whose activations are computed again in backward: none, all, "
                  "every=K or blocks=0-3,7")
      .add_int("step.prefetch", 1, "blocks gathered ahead of their use", {.lowest = 0})
      .add_choice(
          "step.offload", "none", {"none", "optimizer", "parameters"},
          "what a GPU keeps in the host's memory, and updates in place there: none, "
          "optimizer state, or parameters as well")
      .add_string("step.bucket_bytes", "25M",
                  "gradients communicated at once, as a size such as 25M")
      .add_string("memory.limit", "",
                  "of a rank, as a size such as 8G; empty: what the machine has")
      .add_choice("nan", "stop", {"stop", "skip"},
                  "what a gradient that is no number does to the run or the step")
      .add_int("drift.every_steps", 100,
               "steps between two comparisons of the replicas' weights; 0: never",
               {.lowest = 0});
}

void add_pipeline(Keys& keys) {
  keys.add_choice("pipeline.schedule", "1f1b",
                  {"gpipe", "1f1b", "interleaved", "zero-bubble"},
                  "the order in which the stages of a pipeline take their slices")
      .add_int("pipeline.virtual", 0,
               "stages at each place of an interleaved pipeline; 0: 2 of them, and 1 "
               "with other schedules",
               {.lowest = 0})
      .add_string("pipeline.cut", "auto",
                  "blocks of each stage, such as 0-3,4-7; auto: balanced by their cost")
      .add_string("pipeline.speeds", "",
                  "how fast the places of a pipeline are beside one another, such as "
                  "1,1,2; empty: all alike")
      .add_string(
          "pipeline.costs", "",
          "a table of costs, as cohort step --costs-out writes one: its blocks' "
          "seconds balance the stages; empty: operations do");
}

void add_precision(Keys& keys) {
  const std::vector<std::string> dtypes = {"auto", "float32", "bf16", "fp16"};
  keys.add_choice("dtype.reduce", "auto", dtypes,
                  "of gradients on their way between ranks; auto: as precision")
      .add_choice("dtype.accumulate", "auto", dtypes,
                  "of gradients summed over slices; auto: float32")
      .add_bool("tf32", false, "let GPUs round factors of float32 products to 10 bits")
      .add_float("loss_scale.initial", 65536, "first scale of the loss (fp16)",
                 {.lowest = 1})
      .add_int("loss_scale.growth_steps", 2000,
               "finite steps after which the scale doubles (fp16)", {.lowest = 1});
}

void add_data_and_model(Keys& keys) {
  keys.add_string("data.dir", "",
                  "folder of the data set; empty: where packages put it")
      .add_bool("data.normalize", false, "subtract the mean, divide by the deviation")
      .add_bool("data.synthetic", false, "made-up samples of the same shape")
      .add_int("model.width", 0, "0: the recipe's own",
               {.lowest = 0, .highest = 1 << 20})
      .add_int("model.depth", 0, "0: the recipe's own",
               {.lowest = 0, .highest = 100'000})
      .add_float("model.dropout", -1, "share of values dropped; -1: the recipe's own",
                 {.lowest = -1, .highest = 1, .below_highest = true})
      .add_bool("model.sequence_parallel", true,
                "tp > 1: between layers that are cut, each rank has a part of every "
                "sequence")
      .add_string("model.weights", "",
                  "initial weights: a safetensors file, a folder of Hugging Face or a "
                  "checkpoint; empty: random ones");
}

void add_output(Keys& keys) {
  keys.add_string("checkpoint.dir", "", "folder of checkpoints; empty: none are saved")
      .add_int("checkpoint.every_steps", 0, "0: only at the end and on request",
               {.lowest = 0})
      .add_int("checkpoint.keep", 3, "newest checkpoints that stay", {.lowest = 1})
      .add_int("checkpoint.keep_every", 0,
               "those whose step is a multiple of it stay too; 0: none", {.lowest = 0})
      .add_int("checkpoint.best", 0, "so many with the best metric stay too",
               {.lowest = 0})
      .add_choice("checkpoint.metric", "loss", {"loss", "accuracy"},
                  "what the best ones are best by")
      .add_bool("checkpoint.async", true, "write while training goes on")
      .add_string(
          "checkpoint.memory", "",
          "bytes that snapshots of all ranks here may take; empty: what is free")
      .add_int("snapshot.every_steps", 10,
               "steps between two snapshots in the launcher's memory; 0: none",
               {.lowest = 0})
      .add_int("log.every_steps", 10, "steps between two lines of progress",
               {.lowest = 1})
      .add_int("valid.every_epochs", 1, "epochs between two validations; 0: none",
               {.lowest = 0})
      .add_float("comm.timeout_s", 30,
                 "a rank without a sign of progress for so long is given up",
                 {.lowest = 0.1, .highest = 1e6})
      .add_bool("comm.nccl_share_gpu", false,
                "with --backend nccl: ranks may share a GPU; slow, for tests")
      .add_bool("comm.gpu_windows", true,
                "ranks of one node that share one GPU exchange its tensors through "
                "memory of that GPU; false: over the host");
}

}  // namespace

Keys common_keys() {
  Keys keys;
  add_run(keys);
  add_optim(keys);
  add_schedule(keys);
  add_step(keys);
  add_pipeline(keys);
  add_precision(keys);
  add_data_and_model(keys);
  add_output(keys);
  return keys;
}

}  // namespace cohort
