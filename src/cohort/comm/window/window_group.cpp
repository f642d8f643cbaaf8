// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/window/window_group.h"

#include <algorithm>
#include <exception>
#include <thread>

#include "cohort/comm/device/patience.h"
#include "cohort/comm/window/window_call.h"
#include "cohort/core/error.h"

namespace cohort::window_backend {
namespace {

using device_comm::kEndPatience;

// How long a rank waits at the end for its peers to let go of its window.
constexpr auto kPartPatience = std::chrono::seconds(2);

Word posted(int reader) {
  return reader == kAll ? Word::kPostedToAll : Word::kPostedToOne;
}

Word taken(int reader) {
  return reader == kAll ? Word::kTakenOfAll : Word::kTakenOfOne;
}

}  // namespace

WindowGroup::WindowGroup(std::shared_ptr<WindowDriver> driver,
                         std::shared_ptr<Communicator> host, const WindowSizes& sizes,
                         const DeviceGroupOptions& options)
    : DeviceGroup(host, text("comm.", host->backend()), options),
      driver_(std::move(driver)),
      sizes_(sizes),
      posts_(static_cast<size_t>(host->size() + 1)),
      reads_of_all_(static_cast<size_t>(host->size())),
      reads_of_one_(static_cast<size_t>(host->size())) {
  if (host->size() > 1)
    memory_ = std::make_unique<WindowMemory>(driver_, std::move(host), sizes);
}

WindowGroup::~WindowGroup() {
  if (!memory_ || is_broken()) return;
  if (std::uncaught_exceptions() > 0 || !farewell()) on_broken();
}

std::unique_ptr<device_comm::DeviceCall> WindowGroup::call(const std::string& what,
                                                           device_comm::Stream) {
  // What a peer has posted before it gave up would be taken for its part of this call.
  hear_host(what);
  return std::make_unique<WindowCall>(*this, what);
}

std::vector<int> WindowGroup::readers(int reader) const {
  if (reader != kAll) return {reader};
  std::vector<int> others;
  for (int r = 0; r < size(); ++r)
    if (r != rank()) others.push_back(r);
  return others;
}

std::byte* WindowGroup::begin_post(int reader) {
  const uint64_t post = posts_to(reader);
  for (const int r : readers(reader))
    if (post > 1) driver_->wait(memory_->word(rank(), taken(reader), r), post - 1);
  return memory_->half(rank(), reader, post);
}

void WindowGroup::end_post(int reader) {
  const uint64_t count = ++posts_to(reader);
  for (const int r : readers(reader))
    driver_->write(memory_->word(r, posted(reader), rank()), count);
}

const std::byte* WindowGroup::begin_read(int writer, int reader) {
  const uint64_t post = reads_of(writer, reader);
  if (writer != rank())
    driver_->wait(memory_->word(rank(), posted(reader), writer), post + 1);
  return memory_->half(writer, reader, post);
}

void WindowGroup::end_read(int writer, int reader) {
  const uint64_t count = ++reads_of(writer, reader);
  if (writer != rank())
    driver_->write(memory_->word(writer, taken(reader), rank()), count);
}

std::string WindowGroup::fault() {
  if (!memory_ || !looks_for_peers_.due()) return "";
  const int lost = memory_->lost_peer();
  return lost < 0 ? "" : text("the process of rank ", lost, " has ended");
}

// A peer that knows nothing yet may write a count over what releases a wait.
void WindowGroup::on_broken() {
  if (!memory_) return;
  const auto deadline = Clock::now() + kEndPatience;
  do {
    memory_->release_waits();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  } while (!is_quiet() && Clock::now() < deadline);
}

bool WindowGroup::is_all_taken() const {
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    const auto to_one = posts_[static_cast<size_t>(r + 1)];
    if (memory_->count(Word::kTakenOfAll, r) < posts_[0]) return false;
    if (memory_->count(Word::kTakenOfOne, r) < to_one) return false;
  }
  return true;
}

// False: it cannot end in peace.
bool WindowGroup::farewell() {
  const auto deadline =
      Clock::now() + std::min<Clock::duration>(kEndPatience, options().timeout);
  device_comm::Pause pause;
  try {
    while (!is_quiet() || !is_all_taken()) {
      if (Clock::now() > deadline || !fault().empty()) return false;
      pause.take();
    }
    check_host("end");
    memory_->part(Clock::now() + kPartPatience);
  } catch (const std::exception&) {
    return false;
  }
  return true;
}

}  // namespace cohort::window_backend
