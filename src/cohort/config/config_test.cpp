// SPDX-License-Identifier: Apache-2.0
#include "cohort/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/config.h"
#include "cohort/core/error.h"
#include "cohort/core/file.h"
#include "cohort/core/testing_error.h"
#include "cohort/core/testing_folder.h"

namespace cohort {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

Keys small_keys() {
  Keys keys;
  keys.add_int("batch", 128, "samples per step", {.lowest = 1, .highest = 1024})
      .add_float("optim.lr", 0.05, "rate", {.lowest = 0})
      .add_float("optim.beta1", 0.9, "decay",
                 {.lowest = 0, .highest = 1, .below_highest = true})
      .add_choice("optim.name", "sgd", {"sgd", "adam", "adamw"}, "rule")
      .add_bool("data.synthetic", false, "made up")
      .add_string("data.dir", "", "folder");
  return keys;
}

std::string error_of_set(std::string_view assignment) {
  return test::message_of<ConfigError>(
      [&] { Config(small_keys()).set_assignment(assignment); });
}

std::string error_of_yaml(std::string_view yaml) {
  return test::message_of<ConfigError>(
      [&] { Config(small_keys()).load_text(yaml, "f.yaml"); });
}

TEST(Config, StartsWithTheDefaults) {
  const Config config(small_keys());
  EXPECT_EQ(config.get_int("batch"), 128);
  EXPECT_EQ(config.get_float("optim.lr"), 0.05);
  EXPECT_EQ(config.get_string("optim.name"), "sgd");
  EXPECT_FALSE(config.get_bool("data.synthetic"));
  EXPECT_EQ(config.origin("batch"), "default");
}

TEST(Config, LaterLayersWin) {
  Config config(small_keys());
  config.set("batch", "32", "recipe mlp");
  config.set("optim.lr", "0.1", "recipe mlp");
  config.set("data.dir", "a", "recipe mlp");
  config.load_text("optim: {lr: 0.2}\ndata:\n  dir: b\n", "f.yaml");
  config.set_assignment("data.dir=c=d");
  EXPECT_EQ(config.get_int("batch"), 32);
  EXPECT_EQ(config.get_float("optim.lr"), 0.2);
  EXPECT_EQ(config.get_string("data.dir"), "c=d");
  EXPECT_EQ(config.origin("batch"), "recipe mlp");
  EXPECT_EQ(config.origin("optim.lr"), "f.yaml:1:9");
  EXPECT_EQ(config.origin("data.dir"), "--set");
}

TEST(Config, UnknownKeyNamesTheNearestAndThePlace) {
  EXPECT_EQ(error_of_set("optim.lrr=1"),
            "[config] --set: unknown key 'optim.lrr'; the nearest legal key is "
            "'optim.lr'");
  EXPECT_EQ(error_of_set("lr=1"),
            "[config] --set: unknown key 'lr'; the nearest legal key is 'optim.lr'");
  EXPECT_EQ(error_of_yaml("batch: 2\noptim:\n  nam: sgd\n"),
            "[config] f.yaml:3:3: unknown key 'optim.nam'; the nearest legal key is "
            "'optim.name'");
}

TEST(Config, AGroupIsNoKey) {
  EXPECT_EQ(error_of_set("data=x"),
            "[config] --set: 'data' is a group and takes no value; legal: "
            "data.synthetic, data.dir");
  EXPECT_THAT(error_of_yaml("optim: sgd\n"),
              HasSubstr("f.yaml:1:1: 'optim' is a group"));
}

TEST(Config, WrongValuesSayWhatIsLegal) {
  EXPECT_EQ(error_of_set("batch=many"),
            "[config] --set: batch is 'many'; legal: a whole number >= 1 and <= 1024");
  EXPECT_THAT(error_of_set("batch=0"), HasSubstr("batch is '0'"));
  EXPECT_THAT(error_of_set("batch=1025"), HasSubstr("batch is '1025'"));
  EXPECT_THAT(error_of_set("batch=1.5"), HasSubstr("batch is '1.5'"));
  EXPECT_EQ(error_of_set("optim.lr=-1"),
            "[config] --set: optim.lr is '-1'; legal: a number >= 0");
  EXPECT_EQ(error_of_set("optim.beta1=1"),
            "[config] --set: optim.beta1 is '1'; legal: a number >= 0 and < 1");
  EXPECT_EQ(error_of_set("data.synthetic=perhaps"),
            "[config] --set: data.synthetic is 'perhaps'; legal: true or false");
  EXPECT_EQ(error_of_set("optim.name=adm"),
            "[config] --set: optim.name is 'adm'; legal: sgd, adam or adamw "
            "(nearest: adam)");
  EXPECT_THAT(error_of_yaml("batch: [1, 2]\n"),
              HasSubstr("f.yaml:1:1: batch is '1,2'"));
}

TEST(Config, AssignmentNeedsAKeyAndAnEqualsSign) {
  EXPECT_EQ(error_of_set("batch"),
            "[config] --set: 'batch' is not of the form key=value");
  EXPECT_THAT(error_of_set("=3"), HasSubstr("not of the form"));
  Config config(small_keys());
  config.set_assignment("data.dir=");
  EXPECT_EQ(config.get_string("data.dir"), "");
}

TEST(Config, DottedAndNestedKeysAreTheSame) {
  Config config(small_keys());
  config.load_text("optim.lr: 0.3\ndata: {synthetic: yes, dir: [a, b]}\n", "f");
  EXPECT_EQ(config.get_float("optim.lr"), 0.3);
  EXPECT_TRUE(config.get_bool("data.synthetic"));
  EXPECT_EQ(config.get_string("data.dir"), "a,b");
}

TEST(Config, EmptyYamlChangesNothing) {
  Config config(small_keys());
  for (auto yaml : {"", "# only a comment\n", "data: {}\n", "---\n"}) {
    config.load_text(yaml, "f");
  }
  EXPECT_EQ(config.to_json(), Config(small_keys()).to_json());
}

TEST(Config, DuplicatesAreRefusedWithBothPlaces) {
  EXPECT_EQ(error_of_yaml("batch: 1\nbatch: 2\n"),
            "[config] f.yaml:2:1: key 'batch' comes twice; first at f.yaml:1:1");
  EXPECT_THAT(error_of_yaml("optim.lr: 1\noptim:\n  lr: 2\n"),
              HasSubstr("f.yaml:3:3: key 'optim.lr' comes twice; first at f.yaml:1:1"));
}

// Each map names the one before it nine times: 9^16 values in less than 800 bytes.
TEST(Config, AliasesAreNotExpandedWithoutEnd) {
  std::string yaml = "a0: &a0 {a: 1,b: 1,c: 1,d: 1,e: 1,f: 1,g: 1,h: 1,i: 1}\n";
  for (int i = 1; yaml.size() < 740; ++i) {
    yaml += text("a", i, ": &a", i, " {");
    for (char key = 'a'; key <= 'i'; ++key) yaml += text(key, ": *a", i - 1, ",");
    yaml += "}\n";
  }
  EXPECT_LT(yaml.size(), 800u);
  EXPECT_THAT(error_of_yaml(yaml), HasSubstr("aliases"));
}

TEST(Config, LongTextIsNotRepeatedWithoutEnd) {
  std::string yaml = "a: &a \"" + std::string(50'000, 'x') + "\"\n";
  for (int i = 0; i < 4'000; ++i) yaml += text("b", i, ": *a\n");
  EXPECT_THAT(error_of_yaml(yaml), HasSubstr("aliases"));
}

// yaml-cpp finds documents in it without end.
TEST(Config, DocumentsWithoutEndAreRefused) {
  EXPECT_THAT(error_of_yaml("&a,8~a}\n"), HasSubstr("without end"));
  EXPECT_EQ(error_of_yaml("batch: 1\n---\n"), "no error");
  EXPECT_THAT(error_of_yaml("---\n---\nbatch: 1\n"), HasSubstr("second document"));
}

TEST(Config, AFileOfSettingsIsSmall) {
  EXPECT_THAT(error_of_yaml(std::string(2'000'000, '\n')), HasSubstr("2000000 bytes"));
  test::TempFolder folder;
  const std::string path = folder / "big.yaml";
  write_file_atomically(path, "batch: 1\n");
  std::filesystem::resize_file(path, 1'000'000'000'000);
  EXPECT_THAT(
      test::message_of<ConfigError>([&] { Config(small_keys()).load_file(path); }),
      HasSubstr("1000000000000 bytes"));
  EXPECT_THAT(test::message_of<ConfigError>(
                  [&] { Config(small_keys()).load_file("/dev/zero"); }),
              HasSubstr("/dev/zero"));
}

TEST(Config, MalformedYamlIsRefusedWithItsPlace) {
  EXPECT_THAT(error_of_yaml("batch: 1\noptim: {lr: 2\n"),
              StartsWith("[config] f.yaml:"));
  EXPECT_THAT(error_of_yaml("batch:\n"), HasSubstr("f.yaml:1:1: key 'batch' has no"));
  EXPECT_THAT(error_of_yaml("- 1\n- 2\n"), HasSubstr("f.yaml:1:1: not a map"));
  EXPECT_THAT(error_of_yaml("just text\n"), HasSubstr("not a map"));
  EXPECT_THAT(error_of_yaml("batch: 1\n---\nbatch: 2\n"), HasSubstr("second document"));
  EXPECT_THAT(error_of_yaml("? [a]\n: 1\n"), HasSubstr("plain text"));
  EXPECT_THAT(error_of_yaml("data: {dir: [[1]]}\n"), HasSubstr("list of non-values"));
  EXPECT_THAT(error_of_yaml("a: &a\n  b: *a\n"), StartsWith("[config] f.yaml"));
}

TEST(Config, AFailedFileChangesNothing) {
  Config config(small_keys());
  EXPECT_THROW(config.load_text("batch: 7\nbatc: 8\n", "f"), ConfigError);
  EXPECT_EQ(config.get_int("batch"), 128);
}

TEST(Config, FilesAreReadAndMissingOnesNamed) {
  const test::TempFolder folder;
  const std::string path = folder / "f.yaml";
  write_file_atomically(path, "batch: 9\n");
  Config config(small_keys());
  config.load_file(path);
  std::filesystem::remove(path);
  EXPECT_EQ(config.get_int("batch"), 9);
  EXPECT_EQ(config.origin("batch"), path + ":1:1");
  EXPECT_THAT(test::message_of<ConfigError>([&] { config.load_file(path); }),
              HasSubstr(path + ": No such file"));
}

TEST(Config, AskingForWhatIsNotThereIsABug) {
  const Config config(small_keys());
  EXPECT_THROW(config.get_int("epoch"), BugError);
  EXPECT_THROW(config.get_int("optim.lr"), BugError);
  EXPECT_THROW(small_keys().add_int("batch", 1, ""), ConfigError);
  EXPECT_THROW(Keys().add_int("n", 0, "", {.lowest = 1}), ConfigError);
  EXPECT_THROW(Keys().add_choice("c", "x", {"y"}, ""), ConfigError);
}

TEST(Config, JsonHasEveryKeyWithItsType) {
  Config config(small_keys());
  config.set_assignment("optim.lr=1");
  EXPECT_EQ(config.to_json(),
            R"({"batch":128,"optim.lr":1.0,"optim.beta1":0.9,"optim.name":"sgd",)"
            R"("data.synthetic":false,"data.dir":""})");
}

TEST(Config, TablesForPeople) {
  Config config(small_keys());
  config.set_assignment("batch=64");
  EXPECT_THAT(config.describe(), StartsWith("batch           64     --set\n"
                                            "optim.lr        0.05   default\n"));
  EXPECT_THAT(config.keys().describe(),
              HasSubstr("optim.name      sgd    sgd, adam or adamw"));
}

TEST(Keys, WithoutOthersAreTheRest) {
  Keys keys = common_keys();
  keys.add_bool("data.more", false, "more of it");
  const Keys rest = keys.without(common_keys());
  ASSERT_EQ(rest.all().size(), 1u);
  EXPECT_EQ(rest.all()[0].name, "data.more");
}

TEST(CommonKeys, AreThoseOfTheContract) {
  Config config(common_keys());
  config.load_text(R"(
seed: 1
epochs: 2
batch: 3
slices: 4
threads: 5
precision: bf16
elastic: on
elastic.spares: 2
elastic.replace: false
elastic.detect_s: 3
elastic.max_ranks: 4
snapshot: {every_steps: 5}
optim: {name: adamw, lr: 1, momentum: 0, nesterov: true, weight_decay: 0.1, beta1: 0,
        beta2: 0, eps: 0, trust: 0.1, clip: 1, no_decay: bias}
schedule: {name: cosine, warmup_steps: 6, scale: sqrt, reference_batch: 12,
           total_steps: 13, step_every: 14, gamma: 0.5, decay_steps: 15, floor: 0.1}
step: {recompute: true, prefetch: 2, offload: optimizer, bucket_bytes: 1M}
pipeline: {schedule: interleaved, virtual: 2, cut: "0,1", speeds: "1,2", costs: c.csv}
memory: {limit: 8G}
nan: skip
drift: {every_steps: 0}
dtype: {reduce: bf16, accumulate: float32}
tf32: true
loss_scale: {initial: 1024, growth_steps: 100}
data: {dir: d, normalize: true, synthetic: true}
model: {width: 7, depth: 8, dropout: 0.5, sequence_parallel: false,
        weights: w.safetensors}
checkpoint: {dir: c, every_steps: 9, keep: 10, async: false, keep_every: 11, best: 2,
             metric: accuracy, memory: 1G}
log: {every_steps: 11}
valid: {every_epochs: 2}
comm: {timeout_s: 5, nccl_share_gpu: true, gpu_windows: false}
)",
                   "all.yaml");
  for (const Key& key : config.keys().all()) {
    EXPECT_THAT(config.origin(key.name), StartsWith("all.yaml:")) << key.name;
    EXPECT_FALSE(key.help.empty()) << key.name;
  }
  EXPECT_EQ(config.get_string("elastic"), "on");
}

TEST(CommonKeys, HaveTheDocumentedDefaults) {
  EXPECT_EQ(
      Config(common_keys()).to_json(),
      R"({"seed":0,"epochs":1,"batch":128,"slices":0,"threads":0,)"
      R"("precision":"float32","elastic":"on","elastic.spares":1,)"
      R"("elastic.replace":true,"elastic.detect_s":5.0,"elastic.max_ranks":0,)"
      R"("optim.name":"sgd","optim.lr":0.05,)"
      R"("optim.momentum":0.9,"optim.nesterov":false,"optim.weight_decay":0.0,)"
      R"("optim.no_decay":"","optim.beta1":0.9,"optim.beta2":0.999,"optim.eps":1e-08,)"
      R"("optim.trust":0.001,"optim.clip":0.0,"schedule.name":"constant","schedule.warmup_steps":0,)"
      R"("schedule.total_steps":0,"schedule.step_every":0,"schedule.gamma":0.1,)"
      R"("schedule.decay_steps":0,"schedule.floor":0.0,)"
      R"("schedule.scale":"none","schedule.reference_batch":0,)"
      R"("step.recompute":"none","step.prefetch":1,"step.offload":"none",)"
      R"("step.bucket_bytes":"25M","memory.limit":"","nan":"stop",)"
      R"("drift.every_steps":100,"pipeline.schedule":"1f1b","pipeline.virtual":0,)"
      R"("pipeline.cut":"auto","pipeline.speeds":"","pipeline.costs":"",)"
      R"("dtype.reduce":"auto","dtype.accumulate":"auto",)"
      R"("tf32":false,"loss_scale.initial":65536.0,"loss_scale.growth_steps":2000,)"
      R"("data.dir":"","data.normalize":false,)"
      R"("data.synthetic":false,"model.width":0,"model.depth":0,"model.dropout":-1.0,)"
      R"("model.sequence_parallel":true,"model.weights":"","checkpoint.dir":"",)"
      R"("checkpoint.every_steps":0,"checkpoint.keep":3,"checkpoint.keep_every":0,)"
      R"("checkpoint.best":0,"checkpoint.metric":"loss","checkpoint.async":true,)"
      R"("checkpoint.memory":"","snapshot.every_steps":10,)"
      R"("log.every_steps":10,"valid.every_epochs":1,"comm.timeout_s":30.0,)"
      R"("comm.nccl_share_gpu":false,"comm.gpu_windows":true})");
}

}  // namespace
}  // namespace cohort
