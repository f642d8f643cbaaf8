// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/window/window_group.h"

#include <algorithm>
#include <exception>
#include <system_error>

#include "cohort/comm/device/patience.h"
#include "cohort/comm/window/window_call.h"
#include "cohort/core/error.h"

namespace cohort::window_backend {
namespace {

using namespace std::chrono_literals;
using device_comm::kEndPatience;

// How long a rank waits at the end for its peers to let go of its window.
constexpr auto kPartPatience = 2s;

constexpr auto kBetweenReleases = 100us;

Word posted(int reader) {
  return reader == kAll ? Word::kPostedToAll : Word::kPostedToOne;
}

Word is_free(int reader) {
  return reader == kAll ? Word::kFreeForAll : Word::kFreeForOne;
}

void turn(int& half) { half = 1 - half; }

}  // namespace

WindowGroup::WindowGroup(std::shared_ptr<WindowDriver> driver,
                         std::shared_ptr<Communicator> host, const WindowSizes& sizes,
                         const DeviceGroupOptions& options)
    : DeviceGroup(host, text("comm.", host->backend()), options),
      driver_(std::move(driver)),
      sizes_(sizes),
      next_posts_(static_cast<size_t>(host->size() + 1)),
      next_of_all_(static_cast<size_t>(host->size())),
      next_of_one_(static_cast<size_t>(host->size())) {
  if (host->size() == 1) return;
  processes_ = std::make_unique<device_comm::PeerProcesses>(*host);
  memory_ = std::make_unique<WindowMemory>(driver_, std::move(host), sizes);
}

WindowGroup::~WindowGroup() {
  if (!memory_) return;
  if (!is_broken()) {
    if (std::uncaught_exceptions() == 0 && farewell()) return;
    on_broken();
  }
  try {
    part_broken();
  } catch (const std::exception&) {
    // What CUDA does not take back is left to the process.
  }
}

std::unique_ptr<device_comm::DeviceCall> WindowGroup::call(const std::string& what,
                                                           device_comm::Stream) {
  // What a peer has posted before it gave up would be taken for its part of this call.
  if (driver_->is_captured())
    has_captured_ = true;
  else
    hear_host(what);
  return std::make_unique<WindowCall>(*this, what);
}

std::vector<int> WindowGroup::others() const {
  std::vector<int> all;
  for (int r = 0; r < size(); ++r)
    if (r != rank()) all.push_back(r);
  return all;
}

std::vector<int> WindowGroup::readers(int reader) const {
  return reader == kAll ? others() : std::vector{reader};
}

std::byte* WindowGroup::begin_post(int reader) {
  const int half = next_post(reader);
  std::vector<uint64_t*> words;
  for (const int r : readers(reader))
    words.push_back(memory_->word(rank(), is_free(reader), r, half));
  driver_->take(words);
  return memory_->half(rank(), reader, half);
}

void WindowGroup::end_post(int reader) {
  std::vector<uint64_t*> words;
  for (const int r : readers(reader))
    words.push_back(memory_->word(r, posted(reader), rank(), next_post(reader)));
  driver_->give(words);
  turn(next_post(reader));
}

const std::byte* WindowGroup::begin_read(int writer, int reader) {
  const int half = next_read(writer, reader);
  uint64_t* const words[] = {memory_->word(rank(), posted(reader), writer, half)};
  if (writer != rank()) driver_->take(words);
  return memory_->half(writer, reader, half);
}

void WindowGroup::end_read(int writer, int reader) {
  const int half = next_read(writer, reader);
  uint64_t* const words[] = {memory_->word(writer, is_free(reader), rank(), half)};
  if (writer != rank()) driver_->give(words);
  turn(next_read(writer, reader));
}

std::vector<const std::byte*> WindowGroup::begin_reads() {
  std::vector<uint64_t*> words;
  for (const int r : others())
    words.push_back(memory_->word(rank(), posted(kAll), r, next_read(r, kAll)));
  driver_->take(words);
  std::vector<const std::byte*> halves;
  for (int r = 0; r < size(); ++r)
    halves.push_back(memory_->half(r, kAll, next_read(r, kAll)));
  return halves;
}

void WindowGroup::end_reads() {
  std::vector<uint64_t*> words;
  for (const int r : others())
    words.push_back(memory_->word(r, is_free(kAll), rank(), next_read(r, kAll)));
  driver_->give(words);
  for (int& half : next_of_all_) turn(half);
}

void WindowGroup::on_broken() {
  if (!memory_) return;
  try {
    releaser_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        memory_->release_waits();
        std::this_thread::sleep_for(kBetweenReleases);
      }
    });
  } catch (const std::system_error&) {
    // No thread is to be had: replays may be left waiting.
  }
  release_until_quiet();
}

void WindowGroup::release_until_quiet() {
  const auto deadline = Clock::now() + kEndPatience;
  do {
    memory_->release_waits();
    std::this_thread::sleep_for(kBetweenReleases);
  } while (!is_quiet() && Clock::now() < deadline);
}

std::future<void> WindowGroup::replays_end() {
  if (has_captured_) return driver_->settled();
  std::promise<void> none;
  none.set_value();
  return none.get_future();
}

bool WindowGroup::is_all_taken() const {
  for (const Word kind : {Word::kFreeForAll, Word::kFreeForOne})
    for (const int r : others())
      for (const int half : {0, 1})
        if (!memory_->is_set(kind, r, half)) return false;
  return true;
}

// False: it cannot end in peace.
bool WindowGroup::farewell() {
  const auto deadline =
      Clock::now() + std::min<Clock::duration>(kEndPatience, options().timeout);
  device_comm::Pause pause;
  try {
    const auto replays = replays_end();
    const auto are_over = [&] {
      return replays.wait_for(0s) == std::future_status::ready;
    };
    while (!are_over() || !is_quiet() || !is_all_taken()) {
      if (Clock::now() > deadline || lost_peer() >= 0) return false;
      pause.take();
    }
    check_host("end");
    part();
  } catch (const std::exception&) {
    return false;
  }
  return true;
}

// What a lane that is still under way would use is left as it is.
void WindowGroup::part_broken() {
  if (replays_end().wait_for(kEndPatience) != std::future_status::ready) return;
  if (!is_quiet()) return;
  releaser_ = {};
  part();
}

void WindowGroup::part() {
  const auto end = Clock::now() + kPartPatience;
  memory_->part([&] { return Clock::now() > end; },
                [&](int peer) { return processes_->has_ended(peer); });
}

}  // namespace cohort::window_backend
