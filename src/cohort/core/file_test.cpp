// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "cohort/core/atomic_file.h"
#include "cohort/core/testing_error.h"
#include "cohort/core/testing_folder.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class File : public testing::Test {
 protected:
  int entries() const {
    return static_cast<int>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  test::TempFolder owner_;
  fs::path folder_ = owner_.path();
};

TEST_F(File, ComesBackAsItWasWritten) {
  std::string bytes("a\0b\xff\n", 5);
  for (int doubling = 0; doubling < 18; ++doubling) bytes += bytes;
  write_file_atomically(folder_ / "x", bytes);
  EXPECT_EQ(read_file(folder_ / "x"), bytes);
  write_file_atomically(folder_ / "x", "");
  EXPECT_EQ(read_file(folder_ / "x"), "");
  EXPECT_EQ(entries(), 1);
}

TEST_F(File, FilesOfUnknownSizeAreReadWhole) {
  EXPECT_THAT(read_file("/proc/self/status"), HasSubstr("VmHWM"));
}

TEST_F(File, ErrorsHaveThePathTheReasonAndTheCallersKind) {
  const auto missing = folder_ / "none" / "x";
  EXPECT_THROW(read_file(missing), DataError);
  EXPECT_THROW(read_file(missing, ErrorKind::kConfig), ConfigError);
  EXPECT_THROW(write_file_atomically(missing, "x", ErrorKind::kCheckpoint),
               CheckpointError);
  EXPECT_EQ(
      test::message_of([&] { read_file(missing); }),
      "[core.file] cannot read " + missing.string() + ": No such file or directory");
  EXPECT_THAT(test::message_of([&] { write_file_atomically(missing, "x"); }),
              HasSubstr("cannot write " + missing.string() + ": No such file"));
  EXPECT_THAT(test::message_of([&] { read_file(folder_); }),
              HasSubstr("Is a directory"));
}

TEST_F(File, AFailedWriteLeavesTheOldFileAndNothingElse) {
  fs::create_directory(folder_ / "x");
  fs::create_directory(folder_ / "x" / "inside");
  EXPECT_THROW(write_file_atomically(folder_ / "x", "new"), DataError);
  EXPECT_TRUE(fs::is_directory(folder_ / "x"));
  EXPECT_EQ(entries(), 1);
}

TEST_F(File, WrittenBitByBitAppearsWholeOrNotAtAll) {
  const auto path = folder_ / "x";
  write_file_atomically(path, "old");
  {
    AtomicFile abandoned(path, ErrorKind::kCheckpoint);
    abandoned.write("half of ");
  }
  EXPECT_EQ(read_file(path), "old");
  AtomicFile file(path, ErrorKind::kCheckpoint);
  file.write("half of ");
  file.write("it");
  EXPECT_EQ(read_file(path), "old");
  file.finish();
  EXPECT_EQ(read_file(path), "half of it");
  EXPECT_EQ(entries(), 1);
  EXPECT_THROW(AtomicFile(folder_ / "none" / "x", ErrorKind::kCheckpoint),
               CheckpointError);
}

TEST_F(File, OnlyRegularFilesAreReplaced) {
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  fs::create_symlink(folder_ / "pipe", folder_ / "link_to_pipe");
  for (const char* name : {"pipe", "link_to_pipe"}) {
    EXPECT_THROW(write_file_atomically(folder_ / name, "x"), DataError);
  }
  EXPECT_TRUE(fs::is_fifo(folder_ / "pipe"));
  EXPECT_TRUE(fs::is_symlink(folder_ / "link_to_pipe"));
}

TEST_F(File, ALinkIsFollowedAndStays) {
  fs::create_directory(folder_ / "there");
  fs::create_symlink(folder_ / "there" / "x", folder_ / "link");
  for (const char* bytes : {"new", "newer"}) {  // the target is missing at first
    write_file_atomically(folder_ / "link", bytes);
    EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
    EXPECT_EQ(read_file(folder_ / "there" / "x"), bytes);
  }
}

TEST_F(File, AFullDiskIsReported) {
  // /dev/full itself cannot be renamed over: the limit on file size acts the same.
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    rlimit limit{100, 100};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const auto said = test::message_of(
        [&] { write_file_atomically(folder_ / "x", std::string(500, 'x')); });
    ::_exit(said.find("File too large") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(entries(), 0);
}

TEST_F(File, AKilledWriterLeavesNothing) {
  const test::TempFolder in_memory("/dev/shm");  // has files without a name
  folder_ = in_memory.path();
  for (const bool replaces : {false, true}) {
    if (replaces) write_file_atomically(folder_ / "x", "old");
    const pid_t child = ::fork();
    if (child == 0) {
      rlimit limit{100, 100};  // SIGXFSZ comes in the middle of the file
      ::setrlimit(RLIMIT_FSIZE, &limit);
      write_file_atomically(folder_ / "x", std::string(500, 'x'));
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(WTERMSIG(status), SIGXFSZ);
    EXPECT_EQ(entries(), replaces ? 1 : 0);
  }
  EXPECT_EQ(read_file(folder_ / "x"), "old");
}

TEST_F(File, FoldersAreMadeWithThoseAbove) {
  make_folder(folder_ / "a" / "b");
  make_folder(folder_ / "a" / "b");
  EXPECT_TRUE(fs::is_directory(folder_ / "a" / "b"));
  write_file_atomically(folder_ / "f", "x");
  EXPECT_THROW(make_folder(folder_ / "f" / "c", ErrorKind::kConfig), ConfigError);
}

}  // namespace
}  // namespace cohort
