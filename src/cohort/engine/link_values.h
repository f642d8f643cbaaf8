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
// order are its form. The first time, the sender says it in a header, and both ends
// know from then on: for each block and number of samples. A word goes with a value and
// says that its form is the known one. Where it is not, as with sequences of another
// length, what came is thrown away; from then on the word goes ahead of such values and
// says which of the forms so far it is, or that a new header follows.
//
// On a device forms do not change: the host would wait there for each word.
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
  // ConfigError, before anything is sent, if the form has changed on a device.
  Sending send(RankChannels::Link link, const Value& what, int64_t rows,
               const Values& values);
  PendingWork receive(RankChannels::Link link, const Value& what, int64_t rows,
                      Take take);

 private:
  struct Form {  // describes one tensor
    bool defined = false;
    at::ScalarType dtype = at::kFloat;
    std::vector<int64_t> sizes, strides;

    bool operator==(const Form&) const = default;
  };
  using Forms = std::vector<Form>;
  using Key = std::tuple<What, int, int64_t>;  // kind of value, block, samples

  // The forms that were said of such values: the same list at both ends.
  struct Known {
    std::vector<Forms> forms;
    bool changes = false;  // the word goes ahead
  };

  // Memory of a link to send from.
  struct Room {
    std::map<at::ScalarType, std::multimap<int64_t, Tensor>> spare;  // by elements
    int under_way = 0;  // values that are sent from it
    Tensor as_before;   // the word that most values go with
  };
  // Copies of values, and the memory that they begin.
  struct Copies {
    Values values, memory;
  };

  bool may_change() const { return device_.is_cpu(); }
  bool settle_form(RankChannels::Link link, const Value& what, Known& known,
                   const Forms& forms);
  void say(RankChannels::Link link, std::vector<Transfer> transfers);
  void say_which(RankChannels::Link link, Known& known, const Forms& forms);
  Tensor as_before(Communicator& comm);
  Values make(const Forms& forms) const;
  void take_data(RankChannels::Link link, const Forms& forms, const Take& take) const;
  PendingWork receive_word(RankChannels::Link link, Known& known, Take take) const;
  PendingWork receive_first(RankChannels::Link link, Known& known, Take take) const;
  Copies copies_of(Communicator& comm, const Values& values);
  static Tensor room_for(Communicator& comm, Room& room, const Tensor& value);
  void give_back(Communicator& comm, const Values& memory);
  static Forms forms_of(const Values& values);
  static Tensor pack(const Forms& forms);
  static Forms unpack(const Tensor& header);

  at::Device device_;
  std::map<Key, Known> known_;
  std::deque<std::pair<Work, std::vector<Transfer>>> said_;  // on its way
  std::map<const Communicator*, Room> rooms_;
};

}  // namespace cohort
