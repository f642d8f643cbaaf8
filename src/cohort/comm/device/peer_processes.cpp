// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/device/peer_processes.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "cohort/comm/peer_memory.h"

namespace cohort::device_comm {
namespace {

std::atomic_ref<int64_t> parted_word(const Tensor& page, int rank) {
  return std::atomic_ref(page.mutable_data_ptr<int64_t>()[rank]);
}

}  // namespace

PeerProcesses::PeerProcesses(Communicator& host) : rank_(host.rank()) {
  auto* const memory = dynamic_cast<PeerMemory*>(&host);
  if (!memory || host.size() == 1) return;
  page_ = host.allocate({host.size()}, at::kLong);
  pages_ = memory->map_peers(page_);
  const Tensor mine = at::full({1}, static_cast<int64_t>(::getpid()), at::kLong);
  Tensor pids = at::zeros({host.size()}, at::kLong);
  host.all_gather(pids, mine).wait();
  for (int r = 0; r < host.size(); ++r) {
    const auto pid = static_cast<pid_t>(pids.const_data_ptr<int64_t>()[r]);
    const bool is_other = pid != ::getpid();
    processes_.emplace_back(
        is_other ? static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)) : -1);
  }
}

bool PeerProcesses::has_parted(int rank) const {
  return parted_word(page_, rank).load(std::memory_order_acquire) != 0;
}

bool PeerProcesses::has_ended(int rank) const {
  if (rank >= static_cast<int>(processes_.size()) || !processes_[rank]) return false;
  pollfd ended{.fd = processes_[rank].get(), .events = POLLIN, .revents = 0};
  return ::poll(&ended, 1, 0) == 1;
}

int PeerProcesses::lost() const {
  for (int r = 0; r < static_cast<int>(processes_.size()); ++r)
    // It may part after it was asked first.
    if (!has_parted(r) && has_ended(r) && !has_parted(r)) return r;
  return -1;
}

void PeerProcesses::part() {
  for (const Tensor& page : pages_)
    parted_word(page, rank_).store(1, std::memory_order_release);
}

}  // namespace cohort::device_comm
