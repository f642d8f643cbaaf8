// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/checked_calls.h"

#include <ATen/ATen.h>

#include <utility>

#include "cohort/comm/peer_memory.h"
#include "cohort/core/error.h"

namespace cohort {
namespace {

// No work of a meeting runs in the middle of a block: an update must not touch what
// autograd is at, and what it throws is not the block's.
std::shared_ptr<void> bytes_alone(Communicator& comm) {
  auto* const peers = dynamic_cast<PeerMemory*>(&comm);
  return peers ? peers->hold_meetings() : nullptr;
}

}  // namespace

CheckedCalls::CheckedCalls(const Chain& chain, Options options)
    : options_(std::move(options)) {
  for (const auto& block : chain.blocks) {
    Declared& declared = blocks_.emplace_back();
    declared.name = block->name();
    for (const auto& call : block->calls())
      declared.calls[static_cast<size_t>(call.when)].push_back(call);
  }
}

const std::vector<BlockCall>& CheckedCalls::declared() const {
  return blocks_[block_].calls[static_cast<size_t>(when_)];
}

void CheckedCalls::begin(int block, BlockCall::When when, int64_t samples) {
  block_ = block;
  when_ = when;
  samples_ = samples;
  made_ = 0;
}

void CheckedCalls::end() {
  if (made_ < declared().size()) refuse("nothing more");
  block_ = kNone;
}

// What was declared there, beside what a block did.
void CheckedCalls::refuse(const std::string& made) const {
  const auto& calls = declared();
  throw BugError(
      text("[engine] block ", blocks_[block_].name, ": call ", made_, " inside its ",
           name_of(when_), " is ", made, "; declared: ",
           made_ < calls.size() ? calls[made_].text(samples_) : std::string("none")));
}

Communicator* CheckedCalls::group(AxisSet axes) const {
  return options_.group ? options_.group(axes) : nullptr;
}

int CheckedCalls::size(AxisSet axes) const {
  Communicator* const comm = group(axes);
  return comm ? comm->size() : options_.stand_in;
}

Communicator* CheckedCalls::next(InnerCall::Op op, AxisSet axes, const Tensor& given) {
  COHORT_CHECK(block_ != kNone, "[engine] ", name_of(op),
               " of a block that is not computed");
  const BlockCall made{.when = when_,
                       .axes = axes,
                       .op = op,
                       .dtype = given.scalar_type(),
                       .numel = given.numel()};
  const auto& calls = declared();
  const auto as_made = [&](BlockCall call) {
    call.numel = call.numel_for(samples_);
    call.per_sample = 0;
    return call;
  };
  if (made_ >= calls.size() || made != as_made(calls[made_])) refuse(made.text(0));
  ++made_;
  Communicator* const comm = group(axes);
  if (comm && options_.faults && when_ != BlockCall::When::kEvaluate)
    options_.faults->reach("engine.call", options_.rank, made_in_step_++);
  return comm;
}

void CheckedCalls::all_reduce(AxisSet axes, Tensor& tensor) {
  Communicator* const comm = next(InnerCall::Op::kAllReduce, axes, tensor);
  if (!comm) return;
  const auto hold = bytes_alone(*comm);
  comm->all_reduce(tensor, ReduceOp::kSum).wait();
}

void CheckedCalls::all_gather(AxisSet axes, Tensor& out, const Tensor& shard) {
  Communicator* const comm = next(InnerCall::Op::kAllGather, axes, shard);
  if (!comm) {
    out.view({options_.stand_in, -1}).copy_(shard.reshape({1, -1}));
    return;
  }
  const auto hold = bytes_alone(*comm);
  comm->all_gather(out, shard).wait();
}

void CheckedCalls::reduce_scatter(AxisSet axes, Tensor& out, const Tensor& in) {
  Communicator* const comm = next(InnerCall::Op::kReduceScatter, axes, in);
  if (!comm) {
    out.view(-1).copy_(in.reshape({options_.stand_in, -1})[0]);
    return;
  }
  const auto hold = bytes_alone(*comm);
  comm->reduce_scatter(out, in, ReduceOp::kSum).wait();
}

void CheckedCalls::give_nothing(int block, BlockCall::When when) {
  begin(block, when, 0);
  for (const auto& call : declared()) make(call);
  end();
}

void CheckedCalls::make(const BlockCall& call) {
  const int ranks = size(call.axes);
  Tensor given = at::zeros({call.numel_for(0)}, call.dtype);
  Tensor taken;
  switch (call.op) {
    case InnerCall::Op::kAllReduce:
      return all_reduce(call.axes, given);
    case InnerCall::Op::kAllGather:
      taken = at::empty({given.numel() * ranks}, call.dtype);
      return all_gather(call.axes, taken, given);
    case InnerCall::Op::kReduceScatter:
      taken = at::empty({given.numel() / ranks}, call.dtype);
      return reduce_scatter(call.axes, taken, given);
    default:
      refuse("made for nobody: blocks have no way to call it");
  }
}

void require_no_calls(const Schedule& schedule) {
  for (const auto& role : schedule.roles)
    for (const auto& action : role.actions)
      for (const auto& call : action.calls)
        throw ConfigError(
            text("[engine] block ", schedule.blocks[action.block], " calls ",
                 name_of(call.op), " in group ", schedule.groups[call.group].name,
                 " inside, which a step on a GPU cannot; legal: one rank, a run on "
                 "processors, or a model without such calls"));
}

}  // namespace cohort
