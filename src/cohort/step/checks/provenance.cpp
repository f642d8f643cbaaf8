// SPDX-License-Identifier: Apache-2.0
// R7 to R9, R12, R13: where each value comes from. Each is followed through the list
// with what it is made of; nothing here asks how the list came about.
#include <algorithm>
#include <map>
#include <set>

#include "cohort/core/error.h"
#include "cohort/step/checks/checks.h"
#include "cohort/step/checks/summed_axes.h"

namespace cohort {
namespace {

// What a gradient or a loss adds up: of this rank, and over which axes all others' too.
struct Origin {
  std::set<std::pair<int, int>> parts;  // block and slice; of a loss: slices
  AxisSet summed;
  bool alone = false;  // one rank has this shard, or part, of it
};

class Provenance {
 public:
  Provenance(const Schedule& schedule, const RoleView& role, const StepFacts& facts,
             bool elastic)
      : schedule_(schedule), role_(role), facts_(facts), elastic_(elastic) {
    const auto& votes = role.all(ActionKind::kVote);
    if (!votes.empty()) vote_ = votes.front();
    const auto& needs = role.at(role.size() - 1).needs;
    mirrors_ =
        elastic || !role.all(ActionKind::kMirror).empty() ||
        std::find(needs.begin(), needs.end(), ActionKind::kMirror) != needs.end();
    for (int i : role.all(ActionKind::kReduce))
      reduces_loss_ |= role.at(i).buckets[0] == kLossBucket;
    for (int i : role.all(ActionKind::kForward)) {
      here_.insert(role.at(i).block);
      for (int bucket : role.at(i).buckets) uses_[bucket].insert(role.at(i).block);
    }
  }

  void check() {
    check_end();
    for (at_ = 0; at_ < role_.size(); ++at_) {
      follow(role_.at(at_));
      for (const auto& access : role_.at(at_).writes) writer_[name_of(access)] = at_;
    }
  }

 private:
  static Value name_of(const Access& access) { return access.value.any_version(); }

  [[noreturn]] void refuse(const char* rule, const std::string& why) const {
    role_.refuse(at_, text(rule, ": ", why));
  }

  void check_end() const {
    const auto& commits = role_.all(ActionKind::kCommit);
    if (commits.size() != 1 || commits[0] != role_.size() - 1)
      role_.refuse(text("R13: has ", commits.size(),
                        " Commits; legal: one, as its last action"));
  }

  void follow(const Action& action) {
    switch (action.kind) {
      case ActionKind::kForward:
      case ActionKind::kRecompute:
        check_slice_order(action, action.block);
        if (action.kind == ActionKind::kForward) note_loss(action);
        break;
      case ActionKind::kBackward:
      case ActionKind::kBackwardWeight:
        add_gradients(action);
        break;
      case ActionKind::kReduce:
      case ActionKind::kReduceScatter:
        sum(action);
        break;
      case ActionKind::kReduceUpdate:
        update_at_once(action);
        break;
      case ActionKind::kMirror:
        mirror(action);
        break;
      case ActionKind::kSend:
      case ActionKind::kRecv:
        hand_on(action);
        break;
      case ActionKind::kNorm:
      case ActionKind::kVote:
        check_all_gradients(action);
        if (action.kind == ActionKind::kVote) check_known_good(action);
        break;
      case ActionKind::kUpdate:
        check_gradient(action, action.buckets[0]);
        check_known_good(action);
        if (elastic_) check_gated(action);
        break;
      case ActionKind::kCommit:
        check_commit(action);
        break;
      default:
        break;
    }
  }

  // ---- R7, R8, R12: each gradient adds up all uses and slices, once, in order ----

  void add_gradients(const Action& action) {
    if (action.kind == ActionKind::kBackwardWeight &&
        std::none_of(action.reads.begin(), action.reads.end(),
                     [](const Access& a) { return a.value.what == What::kDeferred; }))
      refuse("R12", "reads nothing that a BackwardInput has left for it");
    std::set<int> written;
    for (const auto& access : action.writes) {
      if (access.value.what != What::kLeaf && access.value.what != What::kPartial)
        continue;
      written.insert(access.value.of);
      Origin& origin = gradients_[name_of(access)];
      if (!reads(action, name_of(access))) origin = {.alone = facts_.parts_alone};
      if (!origin.parts.emplace(action.block, action.slice).second)
        refuse("R7",
               text("adds to ", access.value.text(), " what is in it; legal: once"));
    }
    check_slice_order(action, action.block);
    if (schedule_.exact)
      for (int bucket : written) check_slice_done(action, bucket);
    for (int bucket : action.buckets)
      if (facts_.trained[bucket] && !written.contains(bucket))
        refuse("R7", text("adds nothing to the gradient of bucket ", bucket));
  }

  // Sums, statistics and samples depend on their order.
  void check_slice_order(const Action& action, int of) {
    int& newest = newest_slice_[{action.kind, of}];
    if (newest > action.slice)
      refuse("R8", text("is of slice ", action.slice, " and comes after slice ", newest,
                        "; legal: slice by slice"));
    newest = action.slice;
  }

  // A tree takes the gradient of a slice when all blocks of the bucket have added to
  // it.
  void check_slice_done(const Action& action, int bucket) {
    int& newest = newest_in_bucket_[bucket];
    if (newest > action.slice)
      refuse("R8", text("adds slice ", action.slice, " to bucket ", bucket,
                        " after slice ", newest, "; legal: slice by slice"));
    newest = action.slice;
  }

  // The sum of what a call reads, over the ranks of its group.
  void sum(const Action& action) {
    const Group* const group = schedule_.group_of(action.lane);
    if (!group) return;
    if (action.buckets == std::vector{kLossBucket}) return sum_loss(action, *group);
    const Origin total = total_of(action, *group);
    for (const auto& access : action.writes)
      if (access.value.what == What::kSum) gradients_[name_of(access)] = total;
  }

  Origin total_of(const Action& action, const Group& group) {
    if (action.slice != kNone) check_slice_order(action, action.buckets[0]);
    Origin total{.alone = action.kind == ActionKind::kReduceScatter};
    bool first = true;
    for (const auto& access : action.reads) {
      const auto it = gradients_.find(name_of(access));
      if (it == gradients_.end()) continue;
      const bool summed_here =
          access.value.what != What::kSum || is_only(action, access);
      const AxisSet summed =
          summed_here ? it->second.summed | group.axes : it->second.summed;
      if (summed_here && share_ranks(schedule_.mesh, it->second.summed, group.axes))
        refuse("R7", text("sums ", access.value.text(), " over ", group.name,
                          " once more; legal: once"));
      if (!first && !(summed == total.summed))
        refuse("R7", "adds sums over different ranks");
      for (const auto& part : it->second.parts)
        if (!total.parts.insert(part).second)
          refuse("R7", text("adds block ", part.first, ", slice ", part.second,
                            " once more; legal: once"));
      total.summed = summed;
      first = false;
    }
    if (first) total.summed = group.axes;
    return total;
  }

  // The sum is of nobody else's use.
  void update_at_once(const Action& action) {
    const int bucket = action.buckets[0];
    const Value sum{What::kSum, bucket};
    gradients_[sum] = total_of(action, *schedule_.group_of(action.lane));
    check_complete(bucket, {.value = sum});
    check_known_good(action);
    if (elastic_) refuse("R9", "changes state without reading the Vote");
  }

  // A sum that is read beside new gradients was made by calls like this one.
  bool is_only(const Action& action, const Access& access) const {
    return std::none_of(action.reads.begin(), action.reads.end(),
                        [&](const Access& a) {
                          return a.value.what == What::kLeaf &&
                                 a.value.of == access.value.of;
                        }) &&
           std::none_of(action.writes.begin(), action.writes.end(),
                        [](const Access& a) { return a.value.what == What::kLeaf; });
  }

  // What updates a bucket has all of it, in the second copy of a shard too.
  void check_gradient(const Action& action, int bucket) {
    const Access* gradient = nullptr;
    const Access* mirrored = nullptr;
    for (const auto& access : action.reads) {
      if (access.value.of != bucket || !gradients_.contains(name_of(access))) continue;
      (access.value.what == What::kMirrored ? mirrored : gradient) = &access;
    }
    const char* const rule = action.kind == ActionKind::kVote ? "R9" : "R7";
    if (!gradient) refuse(rule, text("reads no gradient of bucket ", bucket));
    check_complete(bucket, *gradient);
    if (mirrored) check_complete(bucket, *mirrored);
    if (gradients_.at(name_of(*gradient)).alone && mirrors_ && !mirrored)
      refuse("R9", text("uses a shard of bucket ", bucket,
                        " that one rank has: no Mirror hands it on"));
  }

  void check_complete(int bucket, const Access& gradient) {
    const Origin& origin = gradients_.at(name_of(gradient));
    for (int block : uses_[bucket])
      for (int slice = 0; slice < role_.role().slices; ++slice)
        if (!origin.parts.contains({block, slice}))
          refuse("R7", text("reads ", gradient.value.text(), " without block ", block,
                            ", slice ", slice));
    // Uses of a parameter may all be at one place.
    const AxisSet pipe = facts_.tied[bucket] ? AxisSet() : AxisSet{Axis::kPipe};
    const AxisSet wanted = contributors(schedule_, bucket);
    if (wanted.meets(kExpertAxes) &&
        origin.summed.meets(kRecutAxes | AxisSet{Axis::kExpert}))
      refuse("R7", text("reads ", gradient.value.text(),
                        ", which is summed over ranks with other experts"));
    if (const auto axis = missing_axis(schedule_.mesh, wanted, origin.summed | pipe))
      refuse("R7", text("reads ", gradient.value.text(), ", which is not summed along ",
                        ::cohort::name_of(*axis)));
  }

  void check_all_gradients(const Action& action) {
    for (const auto& [bucket, blocks] : uses_)
      if (facts_.trained[bucket]) check_gradient(action, bucket);
  }

  void mirror(const Action& action) {
    const Value sum{facts_.handed_on(), action.buckets[0]};
    const auto it = gradients_.find(sum);
    if (it == gradients_.end() || !it->second.alone)
      refuse("R9", "hands on a sum that others have; legal: a shard that one rank has");
    gradients_[{What::kMirrored, action.buckets[0]}] = it->second;
  }

  // To the place that holds a second copy of the state.
  void hand_on(const Action& action) {
    const bool sends = action.kind == ActionKind::kSend;
    const auto& moved = sends ? action.reads : action.writes;
    const Value value = moved.size() == 1 ? moved[0].value.any_version() : Value();
    if (value.what != What::kPartial && value.what != What::kSum) return;
    if (action.buckets != std::vector{value.of} || value.of < 0)
      refuse("R5", text("moves ", value.text(), " and names another bucket"));
    if (sends && gradients_.contains(value)) return check_complete(value.of, moved[0]);
    if (sends) refuse("R7", text("hands on no gradient of bucket ", value.of));
    gradients_[value] = {.summed = kDataAxes | kContextAxis};
  }

  // No update before the step is known good.
  void check_known_good(const Action& action) const {
    for (const auto& [kind, what] : {std::pair(ActionKind::kNorm, What::kNorm),
                                     std::pair(ActionKind::kVote, What::kVote)})
      if (action.kind != kind && !role_.all(kind).empty() && !reads(action, {what}))
        refuse("R9",
               text("does not read the ", ::cohort::name_of(what), " of the step"));
    if (reduces_loss_ && !reads(action, {What::kLoss}))
      refuse("R9", "does not read the loss of the step");
  }

  static bool reads(const Action& action, const Value& value) {
    return std::any_of(action.reads.begin(), action.reads.end(),
                       [&](const Access& a) { return name_of(a) == value; });
  }

  // ---- R9: nothing that a commit needs of others comes behind the vote ----

  void check_gated(const Action& action) const {
    if (!reads(action, {What::kVote}))
      refuse("R9", "changes state without reading the Vote");
    check_voted_on(action);
  }

  void check_voted_on(const Action& action) const {
    for (const auto& access : action.reads) {
      const What what = access.value.what;
      const bool of_step = what == What::kSum || what == What::kPartial ||
                           what == What::kMirrored || what == What::kNorm ||
                           what == What::kLoss || what == What::kFolded;
      const auto writer = writer_.find(name_of(access));
      if (!of_step || writer == writer_.end()) continue;
      if (vote_ == kNone || !role_.before(writer->second, vote_))
        refuse("R9", text("needs ", access.value.text(), " of action ", writer->second,
                          ", for which the Vote does not wait"));
    }
  }

  // ---- R13: a commit has all that the step was made for ----

  void note_loss(const Action& action) {
    for (const auto& access : action.writes)
      if (access.value.what == What::kLoss)
        losses_[name_of(access)] = {{{0, action.slice}}, {}};
  }

  void sum_loss(const Action& action, const Group& group) {
    Origin total{.summed = group.axes};
    for (const auto& access : action.reads)
      if (const auto it = losses_.find(name_of(access)); it != losses_.end()) {
        if (share_ranks(schedule_.mesh, it->second.summed, group.axes))
          refuse("R13", text("sums the loss over ", group.name, " once more"));
        total.parts.insert(it->second.parts.begin(), it->second.parts.end());
      }
    for (const auto& access : action.writes) losses_[name_of(access)] = total;
  }

  void check_commit(const Action& action) {
    std::set<int> states;
    Origin loss;
    for (const auto& access : action.reads) {
      const Value& value = access.value;
      if (value.what == What::kState && value.version > 0) states.insert(value.of);
      const auto it = losses_.find(name_of(access));
      if (it == losses_.end()) continue;
      loss.parts.insert(it->second.parts.begin(), it->second.parts.end());
      loss.summed = loss.summed | it->second.summed;
    }
    for (const auto& [bucket, blocks] : uses_)
      if (facts_.trained[bucket] && !facts_.forward_only && !states.contains(bucket))
        refuse("R13", text("does not read the new State of bucket ", bucket));
    for (const auto& [name, origin] : gradients_)
      if (!facts_.trained[name.of])
        refuse("R13", text("does not name bucket ", name.of, ", which has a ",
                           ::cohort::name_of(name.what)));
    for (int bucket : action.buckets)
      if (!states.contains(bucket))
        refuse("R13", text("names bucket ", bucket, " and reads no new State of it"));
    check_loss(loss);
    if (elastic_) check_voted_on(action);
  }

  void check_loss(const Origin& loss) const {
    const bool last_place =
        schedule_.mesh.size(Axis::kPipe) == 1 || here_.contains(facts_.blocks - 1);
    for (int slice = 0; last_place && slice < role_.role().slices; ++slice)
      if (!loss.parts.contains({0, slice}))
        refuse("R13", text("does not read the loss of slice ", slice));
    if (facts_.forward_only) return;
    const AxisSet wanted = kDataAxes | AxisSet{Axis::kPipe, Axis::kContext};
    if (const auto axis = missing_axis(schedule_.mesh, wanted, loss.summed))
      refuse("R13",
             text("reads a loss that is not summed along ", ::cohort::name_of(*axis)));
  }

  const Schedule& schedule_;
  const RoleView& role_;
  const StepFacts& facts_;
  bool elastic_;
  int at_ = 0;
  int vote_ = kNone;
  bool mirrors_ = false;  // shards that one rank has are handed on
  bool reduces_loss_ = false;
  std::set<int> here_;                 // blocks of this role
  std::map<int, std::set<int>> uses_;  // by bucket: blocks of this role
  std::map<Value, int> writer_;        // action that wrote the newest version
  std::map<Value, Origin> gradients_, losses_;
  std::map<std::pair<ActionKind, int>, int>
      newest_slice_;                     // by kind and block, or bucket
  std::map<int, int> newest_in_bucket_;  // slice, by bucket
};

}  // namespace

void check_provenance(const Schedule& schedule, const RoleView& role,
                      const StepFacts& facts, const CheckOptions& options) {
  const bool elastic = (options.elastic || schedule.elastic) && !facts.forward_only;
  Provenance(schedule, role, facts, elastic).check();
}

}  // namespace cohort
