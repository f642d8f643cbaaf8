// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/link_values.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "cohort/comm/peer_memory.h"
#include "cohort/core/error.h"
#include "cohort/step/memory_plan.h"

namespace cohort {
namespace {

// A header: how many tensors, and for each of them whether it is one, its type, its
// dimensions, and the sizes and strides of these.
constexpr int64_t kMostTensors = 16, kLinkDims = 8;
constexpr int64_t kFormWidth = 3 + 2 * kLinkDims;
constexpr int64_t kHeaderWidth = 1 + kMostTensors * kFormWidth;

// What a word says of a value; where it goes ahead: the number of its form.
constexpr int64_t kAsBefore = 0, kChanged = 1;

Tensor word_of(int64_t number) { return at::full({1}, number, at::kLong); }
int64_t number_in(const Tensor& word) { return *word.const_data_ptr<int64_t>(); }

Tensor empty_header() { return at::zeros({kHeaderWidth}, at::kLong); }

// The elements in the order in which they lie: values are dense.
Tensor flat(const Tensor& value) {
  return value.detach().as_strided({value.numel()}, {1}, value.storage_offset());
}

std::vector<Transfer> transfers_of(int peer, const Values& values) {
  std::vector<Transfer> all;
  for (const auto& value : values)
    if (value.defined()) all.push_back({peer, flat(value)});
  return all;
}

}  // namespace

LinkValues::Forms LinkValues::forms_of(const Values& values) {
  Forms forms;
  for (const auto& value : values) {
    Form& form = forms.emplace_back();
    form.defined = value.defined();
    if (!form.defined) continue;
    form.dtype = value.scalar_type();
    form.sizes = value.sizes().vec();
    form.strides = value.strides().vec();
  }
  return forms;
}

Tensor LinkValues::pack(const Forms& forms) {
  const auto count = static_cast<int64_t>(forms.size());
  if (count > kMostTensors)
    throw ConfigError(text("[engine] a block gives ", count,
                           " tensors at the border of a stage; legal: at most ",
                           kMostTensors));
  const Tensor header = empty_header();
  int64_t* at = header.data_ptr<int64_t>();
  *at++ = count;
  for (const auto& form : forms) {
    const auto dims = static_cast<int64_t>(form.sizes.size());
    if (dims > kLinkDims)
      throw ConfigError(text("[engine] a block gives a tensor of ", dims,
                             " dimensions at the border of a stage; legal: at most ",
                             kLinkDims));
    at[0] = form.defined;
    at[1] = static_cast<int64_t>(form.dtype);
    at[2] = dims;
    for (int64_t d = 0; d < dims; ++d) {
      at[3 + d] = form.sizes[d];
      at[3 + kLinkDims + d] = form.strides[d];
    }
    at += kFormWidth;
  }
  return header;
}

LinkValues::Forms LinkValues::unpack(const Tensor& header) {
  const int64_t* at = header.const_data_ptr<int64_t>();
  Forms forms(static_cast<size_t>(*at++));
  for (auto& form : forms) {
    form.defined = at[0] != 0;
    form.dtype = static_cast<at::ScalarType>(at[1]);
    form.sizes.assign(at + 3, at + 3 + at[2]);
    form.strides.assign(at + 3 + kLinkDims, at + 3 + kLinkDims + at[2]);
    at += kFormWidth;
  }
  return forms;
}

// In memory that the peer reaches; none if there is no room.
LinkValues::Copies LinkValues::copies_of(Communicator& comm, const Values& values) {
  if (!shares_memory(comm) || !device_.is_cpu()) return {};
  Room& room = rooms_[&comm];
  if (room.under_way == kSentAhead) return {};
  Copies copies;
  for (const auto& value : values) {
    if (!value.defined()) continue;
    copies.memory.push_back(room_for(comm, room, value));
    copies.values.push_back(copies.memory.back().narrow(0, 0, value.numel()));
    copies.values.back().copy_(flat(value));
  }
  if (!copies.memory.empty()) ++room.under_way;
  return copies;
}

// The smallest that is large enough; one that is too small makes way for another, so
// that shapes that change do not add up.
Tensor LinkValues::room_for(Communicator& comm, Room& room, const Tensor& value) {
  auto& spare = room.spare[value.scalar_type()];
  const auto found = spare.lower_bound(value.numel());
  if (found == spare.end()) {
    if (!spare.empty()) spare.erase(std::prev(spare.end()));
    return comm.allocate({value.numel()}, value.scalar_type());
  }
  const Tensor memory = found->second;
  spare.erase(found);
  return memory;
}

void LinkValues::give_back(Communicator& comm, const Values& memory) {
  if (memory.empty()) return;
  Room& room = rooms_[&comm];
  --room.under_way;
  for (const auto& one : memory)
    room.spare[one.scalar_type()].emplace(one.numel(), one);
}

LinkValues::Sending LinkValues::send(RankChannels::Link link, const Value& what,
                                     int64_t rows, const Values& values) {
  Known& known = known_[{what.what, what.of, rows}];
  const bool goes_with_word = settle_form(link, what, known, forms_of(values));
  const Copies copies = copies_of(*link.comm, values);
  const bool copied = !copies.memory.empty();
  auto sent = transfers_of(link.peer, copied ? copies.values : values);
  if (goes_with_word)
    sent.insert(sent.begin(), Transfer{link.peer, as_before(*link.comm)});
  Work work = link.comm->exchange(sent, {});
  return {{std::move(work),
           [this, comm = link.comm, sent, copies] { give_back(*comm, copies.memory); }},
          copied};
}

// Says what the receiver must know before the value. Whether a word goes with it.
bool LinkValues::settle_form(RankChannels::Link link, const Value& what, Known& known,
                             const Forms& forms) {
  if (known.forms.empty()) {
    known.forms.push_back(forms);
    say(link, {Transfer{link.peer, pack(forms)}});
    return false;
  }
  if (!known.changes && forms == known.forms[0]) return may_change();
  if (!may_change())
    throw ConfigError(text("[engine] ", what.text(), " has another shape than before, ",
                           "with as many samples; legal on GPUs: fields of one shape, ",
                           "or pp=1"));
  if (!std::exchange(known.changes, true)) {
    auto thrown_away = transfers_of(link.peer, make(known.forms[0]));
    thrown_away.insert(thrown_away.begin(), Transfer{link.peer, word_of(kChanged)});
    say(link, std::move(thrown_away));
  }
  say_which(link, known, forms);
  return false;
}

void LinkValues::say_which(RankChannels::Link link, Known& known, const Forms& forms) {
  const auto found = std::ranges::find(known.forms, forms);
  say(link, {Transfer{link.peer, word_of(found - known.forms.begin())}});
  if (found != known.forms.end()) return;
  known.forms.push_back(forms);
  say(link, {Transfer{link.peer, pack(forms)}});
}

// Nothing waits for it: the receiver may have something to send first.
void LinkValues::say(RankChannels::Link link, std::vector<Transfer> transfers) {
  while (!said_.empty() && said_.front().first.poll()) {
    said_.front().first.wait();
    said_.pop_front();
  }
  Work work = link.comm->exchange(transfers, {});
  said_.emplace_back(std::move(work), std::move(transfers));
}

// Where the values lie: a transfer from elsewhere would not go by itself.
Tensor LinkValues::as_before(Communicator& comm) {
  Tensor& word = rooms_[&comm].as_before;
  if (!word.defined()) {
    word = shares_memory(comm) ? comm.allocate({1}, at::kLong) : word_of(kAsBefore);
    word.fill_(kAsBefore);
  }
  return word;
}

Values LinkValues::make(const Forms& forms) const {
  Values values;
  for (const auto& form : forms)
    values.push_back(
        form.defined ? at::empty_strided(form.sizes, form.strides,
                                         at::TensorOptions(form.dtype).device(device_))
                     : Tensor());
  return values;
}

PendingWork LinkValues::receive(RankChannels::Link link, const Value& what,
                                int64_t rows, Take take) {
  Known& known = known_[{what.what, what.of, rows}];
  if (known.forms.empty()) return receive_first(link, known, std::move(take));
  if (known.changes) return receive_word(link, known, std::move(take));
  Values values = make(known.forms[0]);
  auto transfers = transfers_of(link.peer, values);
  const Tensor word = word_of(kAsBefore);
  if (may_change()) transfers.insert(transfers.begin(), Transfer{link.peer, word});
  Work work = link.comm->exchange({}, transfers);
  return {std::move(work), [=, this, &known, take = std::move(take)]() mutable {
            if (number_in(word) == kAsBefore) return take(std::move(values));
            known.changes = true;
            receive_word(link, known, take).finish();
          }};
}

PendingWork LinkValues::receive_first(RankChannels::Link link, Known& known,
                                      Take take) const {
  const Tensor header = empty_header();
  const Transfer transfer{link.peer, header};
  Work work = link.comm->exchange({}, std::span(&transfer, 1));
  return {std::move(work), [=, this, &known, take = std::move(take)] {
            known.forms.push_back(unpack(header));
            take_data(link, known.forms.back(), take);
          }};
}

PendingWork LinkValues::receive_word(RankChannels::Link link, Known& known,
                                     Take take) const {
  const Tensor word = word_of(kAsBefore);
  const Transfer transfer{link.peer, word};
  Work work = link.comm->exchange({}, std::span(&transfer, 1));
  return {std::move(work), [=, this, &known, take = std::move(take)] {
            const auto number = static_cast<size_t>(number_in(word));
            if (number < known.forms.size())
              take_data(link, known.forms[number], take);
            else
              receive_first(link, known, take).finish();
          }};
}

void LinkValues::take_data(RankChannels::Link link, const Forms& forms,
                           const Take& take) const {
  Values values = make(forms);
  link.comm->exchange({}, transfers_of(link.peer, values)).join();
  take(std::move(values));
}

}  // namespace cohort
