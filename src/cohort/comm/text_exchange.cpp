// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/text_exchange.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>

namespace cohort {
namespace {

// A save that fails says so through its text, so none stays away from an exchange, and
// a wait is as long as the slowest write.
class Room {
 public:
  explicit Room(int size) : texts_(size) {}

  std::vector<std::string> gather(int rank, const std::string& mine) {
    std::unique_lock lock(mutex_);
    const int64_t round = round_;
    texts_[rank] = mine;
    if (++here_ == static_cast<int>(texts_.size())) {
      here_ = 0;
      result_ = texts_;
      ++round_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return round_ != round; });
    return result_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> texts_, result_;
  int here_ = 0;
  int64_t round_ = 0;
};

constexpr std::chrono::milliseconds kBeat{50};  // between two signs of life

std::vector<std::string> gather_texts(Communicator& comm, const std::string& mine) {
  const auto size = static_cast<int64_t>(mine.size());
  auto sizes = at::empty({comm.size()}, at::kLong);
  comm.all_gather(sizes, at::full({1}, size, at::kLong)).wait();
  const int64_t most = std::max<int64_t>(1, sizes.max().item<int64_t>());
  auto padded = at::zeros({most}, at::kByte);
  std::memcpy(padded.mutable_data_ptr(), mine.data(), mine.size());
  auto all = at::empty({comm.size(), most}, at::kByte);
  comm.all_gather(all, padded).wait();
  std::vector<std::string> texts;
  for (int64_t rank = 0; rank < comm.size(); ++rank)
    texts.emplace_back(static_cast<const char*>(all[rank].const_data_ptr()),
                       static_cast<size_t>(sizes[rank].item<int64_t>()));
  return texts;
}

// One beat of all: which ranks are still at their tasks.
std::vector<int> find_late(Communicator& comm, bool ready) {
  auto all = at::empty({comm.size()}, at::kLong);
  comm.all_gather(all, at::full({1}, int64_t{ready}, at::kLong)).wait();
  std::vector<int> late;
  for (int rank = 0; rank < comm.size(); ++rank)
    if (all.const_data_ptr<int64_t>()[rank] == 0) late.push_back(rank);
  return late;
}

std::vector<std::string> gather_patiently(Communicator& comm, TextExchange::Task task,
                                          const PatienceOptions& patience) {
  if (comm.size() == 1) return {task()};
  const auto began = std::chrono::steady_clock::now();
  auto mine = std::async(std::launch::async, std::move(task));
  try {
    while (true) {
      const bool ready = mine.wait_for(kBeat) == std::future_status::ready;
      const auto late = find_late(comm, ready);
      if (late.empty()) return gather_texts(comm, mine.get());
      if (patience.watch)
        patience.watch(late, std::chrono::steady_clock::now() - began);
    }
  } catch (...) {
    if (patience.left_behind && mine.valid())
      patience.left_behind->push_back(std::move(mine));
    throw;
  }
}

}  // namespace

TextExchange text_exchange(Communicator& comm, PatienceOptions patience) {
  return {
      .rank = comm.rank(),
      .size = comm.size(),
      .gather = [&comm](const std::string& mine) { return gather_texts(comm, mine); },
      .patient_gather =
          [&comm, patience = std::move(patience)](TextExchange::Task task) {
            return gather_patiently(comm, std::move(task), patience);
          }};
}

std::vector<TextExchange> thread_text_exchanges(int size) {
  const auto room = std::make_shared<Room>(size);
  std::vector<TextExchange> exchanges;
  for (int rank = 0; rank < size; ++rank)
    exchanges.push_back(
        {.rank = rank, .size = size, .gather = [room, rank](const std::string& mine) {
           return room->gather(rank, mine);
         }});
  return exchanges;
}

}  // namespace cohort
