// SPDX-License-Identifier: Apache-2.0
// Transfers of two ranks in one thread, which takes turns between the two where the order
// of their steps matters: inside a pass of one over all of its transfers.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>
#include <set>

#include "cohort/comm/shared_memory/control_block.h"
#include "cohort/comm/shared_memory/shared_group.h"
#include "cohort/tensor.h"

namespace cohort::shared_memory {
namespace {

// Peers see what was allocated here and what was said to be shown, and nothing else.
// `on_use` runs whenever a rank asks for an address.
class TurnsMemory final : public SharedMemory {
 public:
  std::string name() const override { return "turns"; }
  void* allocate(size_t bytes) override {
    auto block = at::zeros({static_cast<int64_t>(bytes)}, at::kByte);
    void* const data = block.data_ptr();
    blocks_[data] = block;
    shown_.insert(data);
    return data;
  }
  void release(void* block) override { blocks_.erase(block); }
  Address address_of(const void* data, size_t) const override {
    if (on_use) on_use(data);
    return shown_.contains(data) ? reinterpret_cast<Address>(data) : 0;
  }
  void* at(Address address) const override {
    if (on_use) on_use(reinterpret_cast<void*>(address));
    return reinterpret_cast<void*>(address);
  }
  int pid_of(int) const override { return 0; }
  bool is_gone(int) const override { return false; }

  void show(const Tensor& tensor) { shown_.insert(tensor.data_ptr()); }

  std::function<void(const void*)> on_use;

 private:
  std::map<void*, Tensor> blocks_;
  std::set<const void*> shown_;
};

// Rank 0 sends tensors to rank 1.
struct Pair {
  Pair() {
    auto* control = static_cast<std::byte*>(memory->allocate(ControlLayout(2).bytes()));
    for (int rank = 0; rank < 2; ++rank) {
      groups.push_back(
          std::make_shared<SharedGroup>(GroupSpec{.memory = memory,
                                                  .control = control,
                                                  .owns_control = rank == 0,
                                                  .rank = rank,
                                                  .timeout = std::chrono::seconds(20),
                                                  .world_ranks = {0, 1},
                                                  .world = nullptr}));
    }
  }

  // The next transfer; true for a side whose memory the other one sees.
  void add(int64_t numel, bool shows_sent, bool shows_received) {
    sent.push_back(at::full({numel}, static_cast<double>(sent.size() + 1)));
    received.push_back(at::zeros({numel}));
    if (shows_sent) memory->show(sent.back());
    if (shows_received) memory->show(received.back());
  }

  void start_sends(size_t begin, size_t end) {
    ids[0].push_back(groups[0]->exchange(list(sent, begin, end, 1), {}));
  }
  void start_receives(size_t begin, size_t end) {
    ids[1].push_back(groups[1]->exchange({}, list(received, begin, end, 0)));
  }
  static std::vector<Transfer> list(const std::vector<Tensor>& tensors, size_t begin,
                                    size_t end, int peer) {
    std::vector<Transfer> transfers;
    for (size_t i = begin; i < end; ++i) transfers.push_back({peer, tensors[i]});
    return transfers;
  }

  void poll(int rank) {
    for (const uint64_t id : ids[rank]) groups[rank]->poll_exchange(id);
  }
  // Takes turns until nothing is on its way; every transfer takes a few at most.
  void finish() {
    memory->on_use = nullptr;
    for (size_t turn = 0; turn < 20 * sent.size(); ++turn) poll(turn % 2);
    for (int rank = 0; rank < 2; ++rank) {
      for (const uint64_t id : ids[rank]) ASSERT_TRUE(groups[rank]->poll_exchange(id));
      groups[rank]->check_usable();
    }
    for (size_t i = 0; i < sent.size(); ++i) {
      EXPECT_TRUE(at::equal(received[i], sent[i])) << "transfer " << i;
    }
  }

  std::shared_ptr<TurnsMemory> memory = std::make_shared<TurnsMemory>();
  std::vector<std::shared_ptr<SharedGroup>> groups;
  std::vector<Tensor> sent, received;
  std::vector<uint64_t> ids[2];
};

// The ticket of transfer 8 goes where that of transfer 0 was: once both sides are done
// with it. The sender is done with a staged transfer before the receiver is.
TEST(ExchangeTest, AReceiverKeepsATicketThatOnlyTheSenderIsDoneWith) {
  Pair pair;
  pair.add(3, false, false);
  for (int i = 1; i < 8; ++i) pair.add(3, false, true);
  pair.add(3, false, true);
  pair.memory->on_use = [&](const void* data) {
    if (data != pair.received[1].data_ptr()) return;
    pair.memory->on_use = nullptr;
    pair.start_sends(0, 1);
  };
  pair.start_receives(0, 9);
  pair.start_sends(1, 9);
  pair.finish();
}

// And the receiver, with one that it copied from the sender's memory, before the sender.
TEST(ExchangeTest, ASenderKeepsATicketThatOnlyTheReceiverIsDoneWith) {
  Pair pair;
  for (int i = 0; i < 8; ++i) pair.add(3, true, false);
  pair.add(3, false, false);
  pair.memory->on_use = [&](const void* data) {
    if (data != pair.sent[1].data_ptr()) return;
    pair.memory->on_use = nullptr;
    pair.start_receives(0, 1);
  };
  pair.start_sends(0, 9);
  pair.start_receives(1, 9);
  pair.finish();
}

TEST(ExchangeTest, DataAreRightWhereverTheOtherRankTakesItsTurn) {
  constexpr size_t kTransfers = 30;
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    Pair pair;
    for (size_t i = 0; i < kTransfers; ++i) {
      // In the staged form 40,000 floats take two chunks, 100,000 wait for the receiver.
      constexpr int64_t kSizes[] = {0, 1, 100, 40'000, 100'000};
      const int64_t numel = kSizes[random() % 10 < 8 ? random() % 3 : random() % 5];
      pair.add(numel, random() % 2 == 0, random() % 2 == 0);
    }
    size_t started[2] = {0, 0};
    bool inside = false;
    const auto take_turn = [&](int rank) {
      if (started[rank] < kTransfers && random() % 2 == 0) {
        const size_t begin = started[rank];
        started[rank] = std::min(kTransfers, begin + 1 + random() % 12);
        rank == 0 ? pair.start_sends(begin, started[0])
                  : pair.start_receives(begin, started[1]);
      } else {
        pair.poll(rank);
      }
    };
    int turn = 0;
    pair.memory->on_use = [&](const void*) {
      if (inside || random() % 3 != 0) return;
      inside = true;
      take_turn(1 - turn);
      inside = false;
    };
    while (started[0] < kTransfers || started[1] < kTransfers) {
      turn = static_cast<int>(random() % 2);
      take_turn(turn);
    }
    pair.finish();
    if (testing::Test::HasFailure()) break;
  }
}

}  // namespace
}  // namespace cohort::shared_memory
