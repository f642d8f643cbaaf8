// SPDX-License-Identifier: Apache-2.0
#include "cohort/elastic/state_exchange.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "cohort/comm/gather_records.h"
#include "cohort/core/error.h"
#include "cohort/elastic/state_listing.h"

namespace cohort {
namespace {

// So much is packed at once, or twice that: enough for full speed, little beside a
// model.
constexpr int64_t kBatchBytes = 64'000'000;

// What a rank has of a tensor.
struct HeldPiece {
  Listing listing;
  BoxMap map;
  int rank = 0;
  int piece = 0;  // number in that rank's list
};

// Where a wanted element is: so many from there on can be had at once.
struct StateSource {
  const HeldPiece* held = nullptr;
  int64_t at = 0;  // in the box of the rank that has it
  int64_t count = 0;
};

// Elements that travel, or are copied where `from` is `to`.
struct Move {
  int from, to;
  int from_piece, to_piece;
  int64_t from_at, to_at;  // first element, within the piece
  int64_t count;
  int64_t bytes;
};

// What all ranks have and want, and so, alike on all, which rank sends what to which.
class Plan {
 public:
  explicit Plan(std::span<const std::string> records) {
    for (size_t r = 0; r < records.size(); ++r) {
      auto [have, want] = read_listing(records[r]);
      for (size_t i = 0; i < have.size(); ++i) {
        const BoxMap map = have[i].map();
        holders_[have[i].name].push_back(
            {have[i], map, static_cast<int>(r), static_cast<int>(i)});
      }
      wanted_.push_back(std::move(want));
    }
    ranks_ = static_cast<int>(records.size());
    for (int r = 0; r < ranks_; ++r)
      for (size_t i = 0; i < wanted_[r].size(); ++i) serve(r, static_cast<int>(i));
  }

  const std::vector<Move>& moves() const { return moves_; }
  const std::string& missing() const { return missing_; }

 private:
  // From the start of the piece on, always from the one that is best to ask and as far
  // as it goes.
  void serve(int rank, int piece) {
    const Listing& want = wanted_[rank][piece];
    const BoxMap map = want.map();
    for (int64_t at = want.begin; at < want.end;) {
      const StateSource source = best_source(want, map, rank, at);
      if (!source.held) {
        miss(want, at);
        return;
      }
      const int64_t count =
          std::min(source.count, std::max<int64_t>(1, kBatchBytes / want.width));
      moves_.push_back({.from = source.held->rank,
                        .to = rank,
                        .from_piece = source.held->piece,
                        .to_piece = piece,
                        .from_at = source.at - source.held->listing.begin,
                        .to_at = at - want.begin,
                        .count = count,
                        .bytes = count * want.width});
      at += count;
    }
  }

  // What a rank that holds a piece can give, from element `at` of the wanted box on.
  static StateSource source_in(const HeldPiece& held, const Listing& want,
                               const BoxMap& map, int64_t at) {
    const Listing& have = held.listing;
    if (have.box == want.box) {
      const bool there = have.begin <= at && at < have.end;
      return {there ? &held : nullptr, at, std::min(want.end, have.end) - at};
    }
    const int64_t element = map.to_whole(at), in = held.map.before(element);
    if (in < have.begin || in >= have.end || held.map.to_whole(in) != element)
      return {};
    return {&held, in,
            std::min({want.end - at, have.end - in, map.run_from(at),
                      held.map.run_from(in)})};
  }

  // Itself, else the next rank upwards: so that not all ask one.
  StateSource best_source(const Listing& want, const BoxMap& map, int rank,
                          int64_t at) const {
    StateSource best;
    const auto found = holders_.find(want.name);
    if (found == holders_.end()) return best;
    const auto distance = [&](const HeldPiece& held) {
      return (held.rank - rank + ranks_) % ranks_;
    };
    for (const auto& held : found->second) {
      if (best.held && distance(held) >= distance(*best.held)) continue;
      if (const auto source = source_in(held, want, map, at); source.held)
        best = source;
    }
    return best;
  }

  void miss(const Listing& want, int64_t at) {
    if (missing_.empty())
      missing_ = text("elements from ", at, " on of ", want.name, box_text(want.box),
                      " are lost");
  }

  int ranks_ = 0;
  std::unordered_map<std::string, std::vector<HeldPiece>> holders_;
  std::vector<std::vector<Listing>> wanted_;
  std::vector<Move> moves_;
  std::string missing_;
};

// From that element of a piece on, wherever it lies.
Tensor bytes_at(const StatePiece& piece, int64_t element, int64_t bytes) {
  const auto width = static_cast<int64_t>(piece.data.element_size());
  return piece.data.detach().view({-1}).view(at::kByte).narrow(0, element * width,
                                                               bytes);
}

// One message for, or from, each peer that has one: the bytes of its moves, in their
// order. All are added before the messages are opened, and then taken one by one.
class Letters {
 public:
  explicit Letters(int peers) : sizes_(peers, 0), letters_(peers), next_(peers, 0) {}

  void add(int peer, int64_t bytes) { sizes_[peer] += bytes; }

  std::vector<Transfer> open() {
    std::vector<Transfer> all;
    for (size_t peer = 0; peer < sizes_.size(); ++peer) {
      if (sizes_[peer] == 0) continue;
      letters_[peer] = at::empty({sizes_[peer]}, at::kByte);
      all.push_back({static_cast<int>(peer), letters_[peer]});
    }
    return all;
  }

  Tensor take(int peer, int64_t bytes) {
    const int64_t at = std::exchange(next_[peer], next_[peer] + bytes);
    return letters_[peer].narrow(0, at, bytes);
  }

 private:
  std::vector<int64_t> sizes_;
  std::vector<Tensor> letters_;
  std::vector<int64_t> next_;
};

// One batch of moves between this rank and its peers.
class Mail {
 public:
  Mail(Communicator& comm, std::span<const StatePiece> have,
       std::span<const StatePiece> want)
      : comm_(comm), have_(have), want_(want) {}

  void carry(std::span<const Move> moves) {
    const int self = comm_.rank();
    Letters out(comm_.size()), in(comm_.size());
    for (const auto& move : moves) {
      if (move.from == move.to) continue;
      if (move.from == self) out.add(move.to, move.bytes);
      if (move.to == self) in.add(move.from, move.bytes);
    }
    auto sends = out.open(), receives = in.open();
    for (const auto& move : moves)
      if (move.from == self && move.to != self)
        out.take(move.to, move.bytes).copy_(source(move));
    comm_.exchange(sends, receives).wait();
    for (const auto& move : moves) {
      if (move.to != self) continue;
      target(move).copy_(move.from == self ? source(move)
                                           : in.take(move.from, move.bytes));
    }
  }

 private:
  Tensor source(const Move& move) const {
    return bytes_at(have_[move.from_piece], move.from_at, move.bytes);
  }
  Tensor target(const Move& move) const {
    return bytes_at(want_[move.to_piece], move.to_at, move.bytes);
  }

  Communicator& comm_;
  std::span<const StatePiece> have_, want_;
};

}  // namespace

std::string exchange_state(Communicator& comm, std::span<const StatePiece> have,
                           std::span<const StatePiece> want) {
  const Plan plan(text_exchange(comm).gather(to_record(list_state(have, want))));
  if (!plan.missing().empty()) return plan.missing();
  Mail mail(comm, have, want);
  const std::span<const Move> moves = plan.moves();
  for (size_t begin = 0; begin < moves.size();) {
    size_t end = begin;
    for (int64_t bytes = 0; end < moves.size() && bytes < kBatchBytes; ++end)
      bytes += moves[end].bytes;
    mail.carry(moves.subspan(begin, end - begin));
    begin = end;
  }
  return "";
}

ReplicaReport compare_held(Communicator& comm, std::span<const StatePiece> have) {
  using Range = std::tuple<std::string, int64_t, int64_t>;  // name, begin, end
  std::map<Range, uint64_t> mine;
  for (const auto& [tensor, data] : have)
    mine[{tensor.spec.name + box_text(tensor.spec.box), tensor.spec.begin,
          tensor.spec.end}] = tensor_hash(data);
  const auto all = gather_records(text_exchange(comm), mine,
                                  "[elastic.state] a peer's hashes cannot be read");
  std::map<Range, std::map<int, uint64_t>> holders;  // by rank
  for (int rank = 0; rank < static_cast<int>(all.size()); ++rank)
    for (const auto& [range, hash] : all[rank]) holders[range][rank] = hash;
  ReplicaComparison comparison;
  for (const auto& [range, hashes] : holders)
    comparison.add(std::get<0>(range), hashes);
  return comparison.report();
}

}  // namespace cohort
