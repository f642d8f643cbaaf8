// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/link_values.h"

#include <ATen/ATen.h>

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
Values LinkValues::copies_of(Communicator& comm, const Values& values) {
  if (!shares_memory(comm) || !device_.is_cpu()) return {};
  Room& room = rooms_[&comm];
  if (room.under_way == kSentAhead) return {};
  Values copies;
  for (const auto& value : values) {
    if (!value.defined()) continue;
    Values& spare = room.spare[{value.scalar_type(), value.numel()}];
    if (spare.empty())
      spare.push_back(comm.allocate({value.numel()}, value.scalar_type()));
    copies.push_back(spare.back());
    spare.pop_back();
    copies.back().copy_(flat(value));
  }
  if (!copies.empty()) ++room.under_way;
  return copies;
}

void LinkValues::give_back(Communicator& comm, const Values& copies) {
  if (copies.empty()) return;
  Room& room = rooms_[&comm];
  --room.under_way;
  for (const auto& copy : copies)
    room.spare[{copy.scalar_type(), copy.numel()}].push_back(copy);
}

LinkValues::Sending LinkValues::send(RankChannels::Link link, const Value& what,
                                     int64_t rows, const Values& values) {
  const Forms forms = forms_of(values);
  const auto [known, fresh] = known_.try_emplace({what.what, what.of, rows}, forms);
  if (known->second != forms)
    throw BugError(text(
        "[engine] ", what.text(), " has another shape than before, with ", rows,
        " samples as then; legal: shapes that follow from the ", "number of samples"));
  if (fresh) say(link, forms);
  const Values copies = copies_of(*link.comm, values);
  const Values& sent = copies.empty() ? values : copies;
  Work work = link.comm->exchange(transfers_of(link.peer, sent), {});
  return {{std::move(work),
           [this, comm = link.comm, sent, copies] { give_back(*comm, copies); }},
          !copies.empty()};
}

// Nothing waits for it: the receiver may have something to send first.
void LinkValues::say(RankChannels::Link link, const Forms& forms) {
  while (!said_.empty() && said_.front().first.poll()) {
    said_.front().first.wait();
    said_.pop_front();
  }
  const Tensor header = pack(forms);
  const Transfer transfer{link.peer, header};
  said_.emplace_back(link.comm->exchange(std::span(&transfer, 1), {}), header);
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
  const Key key{what.what, what.of, rows};
  if (const auto known = known_.find(key); known != known_.end()) {
    Values values = make(known->second);
    Work work = link.comm->exchange({}, transfers_of(link.peer, values));
    return {std::move(work),
            [take = std::move(take), values]() mutable { take(std::move(values)); }};
  }
  const Tensor header = empty_header();
  const Transfer transfer{link.peer, header};
  Work work = link.comm->exchange({}, std::span(&transfer, 1));
  return {std::move(work), [=, this, take = std::move(take)] {
            Values values = make(known_[key] = unpack(header));
            link.comm->exchange({}, transfers_of(link.peer, values)).join();
            take(std::move(values));
          }};
}

}  // namespace cohort
