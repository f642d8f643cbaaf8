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

// A rank whose output is taken as soon as it writes.
class WritingRank {
 public:
  WritingRank(AgentStream& user, Forward forward, int log = -1)
      : stream_(std::move(pipe_.read), user, forward, "[rank 1] ", log) {}

  void write(std::string_view data) {
    pipe_.put(data);
    stream_.pump();
  }
  void end_with(std::string_view data) {
    pipe_.put(data);
    pipe_.write.reset();
    stream_.pump();
  }
  RankStream& stream() { return stream_; }

 private:
  Pipe pipe_;
  RankStream stream_;
};

class RankStreamTest : public testing::Test {
 protected:
  Pipe to_user_;
  AgentStream user_{to_user_.write.get()};
};

TEST_F(RankStreamTest, HoldsALineBackUntilItIsWhole) {
  WritingRank rank(user_, Forward::kWholeLines);
  rank.write("one\ntw");
  EXPECT_EQ(to_user_.take(), "one\n");
  rank.write("o\n");
  EXPECT_EQ(to_user_.take(), "two\n");
}

TEST_F(RankStreamTest, GivesOutAnOpenLineAtTheEnd) {
  WritingRank rank(user_, Forward::kWholeLines);
  rank.end_with("no newline");
  EXPECT_FALSE(rank.stream().open());
  EXPECT_EQ(to_user_.take(), "no newline");
}

TEST_F(RankStreamTest, PrefixesEveryLine) {
  WritingRank(user_, Forward::kPrefixedLines).end_with("a\n\nb");
  EXPECT_EQ(to_user_.take(), "[rank 1] a\n[rank 1] \n[rank 1] b\n");
}

TEST_F(RankStreamTest, LetsAProgressBarMove) {
  WritingRank(user_, Forward::kAsItComes).write("10%\r");
  EXPECT_EQ(to_user_.take(), "10%\r");
}

TEST_F(RankStreamTest, ShowsOnlyTheLastStateOfAnotherRanksBar) {
  WritingRank(user_, Forward::kPrefixedLines).write("10%\r20%\r\n");
  EXPECT_EQ(to_user_.take(), "[rank 1] 20%\n");
}

TEST_F(RankStreamTest, NeverSharesALineWithAnother) {
  WritingRank bar(user_, Forward::kAsItComes);
  WritingRank other(user_, Forward::kPrefixedLines);
  bar.write("50%\r");
  other.write("warning\n");
  EXPECT_EQ(to_user_.take(), "50%\r\n[rank 1] warning\n");
}

TEST_F(RankStreamTest, PassesALineThatNeverEnds) {
  WritingRank rank(user_, Forward::kWholeLines);
  const std::string piece(32 * 1024, 'x');
  for (int i = 0; i < 3; ++i) rank.write(piece);
  std::string got = to_user_.take();
  user_.flush();
  got += to_user_.take();
  EXPECT_EQ(got.size(), 3 * piece.size());
}

TEST_F(RankStreamTest, RemembersTheLastLineWithSomethingInIt) {
  WritingRank rank(user_, Forward::kAsItComes);
  rank.write("first\n  what():  it broke\n\n  \n");
  EXPECT_EQ(rank.stream().last_line(), "what():  it broke");
  rank.write("half a");
  EXPECT_EQ(rank.stream().last_line(), "half a");
}

TEST_F(RankStreamTest, RemembersTheErrorAndNotTheStackBehindIt) {
  WritingRank rank(user_, Forward::kAsItComes);
  rank.write(
      "terminate called\n  what():  shapes cannot be multiplied\n"
      "Exception raised from addmm at Blas.cpp:10 (most recent call first):\n"
      "frame #0: c10::Error::Error\nframe #1: <unknown function>\n\n");
  EXPECT_EQ(rank.stream().last_line(), "what():  shapes cannot be multiplied");
}

TEST_F(RankStreamTest, CopiesEveryByteToItsLog) {
  UniqueFd log(::memfd_create("log", MFD_CLOEXEC));
  WritingRank(user_, Forward::kPrefixedLines, log.get()).write("a\rb\nc");
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
