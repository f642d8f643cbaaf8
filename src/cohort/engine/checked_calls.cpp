// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/checked_calls.h"

#include <ATen/ATen.h>

#include <utility>

#include "cohort/comm/peer_memory.h"
#include "cohort/core/error.h"

namespace cohort {
namespace {

// No joint work runs in the middle of a block: an update must not touch what
// autograd is at, and what it throws is not the block's.
std::shared_ptr<void> bytes_alone(Communicator& comm) {
  auto* const peers = dynamic_cast<PeerMemory*>(&comm);
  return peers ? peers->hold_joint_work() : nullptr;
}

void settle(Work work, const Tensor& tensor) {
  tensor.is_cpu() ? work.wait() : work.join();
}

// Rows from first to last, in float32 where they are narrower.
Tensor added_in_order(const Tensor& rows) {
  const bool narrow = rows.is_floating_point() && rows.element_size() < 4;
  Tensor sum = narrow ? rows[0].to(at::kFloat) : rows[0].clone();
  for (int64_t r = 1; r < rows.size(0); ++r) sum.add_(rows[r]);
  return sum;
}

}  // namespace

CheckedCalls::CheckedCalls(const Chain& chain, Options options)
    : options_(std::move(options)) {
  for (const auto& block : chain.blocks) blocks_.push_back(declared_by(*block));
}

CheckedCalls::Declared CheckedCalls::declared_by(const Block& block) {
  Declared declared;
  declared.name = block.name();
  if (!block.parameters().empty()) declared.weight = block.parameters()[0].tensor;
  for (const auto& call : block.calls())
    declared.calls[static_cast<size_t>(call.when)].push_back(call);
  return declared;
}

void CheckedCalls::replace(int block, const Block& by) {
  blocks_.at(static_cast<size_t>(block)) = declared_by(by);
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

Communicator* CheckedCalls::next(CallOp op, AxisSet axes, const Tensor& given) {
  COHORT_CHECK(block_ != kNone, "[engine] ", name_of(op),
               " of a block that is not computed");
  const BlockCall made{.when = when_,
                       .axes = axes,
                       .op = op,
                       .dtype = given.scalar_type(),
                       .numel = given.numel()};
  const auto& calls = declared();
  const auto as_made = [&](BlockCall call) {
    call.dtype = dtype_of(call);
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
  Communicator* const comm = next(CallOp::kAllReduce, axes, tensor);
  if (!comm) return;
  const auto hold = bytes_alone(*comm);
  if (!options_.exact) return settle(comm->all_reduce(tensor, ReduceOp::kSum), tensor);
  const Tensor mine = tensor.contiguous();
  Tensor all = at::empty({comm->size(), tensor.numel()}, tensor.options());
  settle(comm->all_gather(all, mine), all);
  tensor.copy_(added_in_order(all).view_as(tensor));
}

void CheckedCalls::all_gather(AxisSet axes, Tensor& out, const Tensor& shard) {
  Communicator* const comm = next(CallOp::kAllGather, axes, shard);
  if (!comm) {
    if (shard.numel() > 0) out.view({-1, shard.numel()}).copy_(shard.reshape({1, -1}));
    return;
  }
  const auto hold = bytes_alone(*comm);
  settle(comm->all_gather(out, shard), out);
}

void CheckedCalls::reduce_scatter(AxisSet axes, Tensor& out, const Tensor& in) {
  Communicator* const comm = next(CallOp::kReduceScatter, axes, in);
  if (!comm) {
    if (out.numel() > 0) out.view(-1).copy_(in.reshape({-1, out.numel()})[0]);
    return;
  }
  const auto hold = bytes_alone(*comm);
  if (!options_.exact)
    return settle(comm->reduce_scatter(out, in, ReduceOp::kSum), out);
  Tensor parts = at::empty({comm->size(), out.numel()}, in.options());
  settle(comm->all_to_all(parts, in.contiguous()), parts);
  out.copy_(added_in_order(parts).view_as(out));
}

void CheckedCalls::give_nothing(int block, BlockCall::When when) {
  begin(block, when, 0);
  for (const auto& call : declared()) make(call);
  end();
}

// Weights may change theirs after the block was made.
at::ScalarType CheckedCalls::dtype_of(const BlockCall& call) const {
  const Tensor& weight = blocks_[block_].weight;
  return call.dtype_for(weight.defined() ? weight.scalar_type() : at::kFloat);
}

void CheckedCalls::make(const BlockCall& call) {
  const int ranks = size(call.axes);
  Tensor given = at::zeros({call.numel_for(0)}, dtype_of(call));
  Tensor taken;
  switch (call.op) {
    case CallOp::kAllReduce:
      return all_reduce(call.axes, given);
    case CallOp::kAllGather:
      taken = at::empty({given.numel() * ranks}, given.options());
      return all_gather(call.axes, taken, given);
    case CallOp::kReduceScatter:
      taken = at::empty({given.numel() / ranks}, given.options());
      return reduce_scatter(call.axes, taken, given);
    default:
      refuse("made for nobody: blocks have no way to call it");
  }
}

void require_no_data_calls(const Schedule& schedule) {
  for (const auto& role : schedule.roles)
    for (const auto& action : role.actions)
      for (const auto& call : action.calls)
        if (schedule.groups[call.group].axes.meets(kDataAxes))
          throw ConfigError(
              text("[engine] block ", schedule.blocks[action.block], " calls ",
                   name_of(call.op), " in group ", schedule.groups[call.group].name,
                   " inside, which a step on a GPU cannot; legal: one rank, a run on "
                   "processors, or a model without such calls"));
}

}  // namespace cohort
