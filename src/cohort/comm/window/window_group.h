// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cohort/comm/device/device_group.h"
#include "cohort/comm/device/peer_processes.h"
#include "cohort/comm/window/window_memory.h"

namespace cohort::window_backend {

using device_comm::DeviceGroupOptions;

// The device's side of ranks that share one GPU: they pass bytes through windows,
// memory of that GPU that each of them has and all have mapped. No kernel spins, since
// ranks take turns on the GPU, and the host waits for nothing: a lane gives and takes
// words, each of which is 0 or 1.
//
// The protocol. A rank writes a post into a half of its window, for all other ranks or
// for one; readers take it. Posts of one writer to one reader (or to all) have numbers
// from 0 in the order in which they are enqueued or captured, and post s lies in half
// s % 2. Each rank counts on its own, since all make and capture the same calls in the
// same order. A reader and a half have two words: "free" in the page of the writer,
// which is 1 at first, and "posted" in that of the reader.
//
//   post:  take "free" of every reader; copy into the half; give "posted" to each
//   read:  take "posted"; copy or add up; give "free" to the writer
//
// Nothing of this depends on what came before, so it can be captured and replayed. A
// replay uses the halves of its capture, again the same one first: posts do not lie in
// the halves by turns then, but those of a writer and the reads of them are in one
// order still, where ranks replay alike, and where what was sent before a capture or a
// replay is received before it, too.
//
// Why no word is lost. A word is taken by the lanes of its owner alone, and given by
// one peer alone. A peer gives "posted" after it took "free" of that half; the reader
// gave that after it took the last "posted". So a word is 0 when it is given, and
// nothing sets it to 0 but the lane that has found 1. A word is taken by one lane after
// the other, because the calls of a group follow one another also where they are made
// in different lanes (orders_lanes()).
//
// Why nobody reads or writes a half too early. What is given is seen after all that was
// before it in its lane (it is behind a fence). For each half, "free" and "posted"
// alternate: as many posts as reads are begun before the next post is, and the other
// way round.
//
// Why nobody waits forever. In each call, post k + 1 of a rank stands in its lane
// before read k, and after read k - 1, and takes turns with post k in the halves. So
// post k + 1 awaits only reads k - 1 of its peers, or reads of an earlier call, which
// await only posts k - 1, and what is before them in their lanes: post k and reads
// k - 2. Each thing awaits only what has a smaller number, or is of an earlier call. As
// all ranks make calls in one order, the first that is not over can go on. This holds
// also if a host stops in the middle of a call (to load a kernel, or to free memory,
// both of which may wait for its lane): what is enqueued awaits only what peers enqueue
// before they come to the same place.
//
// An exchange is between those that it names. What goes to one peer in one call, if
// more than two halves, is sent in turns with what is received in that call: then the
// peers must come to receive before this rank's own receives can be over. Up to two
// halves are buffered, or one where a replay begins or ends between them.
//
// abort(): the host gives all words that this rank's lanes take, again and again as
// long as the group lives, since they take them again and a replay may yet begin. What
// lanes then compute means nothing, as the group is broken. At its end each rank that
// is left closes what it has of the others, and gives its own window back when they
// have done so, or have ended.
class WindowGroup final : public device_comm::DeviceGroup {
 public:
  // Collective, as WindowMemory. A group of one rank needs no memory.
  WindowGroup(std::shared_ptr<WindowDriver> driver, std::shared_ptr<Communicator> host,
              const WindowSizes& sizes, const DeviceGroupOptions& options);
  // In bounded time, whichever of its peers are left.
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
  // The same of the posts of every rank to all, at once.
  std::vector<const std::byte*> begin_reads();
  void end_reads();

 private:
  void on_broken() override;
  bool farewell();
  void part_broken();
  void part();
  bool is_all_taken() const;
  void release_until_quiet();
  // Ready when no replay of a call is under way.
  std::future<void> replays_end();

  // Which half the next post lies in, and the next to be read.
  int& next_post(int reader) { return next_posts_[static_cast<size_t>(reader + 1)]; }
  int& next_read(int writer, int reader) {
    return (reader == kAll ? next_of_all_ : next_of_one_)[static_cast<size_t>(writer)];
  }
  std::vector<int> readers(int reader) const;
  std::vector<int> others() const;

  std::shared_ptr<WindowDriver> driver_;
  WindowSizes sizes_;
  std::unique_ptr<device_comm::PeerProcesses> processes_;
  std::unique_ptr<WindowMemory> memory_;
  std::vector<int> next_posts_;  // to all, then to each rank
  std::vector<int> next_of_all_, next_of_one_;
  bool has_captured_ = false;
  std::jthread releaser_;  // ends the waits of a broken group
};

}  // namespace cohort::window_backend
