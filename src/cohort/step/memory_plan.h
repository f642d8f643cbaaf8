// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "cohort/step/schedule.h"

// How the memory of a step is foretold: checks/peak_memory.cpp adds up what is planned
// here.
namespace cohort {

// What a rank keeps for each bucket of a data-parallel step, behind the buffers that
// are listed already.
void plan_state(Schedule& schedule, int optimizer_states);

// Places everything on the device but what step.offload moves to the host's memory,
// which kernels of the device reach in place: what blocks never compute with, or the
// shards that their parameters are gathered from, too.
enum class Offload { kNothing, kOptimizer, kParameters };
void plan_device(Schedule& schedule, Offload offload);

// The shard that a bucket's parameters are gathered from at level 3; null: there is
// none.
const Buffer* gathered_shard(const Schedule& schedule, int bucket);
// Whether each Gather brings it from the host's memory to the device first.
bool gathers_from_host(const Schedule& schedule, int bucket);

// The type in which weights are kept and updated: float32, or float64 where blocks
// compute in it.
at::ScalarType kept_type(const Precision& precision);
// The type in which shards of the summed gradient are kept.
at::ScalarType sum_type(const Schedule& schedule);

// The buffers of a bucket that hold something, in the order of the plan; kNone: those
// that take turns.
std::vector<const Buffer*> planned(const Schedule& schedule, Buffer::Holds holds,
                                   int bucket = kNone,
                                   Buffer::Memory memory = Buffer::Memory::kHost);

// Values that are under way on a link, sent and not taken: each has room of its own.
inline constexpr int kSentAhead = 2;

// Bytes that values with memory of their own take, by action: the one that makes one
// takes them, the one that uses it last gives them back when it is done. The room of a
// link is taken by those that send first, and stays.
struct ValueMemory {
  std::vector<int64_t> takes, frees;
};
ValueMemory value_memory(const Role& role);

// By buffer: whether a rank of the role keeps it. Those of buckets are with what
// uses the bucket, what comes over links with the receiver.
std::vector<bool> kept_buffers(const Schedule& schedule, const Role& role);
int64_t kept_bytes(const Schedule& schedule, const Role& role);

}  // namespace cohort
