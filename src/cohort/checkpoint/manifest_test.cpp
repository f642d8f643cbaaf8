// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cohort/core/error.h"
#include "cohort/core/hash.h"

namespace cohort {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Manifest some_manifest() {
  Manifest manifest;
  manifest.run = {.step = 7,
                  .epoch = 1,
                  .sample = 64,
                  .seed = 18446744073709551615u,
                  .layout = "dp=2",
                  .world = 2,
                  .metrics = {{"loss", 0.5}, {"none", std::nan("")}},
                  .state = {{"raw", std::string("\0\xff", 2)}, {"text", "{\"a\":1}"}}};
  manifest.program = "0.1.0";
  manifest.build = "unknown";
  manifest.chunk_bytes = 8;
  manifest.files = {{"model-00001-of-00001.safetensors", 200, 1, 2}};
  manifest.tensors = {
      {{.spec =
            {.name = "w", .shape = {3, 1}, .dtype = at::kFloat, .begin = 0, .end = 3},
        .kind = TensorKind::kParameter,
        .order = {1, 0}},
       {{{}, {{0, 2, 0, 100, 0xabc}, {2, 3, 0, 108, 0xdef}}}}}};
  return manifest;
}

// The columns of a (2, 3) matrix in two boxes.
Manifest cut_manifest() {
  Manifest manifest = some_manifest();
  manifest.tensors = {
      {{.spec =
            {.name = "w", .shape = {2, 3}, .dtype = at::kFloat, .begin = 0, .end = 6},
        .kind = TensorKind::kParameter,
        .order = {}},
       {{{{2, 3}, {0, 0}, {2, 1}}, {{0, 2, 0, 100, 0xabc}}},
        {{{2, 3}, {0, 1}, {2, 3}}, {{0, 3, 0, 108, 1}, {3, 4, 0, 120, 2}}}}}};
  return manifest;
}

// A manifest with this text in place of that, and a hash that is right.
std::string altered(const std::string& from, const std::string& to,
                    const Manifest& manifest = some_manifest()) {
  std::string bytes = format_manifest(manifest, "m");
  bytes.resize(bytes.size() - 28);
  const auto at = bytes.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  bytes.replace(at, from.size(), to);
  return text(bytes, ",\"hash\":\"", hex16(hash64(bytes)), "\"}\n");
}

std::string manifest_error(const std::string& bytes) {
  try {
    (void)parse_manifest(bytes, "folder/manifest.json");
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), HasSubstr("[checkpoint.manifest]"));
    return error.what();
  }
  return "";
}

// The bytes themselves, so that the format does not change from version to version.
TEST(Manifest, BytesAreTheFormat) {
  const std::string body =
      R"({"format":"cohort-checkpoint","version":2,"program":"0.1.0","build":"unknown",)"
      R"("step":7,"epoch":1,"sample":64,"seed":18446744073709551615,"layout":"dp=2",)"
      R"("world":2,"metrics":{"loss":0.5,"none":null},)"
      R"("state":{"raw":{"hex":"00ff"},"text":"{\"a\":1}"},"chunk_bytes":8,)"
      R"("files":[{"name":"model-00001-of-00001.safetensors","bytes":200,)"
      R"("header_hash":"0000000000000001","hash":"0000000000000002"}],)"
      R"("tensors":[{"name":"w","kind":"parameter","dtype":"F32","shape":[3,1],)"
      R"("order":[1,0],"chunks":[[0,2,0,100,"0000000000000abc"],)"
      R"([2,3,0,108,"0000000000000def"]]}])";
  EXPECT_EQ(format_manifest(some_manifest(), "m"),
            text(body, ",\"hash\":\"", hex16(hash64(body)), "\"}\n"));
}

TEST(Manifest, BytesOfBoxesAreTheFormat) {
  const auto bytes = format_manifest(cut_manifest(), "m");
  EXPECT_THAT(
      bytes, HasSubstr(R"("shape":[2,3],"cut":[2,3],"boxes":[{"from":[0,0],"to":[2,1],)"
                       R"("chunks":[[0,2,0,100,"0000000000000abc"]]},)"
                       R"({"from":[0,1],"to":[2,3],"chunks":)"));
  EXPECT_EQ(format_manifest(parse_manifest(bytes, "m"), "m"), bytes);
}

TEST(Manifest, TheFirstVersionIsReadAndHasNoBoxes) {
  const Manifest read = parse_manifest(altered("\"version\":2", "\"version\":1"), "m");
  EXPECT_EQ(read.version, 1);
  EXPECT_EQ(format_manifest(read, "m"), format_manifest(some_manifest(), "m"));
  EXPECT_THAT(manifest_error(altered("\"version\":2", "\"version\":1", cut_manifest())),
              HasSubstr("chunks"));
}

TEST(Manifest, BoxesCoverTheirTensorOnce) {
  const auto error = [](const std::string& from, const std::string& to) {
    return manifest_error(altered(from, to, cut_manifest()));
  };
  EXPECT_EQ(error("\"step\":7", "\"step\":8"), "");
  EXPECT_THAT(error("\"from\":[0,1]", "\"from\":[0,0]"),
              AllOf(HasSubstr("'w'"), HasSubstr("[0:2,0:1] and [0:2,0:3] overlap")));
  EXPECT_THAT(error("\"from\":[0,1]", "\"from\":[0,2]"),
              HasSubstr("its boxes have 4 of its 6 elements"));
  EXPECT_THAT(error("\"to\":[2,3]", "\"to\":[2,4]"), HasSubstr("within 2x3"));
  EXPECT_THAT(error("\"to\":[2,3]", "\"to\":[2]"), HasSubstr("dimensions of its cut"));
  EXPECT_THAT(error("\"cut\":[2,3]", "\"cut\":[2,4]"), HasSubstr("a shape of 6"));
  EXPECT_THAT(error("\"cut\":[2,3],", ""), HasSubstr("cut"));
  EXPECT_THAT(error("[3,4,0,120", "[3,5,0,120"),
              AllOf(HasSubstr("'w'[0:2,1:3]"), HasSubstr("outside its 4")));
  std::string many;
  for (size_t i = 0; i <= kMostBoxes; ++i)
    many += R"({"from":[0,0],"to":[0,0],"chunks":[]},)";
  EXPECT_THAT(error("\"boxes\":[", "\"boxes\":[" + many),
              HasSubstr("1027 boxes; legal: at most 1024"));
}

TEST(Manifest, ComesBack) {
  const auto bytes = format_manifest(some_manifest(), "m");
  const Manifest read = parse_manifest(bytes, "m");
  EXPECT_TRUE(std::isnan(read.run.metrics.at("none")));
  EXPECT_EQ(read.run.state, some_manifest().run.state);
  EXPECT_EQ(read.run.seed, some_manifest().run.seed);
  EXPECT_EQ(read.tensors[0].tensor.spec.end, 3);
  EXPECT_EQ(format_manifest(read, "m"), bytes);
}

TEST(Manifest, WhatDoesNotHoldTogetherIsNamed) {
  EXPECT_EQ(manifest_error(altered("\"step\":7", "\"step\":8")), "");
  EXPECT_THAT(manifest_error(altered("\"version\":2", "\"version\":3")),
              AllOf(HasSubstr("version 3"), HasSubstr("reads 1 and 2")));
  EXPECT_THAT(manifest_error(altered("cohort-checkpoint", "something")),
              HasSubstr("is not the"));
  EXPECT_THAT(manifest_error(altered("\"step\":7", "\"step\":-7")),
              HasSubstr("step -7"));
  EXPECT_THAT(manifest_error(altered("\"step\":7,", "")), HasSubstr("step"));
  EXPECT_THAT(manifest_error(altered("[0,2,0,100", "[0,1,0,100")),
              AllOf(HasSubstr("'w'"), HasSubstr("elements 1 to 2 are missing")));
  EXPECT_THAT(manifest_error(altered("[2,3,0", "[1,3,0")),
              HasSubstr("twice or outside"));
  EXPECT_THAT(manifest_error(altered("[2,3,0", "[2,4,0")),
              HasSubstr("twice or outside"));
  EXPECT_THAT(manifest_error(altered("[2,3,0", "[2,3,1")), HasSubstr("file 1 of 1"));
  EXPECT_THAT(manifest_error(altered("0,108,", "0,197,")),
              HasSubstr("outside model-00001"));
  EXPECT_THAT(manifest_error(altered("0,108,", "0,-8,")),
              HasSubstr("outside model-00001"));
  EXPECT_THAT(manifest_error(altered("model-00001", "../x")),
              HasSubstr("no plain file"));
  EXPECT_THAT(manifest_error(altered("\"F32\"", "\"Q4\"")), HasSubstr("dtype Q4"));
  EXPECT_THAT(manifest_error(altered("\"parameter\"", "\"weight\"")),
              HasSubstr("'weight'"));
  EXPECT_THAT(manifest_error(altered("[3,1]", "[-3,1]")), HasSubstr("shape"));
  EXPECT_THAT(manifest_error(altered("[3,1]", "[4294967296,4294967296]")),
              HasSubstr("shape"));
  EXPECT_THAT(manifest_error(altered("\"order\":[1,0]", "\"order\":[1,1]")),
              HasSubstr("order"));
  EXPECT_THAT(manifest_error(altered("\"order\":[1,0]", "\"order\":[0]")),
              HasSubstr("order"));
  EXPECT_THAT(manifest_error(altered("0000000000000abc", "0abc")),
              HasSubstr("hexadecimal"));
  EXPECT_THAT(manifest_error(altered("{\"format\"", "[\"format\"")),
              HasSubstr("cannot be read"));
  EXPECT_THAT(manifest_error(""), HasSubstr("truncated"));
}

// Otherwise a few bytes of manifest could make a file as large as one likes.
TEST(Manifest, ChunksAreTogetherNoLargerThanTheirFile) {
  EXPECT_THAT(manifest_error(altered("\"bytes\":200", "\"bytes\":108")),
              HasSubstr("outside"));
  std::string chunks;
  for (int i = 0; i < 3; ++i)
    chunks += text(",[", 3 + 24 * i, ",", 27 + 24 * i, ",0,100,\"0000000000000abc\"]");
  auto bytes = altered("0000000000000def\"]", "0000000000000def\"]" + chunks);
  bytes.resize(bytes.size() - 28);
  const std::string shape = "\"shape\":[3,1]";
  bytes.replace(bytes.find(shape), shape.size(), "\"shape\":[75,1]");
  EXPECT_THAT(
      manifest_error(text(bytes, ",\"hash\":\"", hex16(hash64(bytes)), "\"}\n")),
      AllOf(HasSubstr("model-00001"), HasSubstr("204 bytes"), HasSubstr("200")));
}

TEST(Manifest, NumbersAreWholeAndInRange) {
  for (const char* bad : {"1e300", "1.5", "true", "99999999999999999999", "\"7\""})
    EXPECT_NE(manifest_error(altered("\"step\":7", text("\"step\":", bad))), "") << bad;
  EXPECT_NE(manifest_error(altered("[2,3,0,108", "[2,3,4294967296,108")), "");
  EXPECT_NE(manifest_error(altered("[3,1]", "[3,1e300]")), "");
  EXPECT_NE(manifest_error(altered("\"world\":2", "\"world\":4294967298")), "");
}

TEST(Manifest, NestingIsBounded) {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  EXPECT_THAT(manifest_error(altered("\"text\":\"{\\\"a\\\":1}\"", "\"text\":" + deep)),
              HasSubstr("nested"));
}

}  // namespace
}  // namespace cohort
