// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/snapshots.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "cohort/core/error.h"
#include "cohort/core/unique_fd.h"
#include "cohort/train/testing_backup.h"

namespace cohort {
namespace {

using test::FakeAgent;
using testing::HasSubstr;

std::vector<StatePiece> state_of(double shift, int rank = 0, int size = 1) {
  return test::shard(test::some_state(shift), rank, size);
}

// What another holder of the descriptor sees.
std::shared_ptr<SnapshotPages> again(const SnapshotPages& pages) {
  return SnapshotPages::map(::fcntl(pages.fd(), F_DUPFD_CLOEXEC, 0));
}

TEST(SnapshotPages, GiveBackWhatWasWrittenToWhoeverMapsThem) {
  const auto pieces = state_of(2, 1, 3);
  const auto plan = plan_snapshot(pieces);
  const auto pages = SnapshotPages::create(plan.total_bytes());
  pages->warm(0, pages->bytes());
  EXPECT_FALSE(pages->title());
  ASSERT_TRUE(pages->write({.step = 7, .generation = 2, .world = 3, .rank = 1},
                           test::at_step(7), plan, pieces));
  const auto other = again(*pages);
  const auto title = other->title();
  ASSERT_TRUE(title);
  EXPECT_EQ(title->step, 7);
  EXPECT_EQ(title->generation, 2);
  EXPECT_EQ(title->world, 3);
  EXPECT_EQ(title->rank, 1);
  EXPECT_EQ(other->run().state, test::at_step(7).state);
  const auto back = other->pieces();
  ASSERT_EQ(back.size(), pieces.size());
  for (size_t i = 0; i < back.size(); ++i) {
    EXPECT_EQ(back[i].tensor.spec.name, pieces[i].tensor.spec.name);
    EXPECT_EQ(back[i].tensor.spec.begin, pieces[i].tensor.spec.begin);
    EXPECT_EQ(back[i].tensor.order, pieces[i].tensor.order);
    EXPECT_TRUE(at::equal(back[i].data, pieces[i].data));
  }
}

TEST(SnapshotPages, KeepPiecesOfAnyLengthApart) {
  for (const int64_t bytes : {1, 63, 64, 65, 129}) {
    std::vector<StatePiece> pieces;
    for (const auto name : {"a", "b"}) {
      StatePiece piece;
      piece.tensor.spec = {.name = name, .shape = {bytes}, .dtype = at::kByte};
      piece.tensor.spec.end = bytes;
      piece.data = at::full({bytes}, name[0], at::kByte);
      pieces.push_back(std::move(piece));
    }
    const auto plan = plan_snapshot(pieces);
    const auto pages = SnapshotPages::create(plan.total_bytes());
    ASSERT_TRUE(pages->write({.step = 1, .world = 1}, test::at_step(1), plan, pieces));
    const auto back = again(*pages)->pieces();
    ASSERT_EQ(back.size(), 2u);
    for (size_t i = 0; i < 2; ++i)
      EXPECT_TRUE(at::equal(back[i].data, pieces[i].data)) << bytes;
  }
}

// More than any process can map, though a file may be as long.
TEST(SnapshotPages, ThatTheSystemCannotGiveAreAnError) {
  EXPECT_THROW(SnapshotPages::create(int64_t{1} << 60), CheckpointError);
}

// Pages come from the rank that had them before: a place outside them is nobody's.
TEST(SnapshotPages, WithPiecesOutsideThemAreRefused) {
  const auto pieces = state_of(0);
  const auto good = plan_snapshot(pieces);
  const auto pages = SnapshotPages::create(good.total_bytes());
  const std::string chunk = "[0,231,0,0,";
  ASSERT_NE(good.tables.find(chunk), std::string::npos) << good.tables;
  for (const char* bad : {"[0,231,0,1099511627776,", "[0,231,0,-64,", "[0,231,0,2,",
                          "[0,4611686018427387904,0,0,", "[231,0,0,0,", "[-1,0,0,0,"}) {
    SnapshotPlan plan = good;
    plan.tables.replace(plan.tables.find(chunk), chunk.size(), bad);
    ASSERT_TRUE(pages->write({.step = 7}, test::at_step(7), plan, pieces));
    ASSERT_TRUE(pages->title());
    EXPECT_THROW((void)pages->pieces(), CheckpointError) << bad;
  }
}

TEST(SnapshotPages, OfWhichAnyByteOfTheTextIsAnotherAreNotTaken) {
  const auto pieces = state_of(0);
  const auto plan = plan_snapshot(pieces);
  const auto pages = SnapshotPages::create(plan.total_bytes());
  ASSERT_TRUE(pages->write({.step = 7}, test::at_step(7), plan, pieces));
  auto* const bytes = static_cast<char*>(::mmap(
      nullptr, pages->bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, pages->fd(), 0));
  // The header, and some of the text.
  const auto end = 4096 + static_cast<int64_t>(plan.tables.size());
  for (int64_t at = 0; at < end; at += at < 88 ? 1 : 37) {
    if (at >= 80 && at < 4096) continue;  // behind the header there is nothing
    bytes[at] ^= 0x10;
    EXPECT_FALSE(pages->title()) << at;
    bytes[at] ^= 0x10;
  }
  EXPECT_TRUE(pages->title());
  pages->clear();
  EXPECT_FALSE(again(*pages)->title());
  ::munmap(bytes, pages->bytes());
}

// Tries the first, the last and some other byte of every piece. The large one is more
// than one stretch of what is hashed at once.
TEST(SnapshotPages, OfWhichAnyByteOfTheDataIsAnotherSaySo) {
  auto pieces = state_of(0);
  const Tensor large = at::arange((3 << 18) + 5, at::kFloat);
  pieces.push_back(
      {{.spec = spec_of("large", large), .kind = TensorKind::kBuffer}, large});
  const auto plan = plan_snapshot(pieces);
  const auto pages = SnapshotPages::create(plan.total_bytes());
  ASSERT_TRUE(pages->write({.step = 7, .rank = 2}, test::at_step(7), plan, pieces));
  EXPECT_EQ(pages->damage(), "");
  for (const auto& piece : again(*pages)->pieces()) {
    auto* const bytes = static_cast<char*>(piece.data.data_ptr());
    const auto size = static_cast<int64_t>(piece.data.nbytes());
    if (size == 0) continue;
    for (const int64_t at : {int64_t{0}, size / 2, size - 1}) {
      bytes[at] ^= 0x10;
      EXPECT_EQ(pages->damage(),
                "[train.snapshot] rank 2's part of step 7 has changed by itself in "
                "memory")
          << piece.tensor.spec.name << " " << at;
      EXPECT_TRUE(pages->title()) << "its title is whole";
      bytes[at] ^= 0x10;
    }
  }
  EXPECT_EQ(pages->damage(), "");
}

// As if two stretches had changed places.
TEST(SnapshotPages, WhoseDataLieElsewhereSaySo) {
  Tensor large = at::zeros({2 << 18});
  large.narrow(0, 0, 1 << 18).fill_(1);
  const std::vector<StatePiece> pieces{
      {{.spec = spec_of("large", large), .kind = TensorKind::kBuffer}, large}};
  const auto plan = plan_snapshot(pieces);
  const auto pages = SnapshotPages::create(plan.total_bytes());
  ASSERT_TRUE(pages->write({.step = 7}, test::at_step(7), plan, pieces));
  pages->pieces()[0].data.copy_(1 - large);
  EXPECT_THAT(pages->damage(), HasSubstr("changed by itself"));
}

TEST(SnapshotPages, ThatAreTooSmallStayAsTheyAre) {
  const auto pieces = state_of(0);
  const auto plan = plan_snapshot(pieces);
  const auto pages = SnapshotPages::create(4096);
  EXPECT_FALSE(pages->write({.step = 7}, test::at_step(7), plan, pieces));
  EXPECT_EQ(SnapshotPages::map(::memfd_create("empty", MFD_CLOEXEC)), nullptr);
}

class SnapshotsTest : public testing::Test {
 protected:
  // Slots of a rank of a world whose peers are not asked.
  std::unique_ptr<Snapshots> rank(int rank, int world, int64_t generation = 0) {
    auto one = std::make_unique<Snapshots>(&agent_, 2);
    one->begin({.generation = generation, .world = world, .rank = rank},
               state_of(0, rank, world));
    one->warm_up();
    return one;
  }
  void take(Snapshots& from, int rank, int world, int64_t step) {
    ASSERT_TRUE(from.take(test::at_step(step),
                          state_of(static_cast<double>(step), rank, world)));
  }
  std::vector<int64_t> whole_steps(const Snapshots& any) const {
    std::vector<int64_t> steps;
    for (const auto& title : any.found().whole()) steps.push_back(title.step);
    return steps;
  }

  FakeAgent agent_;
};

TEST_F(SnapshotsTest, CountOnlyWhenEveryRankHasCompletedIts) {
  const auto first = rank(0, 2), second = rank(1, 2);
  take(*first, 0, 2, 10);
  EXPECT_THAT(whole_steps(*first), testing::ElementsAre());
  take(*second, 1, 2, 10);
  EXPECT_THAT(whole_steps(*first), testing::ElementsAre(10));
  take(*first, 0, 2, 20);
  EXPECT_THAT(whole_steps(*second), testing::ElementsAre(10));
  take(*second, 1, 2, 20);
  EXPECT_THAT(whole_steps(*second), testing::ElementsAre(20, 10));
}

TEST_F(SnapshotsTest, FillAnyCutAndNameWhatIsMissing) {
  const auto first = rank(0, 2), second = rank(1, 2);
  take(*first, 0, 2, 10);
  take(*second, 1, 2, 10);
  const auto kept = first->found();
  for (int size : {1, 3})
    for (int r = 0; r < size; ++r) {
      const auto wanted = state_of(10, r, size);
      auto pieces = state_of(-1, r, size);
      ASSERT_EQ(kept.fill(kept.whole()[0], pieces), "");
      for (size_t i = 0; i < pieces.size(); ++i)
        EXPECT_TRUE(at::equal(pieces[i].data, wanted[i].data));
    }
  auto strange = state_of(0);
  strange[0].tensor.spec.name = "who";
  EXPECT_THAT(kept.fill(kept.whole()[0], strange), HasSubstr("elements of who"));
  EXPECT_THAT(kept.fill({.step = 11}, strange), HasSubstr("step 11 is not kept"));
}

// Each part has tensors that are wanted and others that are not.
TEST_F(SnapshotsTest, FillPiecesOfSeveralCuts) {
  const auto first = rank(0, 3), second = rank(1, 3), third = rank(2, 3);
  take(*first, 0, 3, 10);
  take(*second, 1, 3, 10);
  take(*third, 2, 3, 10);
  auto pieces = state_of(-1, 0, 3);
  auto wanted = state_of(10, 0, 3);
  pieces[1] = state_of(-1, 2, 3)[1];
  wanted[1] = state_of(10, 2, 3)[1];
  const auto kept = first->found();
  ASSERT_EQ(kept.fill(kept.whole()[0], pieces), "");
  for (size_t i = 0; i < pieces.size(); ++i)
    EXPECT_TRUE(at::equal(pieces[i].data, wanted[i].data)) << i;
}

// A rank that does not read the damaged part does not care.
TEST_F(SnapshotsTest, WithDamagedDataAreNotTaken) {
  const auto first = rank(0, 3), second = rank(1, 3), third = rank(2, 3);
  take(*first, 0, 3, 10);
  take(*second, 1, 3, 10);
  take(*third, 2, 3, 10);
  for (const auto& [name, fd] : agent_.held()) {
    const auto pages = SnapshotPages::map(fd);
    if (const auto title = pages->title(); title && title->rank == 1)
      pages->pieces().front().data.view({-1})[0] += 1;
  }
  const auto kept = first->found();
  const auto title = kept.whole().at(0);
  for (const int r : {0, 1, 2}) {
    const auto pieces = state_of(-1, r, 3);
    EXPECT_THAT(kept.fill(title, pieces),
                r == 1 ? HasSubstr("rank 1's part of step 10 has changed by itself")
                       : testing::Matcher<std::string>(""))
        << r;
  }
  EXPECT_THAT(kept.fill(title, state_of(-1)), HasSubstr("rank 1's part of step 10"));
}

// Rank 1 dies while it copies step 20. Its successor must not let the others overwrite
// step 10 before all have a newer one.
TEST_F(SnapshotsTest, TheNewestWholeOneIsNeverOverwritten) {
  {
    const auto first = rank(0, 2), second = rank(1, 2);
    for (const int64_t step : {0, 10}) {
      take(*first, 0, 2, step);
      take(*second, 1, 2, step);
    }
    take(*first, 0, 2, 20);
    second->take(test::at_step(20), state_of(20, 1, 2))->clear();
  }
  const auto first = rank(0, 2, 1), second = rank(1, 2, 1);
  EXPECT_THAT(whole_steps(*first), testing::ElementsAre(10));
  take(*first, 0, 2, 30);
  EXPECT_THAT(whole_steps(*first), testing::ElementsAre(10));
  take(*second, 1, 2, 30);
  EXPECT_THAT(whole_steps(*first), testing::ElementsAre(30, 10));
}

// Takes one snapshot after the other, each full of its step, until it is killed.
[[noreturn]] void take_for_ever(int slot_fds[2], int told) {
  FakeAgent agent;
  for (int slot : {0, 1}) agent.hold(text("snapshot.0.", slot), slot_fds[slot]);
  Snapshots snapshots(&agent, 2);
  auto pieces = state_of(0);
  snapshots.begin({}, pieces);
  for (int64_t step = 1;; ++step) {
    for (auto& piece : pieces) piece.data.fill_(step % 100);
    (void)snapshots.take(test::at_step(step), pieces);
    if (step == 3 && ::write(told, "x", 1) != 1) ::_exit(1);
  }
}

TEST_F(SnapshotsTest, AKillAtAnyInstantLeavesAWholeOne) {
  const int64_t bytes = plan_snapshot(state_of(0)).total_bytes();
  for (int kill = 0; kill < 20; ++kill) {
    const auto first = SnapshotPages::create(bytes),
               second = SnapshotPages::create(bytes);
    int slot_fds[2] = {first->fd(), second->fd()}, pipe[2];
    ASSERT_EQ(::pipe(pipe), 0);
    const pid_t child = ::fork();
    if (child == 0) take_for_ever(slot_fds, pipe[1]);
    ::close(pipe[1]);
    char byte = 0;
    EXPECT_EQ(::read(pipe[0], &byte, 1), 1);
    ::usleep(137 * kill);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ::close(pipe[0]);
    const SnapshotSet kept({first, second});
    const auto whole = kept.whole();
    ASSERT_FALSE(whole.empty());
    auto pieces = state_of(0);
    ASSERT_EQ(kept.fill(whole[0], pieces), "");
    for (const auto& piece : pieces) {
      EXPECT_TRUE(piece.data.eq(piece.data.new_full({}, whole[0].step % 100))
                      .all()
                      .item<bool>())
          << piece.tensor.spec.name;
    }
  }
}

TEST_F(SnapshotsTest, APartThatIsBeingReadIsNotOverwritten) {
  Snapshots snapshots(nullptr, 3);
  snapshots.begin({}, state_of(0));
  snapshots.warm_up();
  const auto read = snapshots.take(test::at_step(1), state_of(1));
  for (int64_t step = 2; step < 7; ++step)
    ASSERT_TRUE(snapshots.take(test::at_step(step), state_of(0)));
  EXPECT_EQ(read->title()->step, 1);
}

TEST_F(SnapshotsTest, OfRanksThatAreGoneForGoodAreLetGoWhenThereIsANewerOne) {
  {
    const auto first = rank(0, 2), second = rank(1, 2);
    take(*first, 0, 2, 10);
    take(*second, 1, 2, 10);
  }
  const auto bytes_of_rank_1 = [&] {
    int64_t bytes = 0;
    for (const auto& [name, fd] : agent_.held()) {
      const UniqueFd kept(fd);
      if (name.starts_with("snapshot.1.")) bytes += ::lseek(kept.get(), 0, SEEK_END);
    }
    return bytes;
  };
  const auto alone = rank(0, 1, 1);
  take(*alone, 0, 1, 20);
  EXPECT_THAT(whole_steps(*alone), testing::ElementsAre(20, 10));
  EXPECT_GT(bytes_of_rank_1(), 0);
  take(*alone, 0, 1, 30);
  EXPECT_THAT(whole_steps(*alone), testing::ElementsAre(30, 20));
  EXPECT_EQ(bytes_of_rank_1(), 0);
}

TEST_F(SnapshotsTest, OfAnotherSizeReplaceTheOldOnesOneByOne) {
  const auto whole = rank(0, 1);
  take(*whole, 0, 1, 10);
  const auto half = std::make_unique<Snapshots>(&agent_, 2);
  auto large = state_of(0);
  large.push_back(
      {{.spec = spec_of("large", at::zeros({1 << 20})), .kind = TensorKind::kBuffer},
       at::zeros({1 << 20})});
  half->begin({.generation = 1}, large);
  EXPECT_GT(half->wanted_bytes(), half->held_bytes());
  half->warm_up();
  ASSERT_TRUE(half->take(test::at_step(20), large));
  EXPECT_THAT(whole_steps(*half), testing::ElementsAre(20, 10));
  ASSERT_TRUE(half->take(test::at_step(30), large));
  EXPECT_THAT(whole_steps(*half), testing::ElementsAre(30, 20));
}

}  // namespace
}  // namespace cohort
