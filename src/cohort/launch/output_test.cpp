// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <array>

namespace cohort::process {
namespace {

struct Pipe {
  Pipe() {
    int fds[2];
    EXPECT_EQ(::pipe2(fds, O_CLOEXEC), 0);
    read.reset(fds[0]);
    write.reset(fds[1]);
    ::fcntl(read.get(), F_SETFL, O_NONBLOCK);
  }
  void put(std::string_view data) {
    ASSERT_EQ(::write(write.get(), data.data(), data.size()),
              static_cast<ssize_t>(data.size()));
  }
  std::string take() {
    std::string all;
    std::array<char, 65536> buffer;
    ssize_t n;
    while ((n = ::read(read.get(), buffer.data(), buffer.size())) > 0) {
      all.append(buffer.data(), n);
    }
    return all;
  }
  UniqueFd read, write;
};

class RankStreamTest : public testing::Test {
 protected:
  RankStream stream(Pipe& pipe, Forward forward, int log = -1) {
    return RankStream(std::move(pipe.read), stream_, forward, "[rank 1] ", log);
  }
  Pipe to_user_;
  AgentStream stream_{to_user_.write.get()};
};

TEST_F(RankStreamTest, HoldsALineBackUntilItIsWhole) {
  Pipe pipe;
  auto rank = stream(pipe, Forward::kWholeLines);
  pipe.put("one\ntw");
  rank.pump();
  EXPECT_EQ(to_user_.take(), "one\n");
  pipe.put("o\n");
  rank.pump();
  EXPECT_EQ(to_user_.take(), "two\n");
}

TEST_F(RankStreamTest, GivesOutAnOpenLineAtTheEnd) {
  Pipe pipe;
  auto rank = stream(pipe, Forward::kWholeLines);
  pipe.put("no newline");
  pipe.write.reset();
  rank.pump();
  EXPECT_FALSE(rank.open());
  EXPECT_EQ(to_user_.take(), "no newline");
}

TEST_F(RankStreamTest, PrefixesEveryLine) {
  Pipe pipe;
  auto rank = stream(pipe, Forward::kPrefixedLines);
  pipe.put("a\n\nb");
  pipe.write.reset();
  rank.pump();
  EXPECT_EQ(to_user_.take(), "[rank 1] a\n[rank 1] \n[rank 1] b\n");
}

TEST_F(RankStreamTest, LetsAProgressBarMove) {
  Pipe pipe;
  auto rank = stream(pipe, Forward::kAsItComes);
  pipe.put("10%\r");
  rank.pump();
  EXPECT_EQ(to_user_.take(), "10%\r");
}

TEST_F(RankStreamTest, ShowsOnlyTheLastStateOfAnotherRanksBar) {
  Pipe pipe;
  auto rank = stream(pipe, Forward::kPrefixedLines);
  pipe.put("10%\r20%\r\n");
  rank.pump();
  EXPECT_EQ(to_user_.take(), "[rank 1] 20%\n");
}

TEST_F(RankStreamTest, NeverSharesALineWithAnother) {
  Pipe first, second;
  auto bar = stream(first, Forward::kAsItComes);
  auto other = stream(second, Forward::kPrefixedLines);
  first.put("50%\r");
  bar.pump();
  second.put("warning\n");
  other.pump();
  EXPECT_EQ(to_user_.take(), "50%\r\n[rank 1] warning\n");
}

TEST_F(RankStreamTest, PassesALineThatNeverEnds) {
  Pipe pipe;
  auto rank = stream(pipe, Forward::kWholeLines);
  const std::string piece(32 * 1024, 'x');
  for (int i = 0; i < 3; ++i) {
    pipe.put(piece);
    rank.pump();
  }
  std::string got = to_user_.take();
  stream_.flush();
  got += to_user_.take();
  EXPECT_EQ(got.size(), 3 * piece.size());
}

TEST_F(RankStreamTest, RemembersTheLastLineWithSomethingInIt) {
  Pipe pipe;
  auto rank = stream(pipe, Forward::kAsItComes);
  pipe.put("first\n  what():  it broke\n\n  \n");
  rank.pump();
  EXPECT_EQ(rank.last_line(), "what():  it broke");
  pipe.put("half a");
  rank.pump();
  EXPECT_EQ(rank.last_line(), "half a");
}

TEST_F(RankStreamTest, RemembersTheErrorAndNotTheStackBehindIt) {
  Pipe pipe;
  auto rank = stream(pipe, Forward::kAsItComes);
  pipe.put(
      "terminate called\n  what():  shapes cannot be multiplied\n"
      "Exception raised from addmm at Blas.cpp:10 (most recent call first):\n"
      "frame #0: c10::Error::Error\nframe #1: <unknown function>\n\n");
  rank.pump();
  EXPECT_EQ(rank.last_line(), "what():  shapes cannot be multiplied");
}

TEST_F(RankStreamTest, CopiesEveryByteToItsLog) {
  UniqueFd log(::memfd_create("log", MFD_CLOEXEC));
  Pipe pipe;
  auto rank = stream(pipe, Forward::kPrefixedLines, log.get());
  pipe.put("a\rb\nc");
  rank.pump();
  std::array<char, 64> buffer{};
  const ssize_t n = ::pread(log.get(), buffer.data(), buffer.size(), 0);
  EXPECT_EQ(std::string(buffer.data(), n), "a\rb\nc");
}

TEST(AgentStream, KeepsWhatAReaderDoesNotTakeYet) {
  Pipe pipe;
  AgentStream stream(pipe.write.get());
  const std::string line(1023, 'x');
  std::string expected;
  for (int i = 0; i < 1'000; ++i) {
    stream.write(line + "\n", &stream);
    expected += line + "\n";
  }
  EXPECT_FALSE(stream.empty());
  std::string got;
  while (!stream.empty()) {
    got += pipe.take();
    stream.flush();
  }
  got += pipe.take();
  EXPECT_EQ(got, expected);
}

TEST(AgentStream, OutlivesItsReader) {
  ::signal(SIGPIPE, SIG_IGN);
  Pipe pipe;
  AgentStream stream(pipe.write.get());
  pipe.read.reset();
  stream.write("lost\n", &stream);
  EXPECT_TRUE(stream.empty());
  stream.write("lost too\n", &stream);
  EXPECT_TRUE(stream.empty());
  ::signal(SIGPIPE, SIG_DFL);
}

TEST(AgentStream, SaysWhyAFileTakesNoMore) {
  const UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  AgentStream stream(full.get());
  EXPECT_EQ(stream.error(), 0);
  stream.write("lost\n", &stream);
  EXPECT_EQ(stream.error(), ENOSPC);
  EXPECT_TRUE(stream.empty());
}

TEST(AgentStream, LeavesTheFlagsOfItsStreamAlone) {
  Pipe pipe;
  AgentStream stream(pipe.write.get());
  EXPECT_FALSE(::fcntl(pipe.write.get(), F_GETFL) & O_NONBLOCK);
}

}  // namespace
}  // namespace cohort::process
