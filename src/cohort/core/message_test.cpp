// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/message.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>

namespace cohort {
namespace {

class MessageTest : public testing::Test {
 protected:
  MessageTest() {
    int pair[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    here_.reset(pair[0]);
    there_.reset(pair[1]);
  }

  int receive() {
    return receive_message(there_.get(), &head_, sizeof head_, text_, fds_);
  }

  UniqueFd here_, there_;
  int head_ = 0;
  std::string text_;
  std::vector<UniqueFd> fds_;
};

TEST_F(MessageTest, ArrivesWithItsTextAndDescriptors) {
  EXPECT_EQ(receive(), 0);
  const UniqueFd memory(::memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(::write(memory.get(), "kept", 4), 4);
  const int seven = 7, fd = memory.get();
  ASSERT_TRUE(send_message(here_.get(), &seven, sizeof seven, "words", {&fd, 1}));
  ASSERT_EQ(receive(), 1);
  EXPECT_EQ(head_, 7);
  EXPECT_EQ(text_, "words");
  ASSERT_EQ(fds_.size(), 1u);
  char bytes[4];
  ASSERT_EQ(::pread(fds_[0].get(), bytes, 4, 0), 4);
  EXPECT_EQ(std::string(bytes, 4), "kept");
}

TEST_F(MessageTest, IsRefusedWhenItIsTooShortOrTooLong) {
  const char byte = 1;
  ASSERT_TRUE(send_message(here_.get(), &byte, sizeof byte));
  EXPECT_EQ(receive(), -1);
  const int head = 1;
  ASSERT_TRUE(send_message(here_.get(), &head, sizeof head,
                           std::string(kLongestText + 1, 'x')));
  EXPECT_EQ(receive(), -1);
}

TEST_F(MessageTest, SaysThatTheOtherSideIsGone) {
  here_.reset();
  EXPECT_EQ(receive(), -1);
  const int head = 1;
  EXPECT_FALSE(send_message(there_.get(), &head, sizeof head));
}

}  // namespace
}  // namespace cohort
