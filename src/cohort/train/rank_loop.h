// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/comm/store.h"
#include "cohort/comm/world.h"
#include "cohort/communicator.h"
#include "cohort/elastic/membership.h"
#include "cohort/train/reporter.h"
#include "cohort/train/trainer.h"

namespace cohort {

// What a rank has of a world; the communicator goes first.
struct WorldTies {
  std::unique_ptr<Store> store;
  std::unique_ptr<Store> watched;  // the same store, in an elastic run
  std::unique_ptr<Communicator> comm;
  WorldGpu gpu = {};
};

// What the loop needs of the program around it. All calls come from the rank's thread.
class RankHost {
 public:
  virtual ~RankHost() = default;
  RankHost(const RankHost&) = delete;
  RankHost& operator=(const RankHost&) = delete;

  // Joins a world. CommError if it is over before it stands.
  virtual WorldTies connect(const World& world) = 0;

  // Makes this process's trainer, with a chain of its own; again, if the first was lost
  // with a world that never stood. Collective over the ranks of `node`; null: each rank
  // loads for itself.
  virtual std::unique_ptr<Trainer> make_trainer(Communicator* node) = 0;

  // Rank 0's, made when this process first is that rank.
  virtual Reporter& reporter() = 0;

  // Collective: a world stands, and its first step has not begun. `reporter` is null
  // but on rank 0.
  virtual void introduce(Communicator& comm, Reporter* reporter,
                         const Trainer& trainer) = 0;

 protected:
  RankHost() = default;
};

// One rank, through all the worlds of its run: connects, trains, and after a CommError
// goes on in the next world that the agent opens.
class RankLoop {
 public:
  // `membership` may be null: the first world is the only one, and what breaks it is
  // thrown.
  RankLoop(RankHost& host, Membership* membership)
      : host_(host), membership_(membership) {}

  // `given`: the world of this process; a spare has none yet. What was reported as
  // done; nothing if the run goes on, or has ended, without this rank.
  std::optional<DoneEvent> run(const World& given);

 private:
  DoneEvent live(const World& world);
  void enter(Communicator& comm, Reporter* reporter);
  std::optional<World> next_world(const std::string& why);

  RankHost& host_;
  Membership* membership_;
  std::vector<WorldTies> past_;  // to worlds that were lost
  WorldTies ties_;
  std::unique_ptr<Trainer> trainer_;
};

}  // namespace cohort
