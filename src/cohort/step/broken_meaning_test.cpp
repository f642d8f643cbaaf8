// SPDX-License-Identifier: Apache-2.0
// Hand-written steps that break the rules of meaning: R7 to R13.
#include "cohort/step/testing_broken.h"

namespace cohort {
namespace {

using test::Broken;
using test::exchange_weights;
using test::Kind;
using test::update_early;

TEST(BrokenPipelines, MeaningIsKept) {
  test::expect_refused(
      {
          // R7
          {"R7", "a slice is missing in the gradient", "gpipe_2_dp2",
           [](Broken& s) {
             const int backward = s.find(0, Kind::kBackward, 0, 2);
             s.forget(s.at(0, backward).writes, What::kPartial);
             s.forget(s.at(0, backward).reads, What::kPartial);
             for (int i = backward + 1; i < static_cast<int>(s.role(0).actions.size());
                  ++i)
               for (auto* accesses : {&s.at(0, i).reads, &s.at(0, i).writes})
                 for (auto& access : *accesses)
                   if (access.value.what == What::kPartial && access.value.of == 0)
                     --access.value.version;
             s.derive(0);
           }},
          {"R7", "no sum over replicas", "1f1b_dp2_elastic",
           [](Broken& s) {
             Action& update = s.at(0, s.find(0, Kind::kUpdate));
             for (auto& access : update.reads)
               if (access.value.what == What::kSum)
                 access.value = {What::kPartial, 0, kNone, 3};
             s.derive(0);
           }},
          {"R7", "summed twice over replicas", "1f1b_tied_dp2",
           [](Broken& s) {
             for (int r : {0, 1})
               for (auto& action : s.role(r).actions)
                 if (action.kind == Kind::kReduce && action.buckets[0] == 0 &&
                     s.schedule().group_of(action.lane)->name == "tied")
                   action.lane = 2;
             s.derive(0).derive(1);
           }},
          {"R7", "a tied parameter is not summed along the pipeline", "1f1b_tied",
           [](Broken& s) {
             const int update = s.find(0, Kind::kUpdate);
             for (auto& access : s.at(0, update).reads)
               if (access.value.what == What::kSum)
                 access.value = {What::kPartial, 0, kNone, 5};
             s.derive(0);
           }},
          {"R7", "a gradient starts anew", "1f1b_2",
           [](Broken& s) {
             const int backward = s.find(0, Kind::kBackward, 0, 2);
             s.forget(s.at(0, backward).reads, What::kPartial);
           }},
          {"R7", "parts of a sequence are not summed", "context_2_dp_2_tensor_2_pipe_2",
           [](Broken& s) { s.schedule().groups[1].axes = kDataAxes; }},
          {"R7", "experts are summed with others", "experts_2_of_dp_4",
           [](Broken& s) {
             for (auto& action : s.role(0).actions)
               if (action.kind == Kind::kReduce && action.buckets[0] == 1)
                 action.lane = s.find_lane("all");
             s.derive(0);
           }},
          {"R7", "the same experts are not summed", "experts_2_of_dp_4",
           [](Broken& s) { s.schedule().groups[1].axes = AxisSet{Axis::kReplicate}; }},
          {"R13", "a loss of a part of each sequence", "context_2_dp_2_tensor_2_pipe_2",
           [](Broken& s) {
             s.schedule().groups[0].axes =
                 kDataAxes | AxisSet{Axis::kPipe, Axis::kTensor};
           }},
          // R8
          {"R8", "a later slice first", "gpipe_2",
           [](Broken& s) {
             // The pipeline as a whole turns slices 1 and 2 round.
             for (int r : {0, 1})
               for (auto& action : s.role(r).actions) {
                 const bool back = action.kind == Kind::kBackward ||
                                   ((action.kind == Kind::kSend) && r == 1) ||
                                   ((action.kind == Kind::kRecv) && r == 0);
                 if (!back || (action.slice != 1 && action.slice != 2)) continue;
                 const int other = 3 - action.slice;
                 for (auto* accesses : {&action.reads, &action.writes})
                   for (auto& access : *accesses)
                     if (access.value.slice == action.slice) access.value.slice = other;
                 action.slice = other;
               }
             s.derive(0).derive(1);
           }},
          {"R8", "weights of the last two slices exchanged", "zero_bubble_2",
           [](Broken& s) { exchange_weights(s, 1, 2, 4); }},
          {"R8", "at another place", "zero_bubble_4",
           [](Broken& s) { exchange_weights(s, 3, 3, 6); }},
          {"R8", "and on replicas", "zero_bubble_dp2_elastic",
           [](Broken& s) { exchange_weights(s, 1, 1, 2); }},
          // R9
          {"R9", "updates without reading the vote", "1f1b_dp2_elastic",
           [](Broken& s) {
             s.forget(s.at(0, s.find(0, Kind::kUpdate)).reads, What::kVote).derive(0);
           }},
          {"R9", "votes without waiting for a sum", "zero_bubble_dp2_elastic",
           [](Broken& s) {
             const int vote = s.find(0, Kind::kVote);
             s.forget(s.at(0, vote).reads, What::kSum).derive(0);
           }},
          {"R9", "folds statistics behind the vote", "1f1b_elastic_statistics",
           [](Broken& s) {
             for (int r : {0, 1}) {
               s.forget(s.at(r, s.find(r, Kind::kVote)).reads, What::kFolded);
               s.exchange(r, s.find(r, Kind::kFoldBuffers), s.find(r, Kind::kVote));
             }
           }},
          {"R9", "sums the loss behind the vote", "1f1b_elastic_statistics",
           [](Broken& s) {
             for (int r : {0, 1}) {
               s.forget(s.at(r, s.find(r, Kind::kVote)).reads, What::kLoss);
               s.move(r, s.find(r, Kind::kReduce), s.find(r, Kind::kVote));
             }
           }},
          // R10
          {"R10", "a flight is used twice", "1f1b_2",
           [](Broken& s) {
             Action& next = s.at(0, s.find(0, Kind::kBackward, 0, 1));
             next.reads.push_back({{What::kFlight, 0, 0}});
           }},
          {"R10", "a flight is kept beside a recompute", "1f1b_recompute",
           [](Broken& s) {
             // The block has no backward.
             Action& forward = s.at(2, s.find(2, Kind::kForward));
             forward.writes.push_back({{What::kFlight, 99, 0}});
             s.derive(2);
           }},
          {"R10", "what was deferred is never used", "zero_bubble_2",
           [](Broken& s) {
             Action& input = s.at(0, s.find(0, Kind::kBackwardInput));
             input.writes.push_back({{What::kDeferred, 99, 0}});
             s.derive(0);
           }},
          {"R10", "what was deferred is used twice", "zero_bubble_4",
           [](Broken& s) {
             Action& next = s.at(2, s.find(2, Kind::kBackwardWeight, 2, 1));
             next.reads.push_back({{What::kDeferred, 2, 0}});
           }},
          // R11
          {"R11", "backward after an update", "gpipe_2",
           [](Broken& s) { update_early(s, 0, s.find(0, Kind::kBackward), 0); }},
          {"R11", "recompute after an update", "gpipe_recompute",
           [](Broken& s) { update_early(s, 1, s.find(1, Kind::kRecompute), 3); }},
          {"R11", "inputs' gradient after an update", "zero_bubble_2",
           [](Broken& s) { update_early(s, 1, s.find(1, Kind::kBackwardInput), 3); }},
          {"R11", "weights' gradient after an update", "zero_bubble_4",
           [](Broken& s) { update_early(s, 3, s.find(3, Kind::kBackwardWeight), 3); }},
          // R12
          {"R12", "weights before inputs", "zero_bubble_2",
           [](Broken& s) {
             s.exchange(0, s.find(0, Kind::kBackwardInput, 1, 0),
                        s.find(0, Kind::kBackwardWeight, 1, 0));
           }},
          {"R12", "no weights", "zero_bubble_4",
           [](Broken& s) { s.remove(1, s.find_last(1, Kind::kBackwardWeight)); }},
          {"R12", "no inputs", "zero_bubble_2",
           [](Broken& s) { s.remove(0, s.find_last(0, Kind::kBackwardInput)); }},
          {"R12", "both at once, and its parts", "zero_bubble_dp2_elastic",
           [](Broken& s) {
             const int input = s.find(0, Kind::kBackwardInput);
             Action both = s.at(0, input);
             both.kind = Kind::kBackward;
             s.insert(0, input, both);
           }},
          // R13
          {"R13", "Commit does not read a new state", "gpipe_2",
           [](Broken& s) {
             s.forget(s.role(0).actions.back().reads, What::kState).derive(0);
           }},
          {"R13", "Commit does not read the loss", "1f1b_4",
           [](Broken& s) {
             s.forget(s.role(3).actions.back().reads, What::kLoss).derive(3);
           }},
          {"R13", "the loss of a slice is left out", "1f1b_2",
           [](Broken& s) {
             auto& reads = s.at(1, s.find(1, Kind::kReduce)).reads;
             reads.erase(reads.begin() + 2);
             s.derive(1);
           }},
          {"R13", "Commit does not read the statistics", "gpipe_statistics",
           [](Broken& s) {
             s.forget(s.role(1).actions.back().reads, What::kFolded).derive(1);
           }},
          {"R13", "the loss is not summed along the pipeline", "gpipe_2_dp2",
           [](Broken& s) {
             for (int r : {0, 1}) s.at(r, s.find(r, Kind::kReduce)).lane = 2;
             s.derive(0).derive(1);
           }},
      },
      7);
}

}  // namespace
}  // namespace cohort
