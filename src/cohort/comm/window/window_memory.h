// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "cohort/comm/window/window_driver.h"
#include "cohort/communicator.h"

namespace cohort::window_backend {

// The reader of a post that is for all ranks but its writer.
constexpr int kAll = -1;

// Bytes of one half: of what a rank posts to all, and to one other rank.
struct WindowSizes {
  int64_t for_all = int64_t{32} << 20;
  int64_t for_one = int64_t{8} << 20;

  int64_t of(int reader) const { return reader == kAll ? for_all : for_one; }
};

// What a rank waits for: a word for each peer and each of two halves, 0 or 1. The last
// has no halves, and is the host's.
enum class Word { kPostedToAll, kFreeForAll, kPostedToOne, kFreeForOne, kClosed };

// The window of each rank of a group, memory of one device that all of them have
// mapped, and a page of words of each rank, memory of the host that all have mapped.
//
// A window has two halves for posts to all, and two for posts to each other rank. A
// rank waits for words of its own page alone; its peers write them. So a rank that
// gives up changes its own page, and nobody else's.
class WindowMemory {
 public:
  // Collective, over `host`, whose ranks share memory. Where a rank cannot, or is on
  // another device, ConfigError on every rank; the group of the host stays as it was.
  WindowMemory(std::shared_ptr<WindowDriver> driver, std::shared_ptr<Communicator> host,
               const WindowSizes& sizes);
  // What part() has not given back stays until the process ends: a peer may use it.
  ~WindowMemory();
  WindowMemory(const WindowMemory&) = delete;
  WindowMemory& operator=(const WindowMemory&) = delete;

  WindowDriver& driver() { return *driver_; }
  const WindowSizes& sizes() const { return sizes_; }

  // Where `writer` posts to `reader`.
  std::byte* half(int writer, int reader, int half) const;
  // As lanes have it.
  uint64_t* word(int owner, Word kind, int peer, int half) const;

  // What this rank's page has, as the host sees it.
  bool is_set(Word kind, int peer, int half) const;

  // Lets all that this rank's lanes wait for now go on; what they take they wait for
  // again. By the host, from any thread.
  void release_waits();

  // This rank uses nothing of its peers any more, and has waited for all that it was to
  // wait for. Gives its own memory back if its peers say the same or are gone, and
  // leaves it where that is not to be waited for any more.
  void part(const std::function<bool()>& gives_up,
            const std::function<bool(int peer)>& is_gone);

 private:
  struct Card;

  int64_t pairs_before(int writer, int reader) const;
  size_t window_bytes() const;
  size_t page_bytes() const;
  uint64_t* host_word(int owner, Word kind, int peer, int half) const;
  void free_halves();

  // What they throw is returned, to be told to all.
  std::string prepare(Card& card);
  void try_words();
  void await_tried(bool set) const;
  std::string open_all(const std::vector<Card>& cards);
  std::vector<Card> exchange(const Card& card);
  void agree(const std::vector<Card>& cards);
  void close_all();
  bool is_closed_by_all(const std::function<bool(int peer)>& is_gone) const;

  std::shared_ptr<WindowDriver> driver_;
  std::shared_ptr<Communicator> host_;
  WindowSizes sizes_;
  int rank_, size_;
  Tensor page_;                      // this rank's
  std::vector<Tensor> pages_;        // as the host has them
  std::vector<uint64_t*> words_;     // as lanes have them; null: not mapped
  std::vector<std::byte*> windows_;  // null: not open
};

}  // namespace cohort::window_backend
