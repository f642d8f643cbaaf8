// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "cohort/engine/pending_work.h"
#include "cohort/engine/rank_groups.h"
#include "cohort/step/block.h"
#include "cohort/step/value.h"

namespace cohort {

// Values between two stages. How many tensors one is, their types, shapes and memory
// order depend on the block and the number of samples alone; the first time, the sender
// says so in a header, and both ends know from then on.
//
// Where ranks share memory a value is sent from there: so the receiver takes it while
// the sender computes. Thread safety: none.
class LinkValues {
 public:
  using Take = std::function<void(Values)>;

  // `values` are kept until they are sent. BugError if they are not what they were for
  // as many samples before.
  PendingWork send(RankChannels::Link link, const Value& what, int64_t rows,
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

  // Memory that has been sent from, by type and size.
  using Spare = std::map<std::pair<at::ScalarType, int64_t>, Values>;

  Values to_send(Communicator& comm, const Values& values);
  static Forms forms_of(const Values& values);
  static Tensor pack(const Forms& forms);
  static Forms unpack(const Tensor& header);

  std::map<Key, Forms> known_;
  Spare spare_;
};

}  // namespace cohort
