// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "cohort/block.h"
#include "cohort/engine/pending_work.h"
#include "cohort/engine/rank_groups.h"
#include "cohort/step/value.h"

namespace cohort {

// Values between two stages. How many tensors one is, their types, shapes and memory
// order depend on the block and the number of samples alone; the first time, the sender
// says so in a header, and both ends know from then on.
//
// Where ranks share memory a value is sent from there: so the receiver takes it while
// the sender computes. kSentAhead of them are under way on a link, as the memory plan
// has it for the samples of a step; what comes on top is sent from where it is. On a
// device they always are. Thread safety: none.
class LinkValues {
 public:
  using Take = std::function<void(Values)>;

  explicit LinkValues(at::Device device) : device_(device) {}

  struct Sending {
    PendingWork work;
    bool copied;  // else the values must stay until it is done
  };
  // BugError if `values` are not what they were for as many samples before.
  Sending send(RankChannels::Link link, const Value& what, int64_t rows,
               const Values& values);
  PendingWork receive(RankChannels::Link link, const Value& what, int64_t rows,
                      Take take);

 private:
  struct Form {  // of one tensor
    bool defined = false;
    at::ScalarType dtype = at::kFloat;
    std::vector<int64_t> sizes, strides;

    bool operator==(const Form&) const = default;
  };
  using Forms = std::vector<Form>;
  using Key = std::tuple<What, int, int64_t>;  // of what, of which block, samples

  // Memory of a link to send from.
  struct Room {
    std::map<std::pair<at::ScalarType, int64_t>, Values> spare;  // by type and size
    int under_way = 0;  // values that are sent from it
  };

  void say(RankChannels::Link link, const Forms& forms);
  Values make(const Forms& forms) const;
  Values copies_of(Communicator& comm, const Values& values);
  void give_back(Communicator& comm, const Values& copies);
  static Forms forms_of(const Values& values);
  static Tensor pack(const Forms& forms);
  static Forms unpack(const Tensor& header);

  at::Device device_;
  std::map<Key, Forms> known_;
  std::deque<std::pair<Work, Tensor>> said_;  // headers on their way
  std::map<const Communicator*, Room> rooms_;
};

}  // namespace cohort
