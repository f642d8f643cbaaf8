// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cohort/core/error.h"
#include "cohort/core/testing_error.h"
#include "cohort/core/testing_folder.h"
#include "cohort/engine/cuda/device_compiler.h"
#include "cohort/engine/cuda/device_kernels.h"
#include "cohort/engine/cuda/device_logits.h"

namespace cohort {
namespace {

constexpr GpuArchitecture kHopper{9, 0};

// NVRTC needs no GPU: this runs wherever the library is.
class DeviceTextTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* const folder = std::getenv("COHORT_NVRTC");
    compiler_ = DeviceCompiler::find(folder ? folder : "");
    if (!compiler_) GTEST_SKIP() << "no libnvrtc; COHORT_NVRTC may name its folder";
  }
  std::unique_ptr<DeviceCompiler> compiler_;
};

TEST_F(DeviceTextTest, KernelsCompileForEveryArchitectureFromTuringOn) {
  for (const auto& program : {sum_program(), logit_program()})
    for (const auto gpu : {GpuArchitecture{7, 5}, {8, 0}, {9, 0}, {10, 0}})
      EXPECT_THAT(compiler_->compile(program, gpu), testing::StartsWith("\x7f"
                                                                        "ELF"));
}

TEST_F(DeviceTextTest, EveryRuleCompilesWithEveryDtype) {
  for (const char* rule : {"sgd", "adam", "adamw", "lars", "lamb"})
    for (const double momentum : {0.0, 0.9})
      for (const auto gradient : {at::kFloat, at::kBFloat16, at::kHalf}) {
        ShardUpdateOptions options{.rule = {.name = rule, .momentum = momentum},
                                   .gradient = gradient,
                                   .published = gradient};
        compiler_->compile(update_program(options), kHopper);
        options.rule.nesterov = true;
        options.published = std::nullopt;
        compiler_->compile(update_program(options), kHopper);
      }
}

TEST_F(DeviceTextTest, AnErrorIsOneLineOfTheLog) {
  const std::string said = test::message_of<BugError>([&] {
    compiler_->compile({"sums", {{"no_such_kernel", "NormArguments"}}}, kHopper);
  });
  EXPECT_THAT(said, testing::HasSubstr("no_such_kernel"));
  EXPECT_THAT(said, testing::HasSubstr("error"));
}

TEST_F(DeviceTextTest, IsCompiledOnceAndAgainIfTheFileIsDamaged) {
  const test::TempFolder folder;
  const KernelProgram program{"sums", {{"norm", "NormArguments"}}};
  const std::string code = compiler_->compile_once(program, kHopper, folder / "cache");
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "cache"))
    files.push_back(entry.path());
  ASSERT_EQ(files.size(), 1u);
  const auto made = std::filesystem::last_write_time(files[0]);
  EXPECT_EQ(compiler_->compile_once(program, kHopper, folder / "cache"), code);
  EXPECT_EQ(std::filesystem::last_write_time(files[0]), made);
  std::ofstream(files[0]) << "no code";
  EXPECT_EQ(compiler_->compile_once(program, kHopper, folder / "cache"), code);
  EXPECT_GT(std::filesystem::file_size(files[0]), code.size());
}

TEST_F(DeviceTextTest, ACacheThatCannotBeWrittenIsNoFailure) {
  const KernelProgram program{"sums", {{"norm", "NormArguments"}}};
  EXPECT_FALSE(compiler_->compile_once(program, kHopper, "/proc/none/cache").empty());
}

}  // namespace
}  // namespace cohort
