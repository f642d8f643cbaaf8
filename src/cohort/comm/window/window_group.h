// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cohort/comm/device/device_group.h"
#include "cohort/comm/device/patience.h"
#include "cohort/comm/window/window_memory.h"

namespace cohort::window_backend {

using device_comm::DeviceGroupOptions;

// The device's side of ranks that share one GPU: they pass bytes through windows,
// memory of that GPU that each of them has and all have mapped. No kernel spins, since
// ranks take turns on the GPU, and the host waits for nothing: a lane writes and awaits
// words.
//
// The protocol. A rank writes a post into a half of its window, for all other ranks or
// for one; readers take it. Posts of one writer to one reader (or to all) have numbers
// from 0, and post s lies in half s % 2. Each rank counts on its own, since all make
// the same calls in the same order.
//
//   post s:  wait until every reader has said "taken s - 1" (for s > 1); copy into the
//            half; say "posted s + 1" to every reader
//   read s:  wait for "posted s + 1"; copy or add up; say "taken s + 1" to the writer
//
// Why nobody reads or writes a half too early. "posted s + 1" is written when the copy
// of post s is done, and seen with it (a write of a lane is behind a fence). Counts of
// one pair grow one by one, because the calls of a group follow one another also where
// they are made in different lanes (orders_lanes()): a reader that finds s + 1 or more
// has post s. A post overwrites the one of two before, and waits until each of its
// readers has taken that: "taken s - 1" says that reads 0 to s - 2 are done.
//
// Why nobody waits forever. In each call, post k + 1 of a rank stands in its lane
// before read k, and after read k - 1. So post k + 1 awaits only reads k - 1 of its
// peers, which await only posts k - 1, and what is before them in their lanes: post k
// and reads k - 2. Each thing awaits only what has a smaller number, or is of an
// earlier call. As all ranks make calls in one order, the first that is not over can go
// on. This holds also if a host stops in the middle of a call (to load a kernel, or to
// free memory, both of which may wait for its lane): what is enqueued awaits only what
// peers enqueue before they come to the same place.
//
// An exchange is between those that it names. What goes to one peer in one call, if
// more than two halves, is sent in turns with what is received in that call: then the
// peers must come to receive before this rank's own receives can be over. Up to two
// halves are buffered.
//
// abort(): the host sets all words that this rank waits for to a value above all
// counts, again and again until its lanes are empty, since a peer that has not heard of
// it may write a smaller one. What lanes then compute means nothing, as the group is
// broken.
class WindowGroup final : public device_comm::DeviceGroup {
 public:
  // Collective, as WindowMemory. Of one rank: it needs no memory.
  WindowGroup(std::shared_ptr<WindowDriver> driver, std::shared_ptr<Communicator> host,
              const WindowSizes& sizes, const DeviceGroupOptions& options);
  // In bounded time, whoever of its peers is left.
  ~WindowGroup() override;

  std::unique_ptr<device_comm::DeviceCall> call(const std::string& what,
                                                device_comm::Stream lane) override;
  bool orders_lanes() const override { return false; }

  int rank() const { return host().rank(); }
  int size() const { return host().size(); }
  at::Device device() const { return driver_->device(); }
  int64_t room(int reader) const { return sizes_.of(reader); }

  // In the current lane: what is copied to the half between the two is posted to
  // `reader`, a rank or kAll.
  std::byte* begin_post(int reader);
  void end_post(int reader);

  // In the current lane: the next post of `writer` to all or to this rank is in the
  // half between the two. A rank reads its own posts to all as well.
  const std::byte* begin_read(int writer, int reader);
  void end_read(int writer, int reader);

 private:
  std::string fault() override;
  void on_broken() override;
  bool farewell();
  bool is_all_taken() const;
  uint64_t& posts_to(int reader) { return posts_[static_cast<size_t>(reader + 1)]; }
  uint64_t& reads_of(int writer, int reader) {
    return (reader == kAll ? reads_of_all_
                           : reads_of_one_)[static_cast<size_t>(writer)];
  }
  std::vector<int> readers(int reader) const;

  std::shared_ptr<WindowDriver> driver_;
  WindowSizes sizes_;
  std::unique_ptr<WindowMemory> memory_;
  device_comm::Seldom looks_for_peers_;
  std::vector<uint64_t> posts_;  // to all, then to each rank
  std::vector<uint64_t> reads_of_all_, reads_of_one_;
};

}  // namespace cohort::window_backend
