// SPDX-License-Identifier: Apache-2.0
// Hand-written steps that break the rules of order: R1 to R6.
#include "cohort/step/testing_broken.h"

namespace cohort {
namespace {

using test::Broken;
using test::hold_back;
using test::Kind;
using test::share_buffer;
using test::transfer;

TEST(BrokenPipelines, OrderIsKept) {
  test::expect_refused(
      {
          // R1
          {"R1", "waits for a later action", "gpipe_2",
           [](Broken& s) { s.at(0, 1).waits = {5}; }},
          {"R1", "waits for itself", "1f1b_4",
           [](Broken& s) { s.at(2, 3).waits = {3}; }},
          {"R1", "waits for nothing that is there", "zero_bubble_2",
           [](Broken& s) { s.at(1, 2).waits = {-1}; }},
          {"R1", "computes twice", "gpipe_4",
           [](Broken& s) { s.insert(1, 4, s.at(1, s.find(1, Kind::kForward))); }},
          {"R1", "leaves out a version", "1f1b_2",
           [](Broken& s) {
             Action& update = s.at(0, s.find(0, Kind::kUpdate));
             update.writes[0].value.version = 2;
           }},
          // R2
          {"R2", "Forward does not wait for its Recv", "gpipe_2",
           [](Broken& s) { s.at(1, s.find(1, Kind::kForward)).waits.clear(); }},
          {"R2", "Send does not wait for its Forward", "1f1b_4",
           [](Broken& s) { s.at(0, s.find(0, Kind::kSend)).waits.clear(); }},
          {"R2", "Forward before its Recv", "1f1b_2",
           [](Broken& s) {
             const int recv = s.find(1, Kind::kRecv),
                       forward = s.find(1, Kind::kForward);
             s.exchange(1, recv, forward);
           }},
          {"R2", "reads the output of another slice", "gpipe_2_dp2",
           [](Broken& s) {
             Action& forward = s.at(0, s.find(0, Kind::kForward, 1, 0));
             forward.reads[0].value.slice = 1;
             s.derive(0);
           }},
          {"R2", "does not read its parameters", "1f1b_2",
           [](Broken& s) {
             s.forget(s.at(0, s.find(0, Kind::kForward)).reads, What::kWhole);
           }},
          {"R2", "does not read the gradient of its output", "gpipe_2",
           [](Broken& s) {
             s.forget(s.at(0, s.find(0, Kind::kBackward)).reads, What::kActGrad);
           }},
          {"R2", "Update does not wait for the sum", "gpipe_2_dp2",
           [](Broken& s) { s.at(0, s.find(0, Kind::kUpdate)).waits.clear(); }},
          // R3
          {"R3", "two slices in one buffer", "gpipe_2",
           [](Broken& s) {
             share_buffer(s, 1, transfer(s, 1, Kind::kRecv, What::kAct, 0),
                          transfer(s, 1, Kind::kRecv, What::kAct, 1));
           }},
          {"R3", "a buffer is written while it is read", "1f1b_4",
           [](Broken& s) {
             share_buffer(s, 3, transfer(s, 3, Kind::kRecv, What::kAct, 0),
                          transfer(s, 3, Kind::kRecv, What::kAct, 1));
           }},
          {"R3", "gradients and outputs in one buffer", "1f1b_4",
           [](Broken& s) {
             share_buffer(s, 1, transfer(s, 1, Kind::kRecv, What::kAct),
                          transfer(s, 1, Kind::kRecv, What::kActGrad));
           }},
          {"R3", "two chunks in one buffer", "interleaved_2x2",
           [](Broken& s) {
             share_buffer(s, 1, transfer(s, 1, Kind::kRecv, What::kAct, 0),
                          transfer(s, 1, Kind::kRecv, What::kAct, 2));
           }},
          // R4
          {"R4", "a place does not sum the loss", "1f1b_2",
           [](Broken& s) {
             const int loss = s.find(1, Kind::kReduce);
             s.at(1, loss).bytes = 8;
           }},
          {"R4", "sums and folds in another order", "1f1b_elastic_statistics",
           [](Broken& s) {
             s.exchange(1, s.find(1, Kind::kReduce), s.find(1, Kind::kFoldBuffers));
           }},
          {"R4", "reduces buckets in another order", "gpipe_uneven_slices",
           [](Broken& s) {
             int first = kNone, second = kNone;
             for (int i = 0; i < static_cast<int>(s.role(1).actions.size()); ++i)
               if (s.at(1, i).kind == Kind::kReduce && s.at(1, i).buckets[0] >= 0)
                 (first == kNone ? first : second) = i;
             s.exchange(1, first, second);
           }},
          {"R4", "calls another collective inside a block", "tensor_2_pipe_2_dp_2",
           [](Broken& s) {
             // One of two tensor-parallel ranks has a list of its own.
             Role odd = s.role(0);
             odd.ranks = {s.role(0).ranks.back()};
             s.role(0).ranks.pop_back();
             odd.actions[0].calls[0].op = CallOp::kAllGather;
             s.schedule().roles.push_back(odd);
           }},
          {"R4", "tokens go to experts that others do not wait for",
           "experts_2_of_dp_4",
           [](Broken& s) {
             Role odd = s.role(0);
             odd.ranks = {1, 3};
             s.role(0).ranks = {0, 2};
             odd.actions[s.find(0, Kind::kForward, 1)].calls.pop_back();
             s.schedule().roles.push_back(odd);
           }},
          {"R4", "makes one call less inside a block", "tensor_2",
           [](Broken& s) {
             Role odd = s.role(0);
             odd.ranks = {1};
             s.role(0).ranks = {0};
             odd.actions[3].calls.pop_back();
             s.schedule().roles.push_back(odd);
           }},
          // R5
          {"R5", "a Send is missing", "1f1b_4",
           [](Broken& s) { s.remove(1, transfer(s, 1, Kind::kSend, What::kAct)); }},
          {"R5", "a Send of a gradient is missing", "zero_bubble_2",
           [](Broken& s) {
             s.remove(1, transfer(s, 1, Kind::kSend, What::kActGrad, 2));
           }},
          {"R5", "two Sends change places", "gpipe_2",
           [](Broken& s) {
             const int a = transfer(s, 0, Kind::kSend, What::kAct, 2);
             const int b = transfer(s, 0, Kind::kSend, What::kAct, 3);
             s.move(0, a, b);
           }},
          {"R5", "sends another size", "1f1b_2",
           [](Broken& s) { s.at(0, s.find(0, Kind::kSend)).bytes += 4; }},
          {"R5", "sends on a link of others", "gpipe_4",
           [](Broken& s) {
             const int lane = s.at(1, transfer(s, 1, Kind::kSend, What::kAct)).lane;
             s.at(0, transfer(s, 0, Kind::kSend, What::kAct)).lane = lane;
             s.derive(0);
           }},
          {"R5", "computes on a link", "1f1b_4",
           [](Broken& s) {
             Action vote = s.at(0, s.find(0, Kind::kSend));
             vote.kind = Kind::kRecv;
             s.at(0, s.find(0, Kind::kSend)) = vote;
           }},
          // R6
          {"R6", "both wait for the other's gradient first", "1f1b_2",
           [](Broken& s) {
             hold_back(s, transfer(s, 0, Kind::kRecv, What::kActGrad, 0));
           }},
          {"R6", "outputs go out when all gradients are in", "gpipe_2",
           [](Broken& s) {
             for (int k = 0; k < 4; ++k)
               s.move(0, transfer(s, 0, Kind::kSend, What::kAct, 0),
                      s.find(0, Kind::kCommit) - 1);
           }},
          {"R6", "a place sums the loss before it computes", "1f1b_4",
           [](Broken& s) {
             s.move(0, s.find(0, Kind::kReduce), 0);
             s.at(0, 1).waits.push_back(0);
           }},
          {"R6", "chunks wait for one another", "interleaved_2x2",
           [](Broken& s) { hold_back(s, transfer(s, 0, Kind::kRecv, What::kAct, 0)); }},
      },
      6);
}

}  // namespace
}  // namespace cohort
