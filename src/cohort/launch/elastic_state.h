// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <ostream>

namespace cohort::process {

// Where the ranks of an elastic run are in their life.
//
// "Finished" means that rank 0 has said, or is about to say, that the run is done:
// there is no other world. It matters before a stop, during it and at the end alike.
// That some other rank has ended well matters only to a run that nobody has asked to
// stop.
enum class ElasticState {
  kRunning,           // a lost rank is replaced, spares are kept, a resize may come
  kFinishing,         // a rank has ended well; one that is lost is still replaced
  kFinished,          // nobody is replaced
  kStopping,          // all were asked to save and leave; a lost rank is replaced
  kStoppingFinished,  // the same, but nobody is replaced
  kEnding,            // no rank is worth another one: given up, killed or lost
  kEndingFinished,    // the same, after rank 0 has said that the run is done
};
inline constexpr int kNumElasticStates = 7;

// What happens to them. kResizeAsked and kSpareWanted change nothing: whether they are
// allowed is the question.
enum class ElasticEvent {
  kRankEndedWell,   // another one than rank 0
  kRankDied,        // the same, in any other way
  kRank0EndedWell,  // which says that the run is done
  kRank0Died,       // and what it was promised is void
  kRank0LastWord,   // it said that the run is done, then what it could not write
  kEndPromised,     // rank 0 asked for it: there is no other world
  kWorldOpened,     // after a loss, or on request
  kResizeAsked,     // by the user, or one that is under way goes on
  kSpareWanted,     // another one is to be started
  kStopAsked,       // by a signal to the agent
  kDiedOfStop,      // a rank that was asked to stop had nothing to save, or could not
  kGaveUp,          // on a loss: no restart is left, or none would help
  kKilled,          // all of them: by the agent, or with the zygote
};
inline constexpr int kNumElasticEvents = 13;

// The state after `event`, the same one if that changes nothing; none if there is no
// such event in that state.
std::optional<ElasticState> after(ElasticState state, ElasticEvent event);

std::ostream& operator<<(std::ostream& out, ElasticState state);
std::ostream& operator<<(std::ostream& out, ElasticEvent event);

// The state of one run. Begins with kRunning.
//
// Three facts are not in it, because they come and go in several states and change
// none: that the world is broken (since when, and why), that a resize is under way (to
// which size), and which signal asked for the stop.
class ElasticLife {
 public:
  ElasticState state() const { return state_; }
  bool allows(ElasticEvent event) const { return after(state_, event).has_value(); }
  // A failed check, and no change, if the state does not allow it.
  void on(ElasticEvent event);

  // Rank 0 has said, or is about to say, that the run is done.
  bool is_finished() const;
  // They were asked to stop, or worse.
  bool is_stopping() const;
  // No rank is worth another one.
  bool is_ending() const;

 private:
  ElasticState state_ = ElasticState::kRunning;
};

}  // namespace cohort::process
