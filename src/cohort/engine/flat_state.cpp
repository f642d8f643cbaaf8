// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/flat_state.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <sstream>

#include "cohort/core/error.h"
#include "cohort/step/buckets.h"
#include "cohort/step/chain_specs.h"
#include "cohort/step/generator.h"
#include "cohort/step/memory_plan.h"

namespace cohort {
namespace {

// Neighbours become one where nothing tells them apart.
void add_range(std::vector<ParameterRange>& ranges, const ParameterRange& next) {
  if (!ranges.empty() && !next.traits.adapts && ranges.back().traits == next.traits)
    ranges.back().end = next.end;
  else
    ranges.push_back(next);
}

// Moves memory in or out from under a tensor and all its views.
void set_memory(const Tensor& tensor, c10::DataPtr memory, size_t bytes) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(std::move(memory));
  storage->set_nbytes(bytes);
}

// A flat tensor whose memory comes later. It says that it had some, for LibTorch lets
// nobody have views of less.
Tensor without_memory(int64_t numel, at::ScalarType dtype, at::Device device) {
  c10::Storage storage(c10::Storage::use_byte_size_t(),
                       static_cast<size_t>(numel * size_of(dtype)), {nullptr, device},
                       c10::GetAllocator(device.type()),
                       /*resizable=*/true);
  Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage),
      c10::DispatchKeySet(c10::computeDispatchKey(dtype, at::kStrided, device)),
      c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous({numel});
  return tensor;
}

// Which part of a tensor a rank has is said in its memory order.
StateTensor state_tensor_of(const Block& block, size_t index) {
  const auto& [name, tensor] = block.parameters()[index];
  COHORT_CHECK(tensor.is_non_overlapping_and_dense(), name, " is not dense");
  StateTensor whole{.spec = parameter_spec(block, index),
                    .order = memory_order(tensor)};
  COHORT_CHECK(whole.spec.box.is_whole() || whole.order.empty(), name,
               " is cut, and not row-major");
  return whole;
}

// What the rank before this one along the axis of tensors has: the same, but
// for boxes.
std::vector<FlatParameter> places_beside(std::vector<FlatParameter> places,
                                         const Mesh& mesh, Communicator& world) {
  constexpr int64_t kRow = 2 + 3 * static_cast<int64_t>(kMostDims);
  Tensor mine = at::zeros({static_cast<int64_t>(places.size()), kRow}, at::kLong);
  int64_t* row = mine.data_ptr<int64_t>();
  for (const auto& place : places) {
    const TensorBox& box = place.tensor.spec.box;
    int64_t* at = row;
    *at++ = place.held();
    *at++ = static_cast<int64_t>(box.cut.size());
    for (const auto* list : {&box.cut, &box.from, &box.to})
      at = std::ranges::copy(*list, at).out;
    row += kRow;
  }
  Tensor theirs = at::empty_like(mine);
  const Transfer send{mesh.neighbour(world.rank(), Axis::kTensor, 1), mine};
  const Transfer receive{mesh.neighbour(world.rank(), Axis::kTensor, -1), theirs};
  world.exchange(std::span(&send, 1), std::span(&receive, 1)).wait();
  const int64_t* said = theirs.const_data_ptr<int64_t>();
  for (auto& place : places) {
    TensorBox& box = place.tensor.spec.box;
    const int64_t* at = said;
    place.tensor.spec.end = *at++;
    const int64_t dims = *at++;
    COHORT_CHECK(dims >= 0 && dims <= static_cast<int64_t>(kMostDims), "a part of ",
                 dims, " dimensions");
    for (auto* list : {&box.cut, &box.from, &box.to}) {
      list->assign(at, at + dims);
      at += dims;
    }
    said += kRow;
  }
  return places;
}

}  // namespace

ParameterTraits traits_of(const std::string& name, const Tensor& parameter,
                          const DecayOptions& options) {
  std::istringstream entries(options.no_decay);
  for (std::string entry; std::getline(entries, entry, ',');)
    if (!entry.empty() && name.find(entry) != std::string::npos)
      return {.weight_decay = 0, .adapts = false};
  return {.weight_decay = options.weight_decay, .adapts = parameter.dim() > 1};
}

FlatState::FlatState(const Chain& chain, const Schedule& schedule,
                     const UpdateRule& rule, const DecayOptions& decay,
                     const RankGroups& groups, bool takes_over, const StateHome& home)
    : home_(home), blocks_(chain.blocks.size()) {
  const c10::NoGradGuard no_grad;
  for (int i = 0; i < static_cast<int>(schedule.buckets.size()); ++i) {
    buckets_.push_back(frame_of(schedule, i, groups));
    largest_ = std::max(largest_, buckets_.back().numel);
  }
  lay_out(chain, schedule, rule, decay);
  if (has_mirrors(schedule) && mirror_axis(schedule) == Axis::kTensor)
    mirrored_places_ = places_beside(places_, schedule.mesh, *groups.world);
  FirstWeights first(places_, groups, takes_over);
  for (size_t i = 0; i < buckets_.size(); ++i) {
    BucketState& state = buckets_[i];
    fill(static_cast<int>(i), schedule, groups, first);
    const auto of = [&](Buffer::Holds holds) {
      return home_.planned(schedule, holds, static_cast<int>(i));
    };
    const auto moments = of(Buffer::Holds::kMoment);
    const auto mirrored = of(Buffer::Holds::kMirrorMoment);
    const size_t count = state.trained ? rule.states().size() : 0;
    COHORT_CHECK(moments.size() >= count, "the step was planned for ", moments.size(),
                 " states of the optimizer, which has ", count);
    for (size_t k = 0; k < count; ++k) {
      if (state.own) state.states.push_back(home_.allocate(*groups.shard, *moments[k]));
      if (state.mirror)
        state.mirror->states.push_back(home_.allocate(*groups.shard, *mirrored[k]));
    }
  }
}

FlatState::~FlatState() = default;

// What this rank will hold of a bucket, and no memory yet.
BucketState FlatState::frame_of(const Schedule& schedule, int index,
                                const RankGroups& groups) const {
  const Bucket& bucket = schedule.buckets[index];
  const Mesh& mesh = schedule.mesh;
  const int rank = groups.world->rank();
  const bool cut = !(bucket.cut == AxisSet());
  const bool copy = mirrors(schedule, rank, index);
  BucketState state;
  state.numel = bucket.numel;
  const int here = mesh.coordinate(rank, Axis::kPipe);
  state.own = is_at(schedule, index, here);
  state.counts = schedule.place_of(bucket) == here;
  state.trained = bucket.trained && (state.own || copy);
  if (copy) state.mirror = {.begin = 0, .count = bucket.numel};
  if (!state.own) return state;
  state.count = cut ? bucket.numel / groups.shard->size() : bucket.numel;
  state.begin = cut ? state.count * groups.shard->rank() : 0;
  if (is_mirrored(schedule, index) && mirror_axis(schedule) == Axis::kCut) {
    const int before = mesh.coordinate_beside(rank, Axis::kCut, -1);
    state.mirror = {.begin = state.count * before, .count = state.count};
  }
  if (is_mirrored(schedule, index) && mirror_axis(schedule) == Axis::kTensor)
    state.mirror = {.begin = 0, .count = bucket.numel};
  return state;
}

void FlatState::lay_out(const Chain& chain, const Schedule& schedule,
                        const UpdateRule& rule, const DecayOptions& decay) {
  for (size_t b = 0; b < chain.blocks.size(); ++b)
    for (size_t i = 0; i < chain.blocks[b]->parameters().size(); ++i) {
      const auto& [name, tensor] = chain.blocks[b]->parameters()[i];
      const auto [it, fresh] = by_parameter_.emplace(tensor.unsafeGetTensorImpl(),
                                                     static_cast<int>(places_.size()));
      if (fresh)
        places_.push_back({name, tensor, state_tensor_of(*chain.blocks[b], i)});
      blocks_[b].push_back(it->second);
    }
  const auto users = users_of_places();
  for (size_t i = 0; i < schedule.buckets.size(); ++i) {
    int64_t offset = 0;
    for (int block : schedule.buckets[i].blocks)
      for (int p : blocks_[block]) {
        FlatParameter& place = places_[p];
        if (place.bucket != kNone ||
            place.parameter.requires_grad() != schedule.buckets[i].trained)
          continue;
        const bool here = is_tied(schedule.buckets[i])
                              ? users[p] == schedule.buckets[i].blocks
                              : users[p].size() == 1;
        if (!here) continue;
        place.bucket = static_cast<int>(i);
        place.offset = offset;
        offset += padded(place.parameter.numel());
        ParameterTraits traits = traits_of(place.name, place.parameter, decay);
        traits.adapts &= rule.reductions() > 0 && schedule.buckets[i].trained;
        add_range(buckets_[i].ranges,
                  {place.offset, offset, traits, traits.adapts ? p : kNone});
      }
    COHORT_CHECK(offset <= buckets_[i].numel, "bucket ", i, " is too small");
  }
}

// By place: blocks, first to last.
std::vector<std::vector<int>> FlatState::users_of_places() const {
  std::vector<std::vector<int>> users(places_.size());
  for (int b = 0; b < static_cast<int>(blocks_.size()); ++b)
    for (const int p : blocks_[b])
      if (users[p].empty() || users[p].back() != b) users[p].push_back(b);
  return users;
}

// No rank makes more of a bucket than it keeps, where its first weights allow that.
void FlatState::fill(int bucket, const Schedule& schedule, const RankGroups& groups,
                     FirstWeights& first) {
  BucketState& state = buckets_[bucket];
  const auto allocate = [&](Buffer::Holds holds) {
    const auto found = home_.planned(schedule, holds, bucket);
    return found.empty() ? Tensor() : home_.allocate(*groups.shard, *found[0]);
  };
  if (state.own) {
    state.master = allocate(Buffer::Holds::kMaster);
    state.whole = allocate(Buffer::Holds::kWhole);
  }
  const bool apart = state.master.defined() || !state.own, kept = state.whole.defined();
  const bool has_room =
      !apart && state.whole.is_cpu() && state.whole.scalar_type() == at::kFloat;
  first.turn_to(bucket, state.numel, has_room ? state.whole : Tensor());
  if (state.mirror) {
    state.mirror->master = allocate(Buffer::Holds::kMirrorMaster);
    // Parts other than its own come from the ranks that make them.
    if (mirrored_places_.empty()) first.read(state.mirror->begin, state.mirror->master);
  }
  if (!state.own) return drop_parameters(bucket, schedule.precision.compute);

  if (apart) first.read(state.begin, state.master);
  if (kept && apart && state.count == state.numel)
    state.whole.copy_(state.master);
  else if (kept)
    first.read(0, state.whole);
  if (!apart) state.master = state.whole.narrow(0, state.begin, state.count);
  if (!kept) {
    state.travels_from_host = gathers_from_host(schedule, bucket);
    state.travels = allocate(Buffer::Holds::kTravelling);
    if (state.travels.defined())
      state.travels.copy_(state.master);
    else
      state.travels = state.master;
  }
  if (schedule.buckets[bucket].joined)
    state.joined = dynamic_cast<PeerMemory&>(*groups.shard).join(state.travels);
  if (!kept) return drop_parameters(bucket, schedule.precision.compute);
  for (const auto& place : places_)
    if (place.bucket == bucket) place.parameter.set_data(view(state.whole, place));
}

// Blocks keep their handles, without memory, which comes and goes, or never comes.
void FlatState::drop_parameters(int bucket, at::ScalarType dtype) {
  BucketState& state = buckets_[bucket];
  state.whole = without_memory(state.numel, dtype, home_.device());
  for (const auto& place : places_)
    if (place.bucket == bucket) place.parameter.set_data(view(state.whole, place));
  set_memory(state.whole, {nullptr, home_.device()}, 0);
}

Tensor FlatState::view(const Tensor& flat, const FlatParameter& place) {
  return flat.as_strided(place.parameter.sizes(), place.parameter.strides(),
                         flat.storage_offset() + place.offset);
}

int FlatState::place_of(const Tensor& parameter) const {
  return by_parameter_.at(parameter.unsafeGetTensorImpl());
}

// Every piece of memory fits the largest bucket, so that any can serve any: giving each
// back to the system would cost a page fault for every page of every gather.
void FlatState::acquire(int bucket) {
  const Tensor& whole = buckets_[bucket].whole;
  const bool joined = buckets_[bucket].joined.defined();
  if (!joined && spare_.empty())
    spare_.push_back(at::empty({largest_}, whole.options()));
  const Tensor memory = joined ? buckets_[bucket].joined : spare_.front();
  if (!joined) spare_.pop_front();
  void* const data = memory.data_ptr();
  auto* const keep = new Tensor(memory);
  set_memory(whole,
             c10::DataPtr(
                 data, keep, [](void* kept) { delete static_cast<Tensor*>(kept); },
                 home_.device()),
             static_cast<size_t>(buckets_[bucket].numel) * whole.element_size());
}

void FlatState::release(int bucket) {
  const Tensor& whole = buckets_[bucket].whole;
  const auto& memory = whole.storage().data_ptr();
  if (!buckets_[bucket].joined.defined())
    spare_.push_back(*static_cast<Tensor*>(memory.get_context()));
  set_memory(whole, {nullptr, home_.device()}, 0);
}

void FlatState::publish(int bucket, int64_t begin, int64_t count) {
  BucketState& state = buckets_[bucket];
  const bool travels = state.travels.defined();
  const Tensor target = travels ? state.travels.narrow(0, begin, count)
                                : state.whole.narrow(0, state.begin + begin, count);
  const Tensor from = state.master.narrow(0, begin, count);
  if (target.data_ptr() != from.data_ptr()) home_.kernels->narrow(from, target);
}

void add_piece(std::vector<StatePiece>& pieces, const FlatParameter& place,
               std::string name, TensorKind kind, const Tensor& flat, int64_t origin,
               ShardRange range) {
  const int64_t begin = std::max(place.offset, range.begin);
  const int64_t end = std::min(place.offset + place.held(), range.end);
  if (begin >= end) return;
  StatePiece& piece = pieces.emplace_back();
  piece.tensor = place.tensor;
  piece.tensor.spec.name = std::move(name);
  piece.tensor.spec.dtype = flat.scalar_type();
  piece.tensor.spec.begin = begin - place.offset;
  piece.tensor.spec.end = end - place.offset;
  piece.tensor.kind = kind;
  piece.data = flat.narrow(0, begin - origin, end - begin);
}

std::string moment_name(std::string_view state, const std::string& parameter) {
  return text("optimizer.", state, ".", parameter);
}

}  // namespace cohort
