// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/rank_loop.h"

#include <utility>

#include "cohort/core/error.h"

namespace cohort {

std::optional<DoneEvent> RankLoop::run(const World& given) {
  const bool spare = membership_ && membership_->is_spare();
  if (spare) trainer_ = host_.make_trainer(nullptr);
  auto world = spare ? membership_->first_world() : std::optional(given);
  while (world) {
    try {
      return live(*world);
    } catch (const CommError& error) {
      if (!membership_) throw;
      world = next_world(error.what());
    }
  }
  return std::nullopt;
}

// To the end of the run, if the world lasts so long.
DoneEvent RankLoop::live(const World& world) {
  if (world.generation > 0 && !trainer_) trainer_ = host_.make_trainer(nullptr);
  past_.push_back(std::exchange(ties_, host_.connect(world)));
  Communicator* const comm = ties_.comm.get();
  std::optional<Membership::Watch> watch;
  if (membership_) watch.emplace(membership_->watch(*comm));
  if (!trainer_) {
    const auto node = world.num_nodes > 1 ? comm->split(world.node_rank) : nullptr;
    trainer_ = host_.make_trainer(node ? node.get() : comm);
  }
  Reporter* const reporter = world.rank == 0 ? &host_.reporter() : nullptr;
  try {
    enter(*comm, reporter);
  } catch (const CommError&) {
    if (!trainer_->has_begun()) trainer_.reset();  // the next world gets a new one
    throw;
  }
  past_.clear();
  host_.introduce(*comm, reporter, *trainer_);
  DoneEvent done = trainer_->fit();
  leave_world(*comm, membership_);
  return done;
}

// Where no step was ever made, nothing is lost that a new Trainer does not have.
void RankLoop::enter(Communicator& comm, Reporter* reporter) {
  try {
    return trainer_->enter(comm, reporter, ties_.gpu);
  } catch (const FirstStateLost&) {
    trainer_ = host_.make_trainer(nullptr);
  }
  trainer_->enter(comm, reporter, ties_.gpu);
}

// Ties to worlds that were lost stay until the Trainer has entered another: what it ran
// in the last one has the run's state.
std::optional<World> RankLoop::next_world(const std::string& why) {
  if (ties_.comm) ties_.comm->abort(why);
  return membership_->world_after(why);
}

}  // namespace cohort
