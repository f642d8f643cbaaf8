// SPDX-License-Identifier: Apache-2.0
// Transfers between two ranks. Each direction is a channel: sender and receiver
// write a ticket for their next transfer, compare them, and then the one that sees
// the other's memory copies; where neither does, the data pass through a buffer of
// two chunks.
#include <algorithm>
#include <cstring>

#include "cohort/comm/shared_memory/busy.h"
#include "cohort/comm/shared_memory/shared_group.h"
#include "cohort/comm/staging.h"
#include "cohort/core/error.h"

namespace cohort::shared_memory {
namespace {

constexpr int64_t kChunk = 128 * 1024;

}  // namespace

struct SharedGroup::ExchangeGoal : Goal {
  ExchangeGoal(SharedGroup& group, uint64_t id) : group(group), id(id) {}
  int attempt() override {
    group.progress();
    for (const auto& transfer : group.transfers_.pending) {
      if (transfer.exchange == id) return transfer.peer;
    }
    return kDone;
  }
  std::vector<int> missing() override {
    std::vector<int> ranks;
    for (const auto& transfer : group.transfers_.pending) {
      const bool known =
          std::find(ranks.begin(), ranks.end(), transfer.peer) != ranks.end();
      if (transfer.exchange == id && !known) ranks.push_back(transfer.peer);
    }
    return ranks;
  }
  std::string what() override { return text("exchange ", id); }
  SharedGroup& group;
  uint64_t id;
};

uint64_t SharedGroup::exchange(std::span<const Transfer> sends,
                               std::span<const Transfer> receives) {
  claim();
  check_usable();
  const uint64_t id = transfers_.exchanges++;
  const auto add = [&](const Transfer& transfer, bool sends) {
    Call call;
    call.op = Op::kTransfer;
    call.dtype = transfer.tensor.scalar_type();
    call.numel = transfer.tensor.numel();
    const bool plain = transfer.tensor.is_contiguous();
    const Tensor tensor = plain   ? transfer.tensor
                          : sends ? contiguous_copy(transfer.tensor)
                                  : contiguous_like(transfer.tensor);
    auto& ordinals = sends ? transfers_.sent : transfers_.received;
    transfers_.pending.push_back(
        {.exchange = id,
         .sends = sends,
         .peer = transfer.peer,
         .ordinal = ordinals[transfer.peer]++,
         .tensor = tensor,
         .copy_to = plain || sends ? Tensor() : transfer.tensor,
         .data = static_cast<std::byte*>(tensor.data_ptr()),
         .bytes = static_cast<int64_t>(tensor.nbytes()),
         .print = call.print()});
  };
  for (const auto& transfer : sends) add(transfer, true);
  for (const auto& transfer : receives) add(transfer, false);
  touch();
  polled_.at = ~uint64_t{0};
  settle();
  move_exchanges();
  return id;
}

void SharedGroup::wait_exchange(uint64_t id) {
  claim();
  ExchangeGoal goal(*this, id);
  if (std::none_of(transfers_.pending.begin(), transfers_.pending.end(),
                   [&](const Pending& p) { return p.exchange == id; })) {
    return;
  }
  check_broken();
  wait_for(goal);
}

bool SharedGroup::poll_exchange(uint64_t id) {
  claim();
  if (!broken_.empty()) return true;
  ExchangeGoal goal(*this, id);
  return poll_goal(goal);
}

// Moves every transfer on that is the first of its channel.
void SharedGroup::move_exchanges() {
  if (transfers_.pending.empty()) return;
  for (auto& transfer : transfers_.pending) transfer.finished = move_transfer(transfer);
  std::erase_if(transfers_.pending, [&](Pending& transfer) {
    if (!transfer.finished) return false;
    if (transfer.copy_to.defined()) copy_into(transfer.copy_to, transfer.tensor);
    return true;
  });
  settle();
}

bool SharedGroup::move_transfer(Pending& transfer) {
  const int from = transfer.sends ? rank_ : transfer.peer;
  const int to = transfer.sends ? transfer.peer : rank_;
  PairChannel& channel = layout_.channel(spec_.control, from, to);
  auto& mine = transfer.sends ? channel.sender : channel.receiver;
  auto& theirs = transfer.sends ? channel.receiver : channel.sender;
  const uint64_t ordinal = transfer.ordinal;
  Ticket& ticket = mine.tickets[ordinal % kTickets];
  if (!transfer.posted) {
    // Neither side needs the ticket that lay here before: each may be done with its
    // transfer before the other is.
    const uint64_t finished = std::min(mine.finished.load(), theirs.finished.load());
    if (ordinal >= finished + kTickets) return false;
    if (mine.posted.load() != ordinal) return false;
    ticket.print.store(transfer.print);
    ticket.address =
        memory().address_of(transfer.data, static_cast<size_t>(transfer.bytes));
    if (transfer.sends && ticket.address == 0 && transfer.bytes > 0) {
      mine.buffer.store(channel_buffer(transfer.peer));
    }
    transfer.posted = true;
    if (!spec_.loses_message(ordinal)) [[likely]] {
      mine.posted.store(ordinal + 1);
      ring();
    }
  }
  if (mine.finished.load() == ordinal && agree(transfer, mine, theirs)) {
    move_data(transfer, channel);
  }
  // Unbuffered: a send ends when it has been received.
  return mine.finished.load() > ordinal &&
         (!transfer.sends || theirs.finished.load() > ordinal);
}

bool SharedGroup::agree(Pending& transfer, PairChannel::Side& mine,
                        PairChannel::Side& theirs) {
  if (transfer.agreed) return true;
  if (theirs.posted.load() <= transfer.ordinal) return false;
  const Fingerprint print = theirs.tickets[transfer.ordinal % kTickets].print.load();
  if (print != transfer.print) {
    const Fingerprint& sent = transfer.sends ? transfer.print : print;
    const Fingerprint& awaited = transfer.sends ? print : transfer.print;
    fail(text("rank ", transfer.sends ? transfer.peer : rank_, " receives ",
              describe(awaited), " where rank ", transfer.sends ? rank_ : transfer.peer,
              " sends ", describe(sent), " (transfer ", transfer.ordinal, ")"));
  }
  transfer.agreed = true;
  return true;
}

void SharedGroup::move_data(Pending& transfer, PairChannel& channel) {
  const uint64_t ordinal = transfer.ordinal;
  const Address from = channel.sender.tickets[ordinal % kTickets].address;
  const Address to = channel.receiver.tickets[ordinal % kTickets].address;
  auto& mine = transfer.sends ? channel.sender : channel.receiver;
  bool moved = true;
  if (transfer.bytes > 0 && from != 0) {  // the receiver pulls
    if (!transfer.sends) copy_shared(transfer.data, memory().at(from), transfer.bytes);
  } else if (transfer.bytes > 0 && to != 0) {  // the sender pushes
    if (transfer.sends) {
      copy_shared(memory().at(to), transfer.data, transfer.bytes);
    } else {
      moved = channel.sender.finished.load() > ordinal;
    }
  } else if (transfer.bytes > 0) {
    transfer.sends ? send_chunks(transfer, channel) : receive_chunks(transfer, channel);
    moved = transfer.moved == transfer.bytes;
  }
  if (!moved) return;
  touch();
  mine.finished.store(ordinal + 1);
  ring();
}

void SharedGroup::copy_shared(void* to, const void* from, int64_t bytes) {
  {
    Busy busy(*mine_);
    if (!is_aborted()) std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  ring();
  check_abort();
}

void SharedGroup::send_chunks(Pending& transfer, PairChannel& channel) {
  auto* buffer = static_cast<std::byte*>(memory().at(channel.sender.buffer.load()));
  uint64_t chunk = channel.sender.chunks.load();
  while (transfer.moved < transfer.bytes &&
         chunk < channel.receiver.chunks.load() + 2) {
    const int64_t bytes = std::min(kChunk, transfer.bytes - transfer.moved);
    std::memcpy(buffer + (chunk % 2) * kChunk, transfer.data + transfer.moved,
                static_cast<size_t>(bytes));
    transfer.moved += bytes;
    channel.sender.chunks.store(++chunk);
    touch();
    ring();
  }
}

void SharedGroup::receive_chunks(Pending& transfer, PairChannel& channel) {
  const auto* buffer =
      static_cast<std::byte*>(memory().at(channel.sender.buffer.load()));
  uint64_t chunk = channel.receiver.chunks.load();
  while (transfer.moved < transfer.bytes && chunk < channel.sender.chunks.load()) {
    const int64_t bytes = std::min(kChunk, transfer.bytes - transfer.moved);
    std::memcpy(transfer.data + transfer.moved, buffer + (chunk % 2) * kChunk,
                static_cast<size_t>(bytes));
    transfer.moved += bytes;
    channel.receiver.chunks.store(++chunk);
    touch();
    ring();
  }
}

Address SharedGroup::channel_buffer(int peer) {
  void*& buffer = transfers_.buffers[peer];
  if (!buffer) buffer = memory().allocate(2 * kChunk);
  return memory().address_of(buffer, 2 * kChunk);
}

}  // namespace cohort::shared_memory
