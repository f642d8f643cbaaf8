// SPDX-License-Identifier: Apache-2.0
#include "doctor_command.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "cohort/core/testing_folder.h"
#include "doctor_checks.h"

namespace cohort::cli {
namespace {

using testing::HasSubstr;
using testing::Not;
using namespace std::chrono_literals;

std::string report(DoctorOptions options, int expected_code = 0) {
  std::ostringstream out;
  EXPECT_EQ(run_doctor(options, out), expected_code) << out.str();
  return out.str();
}

TEST(Doctor, SaysVersionAndWhereLibTorchIs) {
  const auto out = report({.version = "1.2.3"});
  EXPECT_THAT(out, HasSubstr("[ok] cohort 1.2.3\n"));
  EXPECT_THAT(out, HasSubstr("/libtorch_cpu.so"));
  EXPECT_THAT(out, HasSubstr("Everything a run needs is here."));
}

TEST(Doctor, ListsBackendsWithTheReasonOfEachThatIsMissing) {
  const auto out =
      report({.backends = {{"shm", true, ""}, {"mpi", false, "not built"}}});
  EXPECT_THAT(out, HasSubstr("[ok] backend shm\n"));
  EXPECT_THAT(out, HasSubstr("[--] backend mpi: not built\n"));
}

DoctorBackend tried(std::function<std::string()> trial) {
  return {.name = "nccl",
          .available = true,
          .version = "NCCL 2.28.9",
          .trial = std::move(trial),
          .patience = 500ms};
}

TEST(Doctor, ABackendThatWasTriedSaysWhatWorked) {
  const auto out =
      report({.backends = {tried([] { return std::string("a sum worked"); })}});
  EXPECT_THAT(out, HasSubstr("[ok] backend nccl: NCCL 2.28.9, a sum worked\n"));
}

TEST(Doctor, ABackendThatFailsItsTrialSaysHowAndIsNoReasonToFail) {
  const auto line = [](std::function<std::string()> trial) {
    return report({.backends = {tried(std::move(trial))}, .json = true});
  };
  const std::string begin =
      R"("state":"absent","text":"backend nccl: NCCL 2.28.9 was tried here and failed: )";
  EXPECT_THAT(line([]() -> std::string { throw std::runtime_error("no route\nmore"); }),
              HasSubstr(begin + "no route\""));
  EXPECT_THAT(line([]() -> std::string {
                ::raise(SIGKILL);
                return "";
              }),
              HasSubstr(begin + "ended by signal 9 (Killed)"));
  EXPECT_THAT(line([]() -> std::string {
                ::pause();
                return "";
              }),
              HasSubstr(begin + "no answer after 500 ms"));
}

TEST(Doctor, AMissingDataSetIsNamedWithItsPackage) {
  const auto out = report({.data_dir = "/nowhere"});
  EXPECT_THAT(out, HasSubstr("[--] Fashion-MNIST: no readable /nowhere/train-images"));
  EXPECT_THAT(out, testing::ContainsRegex("apt-get install.* dataset-fashion-mnist"));
}

TEST(Doctor, AnUnpackedDataSetServesToo) {
  const test::TempFolder folder;
  for (const char* file : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                           "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}) {
    EXPECT_EQ(check_dataset(folder.path()).health, Health::kAbsent);
    std::ofstream(folder / file) << "x";
  }
  EXPECT_EQ(check_dataset(folder.path()).health, Health::kOk);
}

TEST(Doctor, JsonIsOneObjectALineAndDoneIsLast) {
  const auto out = report({.version = "a\"b", .json = true});
  std::istringstream lines(out);
  std::string line, last;
  while (std::getline(lines, line)) {
    EXPECT_EQ(line.front(), '{');
    EXPECT_EQ(line.back(), '}');
    last = line;
  }
  EXPECT_THAT(out, HasSubstr(R"("text":"cohort a\"b")"));
  EXPECT_EQ(last, R"({"event":"done","exit_code":0})");
}

// Without a descriptor to spare nothing can work: the verdict must not be 0.
TEST(Doctor, WhatEveryRunNeedsDecidesTheExitCode) {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none{0, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  const auto out = report({}, 1);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_THAT(out, HasSubstr("[!!] shared memory (memfd): "));
  EXPECT_THAT(out, Not(HasSubstr("Everything a run needs")));
}

}  // namespace
}  // namespace cohort::cli
