// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/window/window_memory.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <tuple>

#include "cohort/comm/device/device_group.h"
#include "cohort/comm/gather_records.h"
#include "cohort/comm/peer_memory.h"
#include "cohort/core/error.h"

namespace cohort::window_backend {
namespace {

constexpr int kWordKinds = 5, kHalves = 2;

// The lane may have work to do before it comes to the word.
constexpr auto kTryPatience = std::chrono::seconds(20);

void store(uint64_t* word, uint64_t value) {
  std::atomic_ref(*word).store(value, std::memory_order_release);
}

std::string trouble_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {
    const std::string line = device_comm::first_line_of(error.what());
    return line.empty() ? "no reason given" : line;
  }
  return "";
}

int place_of(int size, Word kind, int peer, int half) {
  return (static_cast<int>(kind) * kHalves + half) * size + peer;
}

}  // namespace

// What a rank tells its peers while windows are made.
struct WindowMemory::Card {
  std::string trouble, identity, invitation;

  friend auto record_fields(Alike<Card> auto& card) {
    return std::tie(card.trouble, card.identity, card.invitation);
  }
};

WindowMemory::WindowMemory(std::shared_ptr<WindowDriver> driver,
                           std::shared_ptr<Communicator> host, const WindowSizes& sizes)
    : driver_(std::move(driver)),
      host_(std::move(host)),
      sizes_(sizes),
      rank_(host_->rank()),
      size_(host_->size()),
      words_(static_cast<size_t>(size_)),
      windows_(static_cast<size_t>(size_)) {
  page_ = host_->allocate({static_cast<int64_t>(page_bytes() / 8)}, at::kLong);
  pages_ = dynamic_cast<PeerMemory&>(*host_).map_peers(page_);
  free_halves();
  Card card;
  card.trouble = prepare(card);
  const auto cards = exchange(card);
  try {
    agree(cards);
    card.trouble = open_all(cards);
    agree(exchange(card));
  } catch (const ConfigError&) {
    close_all();
    host_->barrier().wait();  // so that nobody has this rank's window open
    if (windows_[rank_]) driver_->release(windows_[rank_]);
    windows_[rank_] = nullptr;
    throw;
  }
}

WindowMemory::~WindowMemory() {
  if (windows_[rank_]) new Tensor(page_);  // it is never freed
}

std::string WindowMemory::prepare(Card& card) {
  return trouble_of([&] {
    card.identity = driver_->identity();
    windows_[rank_] = static_cast<std::byte*>(driver_->allocate(window_bytes()));
    card.invitation = driver_->invitation_to(windows_[rank_]);
    for (int r = 0; r < size_; ++r) {
      auto* const page = static_cast<uint64_t*>(pages_[r].mutable_data_ptr());
      words_[r] = driver_->map(page, page_bytes());
    }
    try_words();
  });
}

// Devices differ in what they can; here one that only says so is found out. The word is
// one that nobody waits for.
void WindowMemory::try_words() {
  uint64_t* const tried[] = {word(rank_, Word::kClosed, rank_, 0)};
  driver_->give(tried);
  await_tried(true);
  driver_->take(tried);
  await_tried(false);
}

void WindowMemory::await_tried(bool set) const {
  const auto deadline = std::chrono::steady_clock::now() + kTryPatience;
  while (is_set(Word::kClosed, rank_, 0) != set) {
    if (std::chrono::steady_clock::now() > deadline)
      throw ConfigError("a word that the GPU has written does not come");
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

std::string WindowMemory::open_all(const std::vector<Card>& cards) {
  return trouble_of([&] {
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      if (cards[r].invitation.size() != cards[rank_].invitation.size())
        throw ConfigError(text("rank ", r, " sent no invitation to its window"));
      windows_[r] = static_cast<std::byte*>(driver_->open(cards[r].invitation));
    }
  });
}

std::vector<WindowMemory::Card> WindowMemory::exchange(const Card& card) {
  return gather_records(
      text_exchange(*host_), card,
      text("[comm.", host_->backend(), "] windows on the GPU: a peer's card"));
}

void WindowMemory::agree(const std::vector<Card>& cards) {
  for (int r = 0; r < size_; ++r) {
    if (!cards[r].trouble.empty())
      throw ConfigError(text("[comm.", host_->backend(), "] windows on the GPU: rank ",
                             r, ": ", cards[r].trouble));
    if (cards[r].identity != cards[0].identity)
      throw ConfigError(text("[comm.", host_->backend(), "] windows on the GPU: rank ",
                             r, " is on another GPU than rank 0; legal: one for all"));
  }
}

int64_t WindowMemory::pairs_before(int writer, int reader) const {
  return reader < writer ? reader : reader - 1;
}

size_t WindowMemory::window_bytes() const {
  return static_cast<size_t>(2 * (sizes_.for_all + (size_ - 1) * sizes_.for_one));
}

size_t WindowMemory::page_bytes() const {
  return static_cast<size_t>(kWordKinds * kHalves * size_) * sizeof(uint64_t);
}

std::byte* WindowMemory::half(int writer, int reader, int half) const {
  std::byte* at = windows_[writer];
  if (reader != kAll)
    at += 2 * (sizes_.for_all + pairs_before(writer, reader) * sizes_.for_one);
  return at + half * sizes_.of(reader);
}

uint64_t* WindowMemory::word(int owner, Word kind, int peer, int half) const {
  return words_[owner] + place_of(size_, kind, peer, half);
}

uint64_t* WindowMemory::host_word(int owner, Word kind, int peer, int half) const {
  auto* const page = static_cast<uint64_t*>(pages_[owner].mutable_data_ptr());
  return page + place_of(size_, kind, peer, half);
}

void WindowMemory::free_halves() {
  for (const Word kind : {Word::kFreeForAll, Word::kFreeForOne})
    for (int r = 0; r < size_; ++r)
      for (int half = 0; half < kHalves; ++half)
        store(host_word(rank_, kind, r, half), 1);
}

void WindowMemory::release_waits() {
  uint64_t* const first = host_word(rank_, Word{}, 0, 0);
  uint64_t* const end = host_word(rank_, Word::kClosed, 0, 0);
  for (uint64_t* word = first; word < end; ++word) store(word, 1);
}

// What cannot be closed, of a process that is gone, is nobody's any more.
void WindowMemory::close_all() {
  for (int r = 0; r < size_; ++r) {
    void* const window = r == rank_ ? nullptr : std::exchange(windows_[r], nullptr);
    if (window) trouble_of([&] { driver_->close(window); });
    if (std::exchange(words_[r], nullptr))
      trouble_of([&] {
        driver_->unmap(static_cast<uint64_t*>(pages_[r].mutable_data_ptr()));
      });
  }
}

bool WindowMemory::is_set(Word kind, int peer, int half) const {
  const std::atomic_ref word(*host_word(rank_, kind, peer, half));
  return word.load(std::memory_order_acquire) != 0;
}

bool WindowMemory::is_closed_by_all(
    const std::function<bool(int peer)>& is_gone) const {
  for (int r = 0; r < size_; ++r)
    if (r != rank_ && !is_set(Word::kClosed, r, 0) && !is_gone(r)) return false;
  return true;
}

void WindowMemory::part(const std::function<bool()>& gives_up,
                        const std::function<bool(int peer)>& is_gone) {
  close_all();
  // A peer's page is there until it has this word, which is the last one that it gets.
  for (int r = 0; r < size_; ++r)
    if (r != rank_) store(host_word(r, Word::kClosed, rank_, 0), 1);
  while (!is_closed_by_all(is_gone)) {
    if (gives_up()) return;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  driver_->release(std::exchange(windows_[rank_], nullptr));
}

}  // namespace cohort::window_backend
