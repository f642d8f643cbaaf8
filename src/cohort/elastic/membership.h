// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cohort/comm/world.h"
#include "cohort/communicator.h"
#include "cohort/elastic/agent_link.h"
#include "cohort/elastic/progress_page.h"

namespace cohort {

// Not an error: the run goes on with fewer ranks, and this one ends, with code 0.
class Dismissed : public std::exception {
 public:
  const char* what() const noexcept override {
    return "[elastic] the run goes on without this rank";
  }
};

// Memory that the agent holds under a name.
struct HeldMemory {
  std::string name;
  UniqueFd fd;
};

// A rank's tie to its agent: which world it is in, and what comes after it.
//
//   auto membership = Membership::from_env();
//   for (auto world = membership->first_world(); world;) {
//     try {
//       ... join, connect; auto watch = membership->watch(*comm); train; return 0;
//     } catch (const CommError& error) {
//       world = membership->next_world(error.what());
//     }
//   }
//
// A thread of its own waits for the agent's messages.
//
// Thread safety: first_world() and next_world() from one thread; all else from any.
class Membership {
 public:
  // Null: this launcher has no agent of ours, or the run is not elastic. Takes the
  // link, so only the first call in a process finds it.
  static std::unique_ptr<Membership> from_env();

  // Over a link whose first message is the progress page. Without `first` it is a
  // spare's.
  Membership(AgentLink link, std::optional<World> first);
  ~Membership();
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  bool is_spare() const { return !first_; }

  // This process's world: from the environment, or, for a spare, when the agent needs
  // it, however long that takes. Nothing: the run ended without needing it.
  std::optional<World> first_world();

  // While the guard lives, comm.abort(reason) is called, from another thread, as soon
  // as this rank's world is over. If it already is, at once. The guard goes before the
  // communicator does.
  class Watch;
  [[nodiscard]] Watch watch(Communicator& comm);

  // This rank's world is over, or a rank has lost it, so that it will be.
  bool is_over() const;

  // After a CommError: tells the agent, with the reason, and waits for the next world.
  // Throws Dismissed; CommError if the run ends instead, the agent is gone, or says
  // nothing for `limit`.
  World next_world(const std::string& why,
                   std::chrono::milliseconds limit = std::chrono::seconds(120));

  // The same; nothing where the run goes on, or has ended, without this rank.
  std::optional<World> world_after(const std::string& why);

  // Rank 0's, when all is done but to say so: afterwards the agent opens no world,
  // unless this rank dies, and a rank that loses the last one is dismissed. CommError
  // if this world is over already: then the run is not done. `limit` as above.
  void finish(std::chrono::milliseconds limit = std::chrono::seconds(120));
  bool finished() const;

  // The signal by which the user asked the agent for the end of the run; 0: none did. A
  // rank that came after it hears of it here alone, before its first world.
  int stop_signal() const { return stop_signal_.load(); }

  // On the progress page: the agent's measure of progress.
  void committed(int64_t steps);
  // The highest that any rank of the run noted, in any generation.
  int64_t committed_before() const;

  // The validation of epoch `epoch` is about to be told of. False: it was before, of it
  // or a later one, in any generation. If two ask at once, only one is answered true.
  bool validated(int64_t epoch);
  int64_t validated_before() const;  // the highest of these; 0: none

  // That the run is done is about to be told of. False: it was, by a rank that is gone.
  bool tell_done();

  // Memory that outlives this process: the agent holds the descriptor under a name; a
  // later holder of the name replaces it. CommError if the agent is gone.
  void hold(const std::string& name, int fd);
  // All that the agent holds, by name. CommError as above.
  std::vector<HeldMemory> held();

 private:
  struct Watched;

  void start();
  void listen() noexcept;
  void handle(LinkMessage& message);
  void abort_watched();
  bool tell(LinkMessage::Kind kind, std::string_view text, int fd = -1);
  std::optional<HeldMemory> held_behind(const std::string& name);
  bool over() const;  // with mutex_: what comes after the current world is known
  bool doomed() const { return over() || !broken_.empty(); }  // with mutex_
  void enter(const World& world);                             // with mutex_
  std::string why_over() const;

  AgentLink link_;
  UniqueFd wake_;  // ends the thread
  std::unique_ptr<ProgressPage> progress_page_;
  std::optional<World> first_;
  std::atomic<int> stop_signal_{0};

  mutable std::mutex mutex_;  // guards all below
  std::condition_variable news_;
  World current_;
  std::optional<World> next_;
  bool dismissed_ = false;
  bool finished_ = false;
  std::string ended_;   // why the run is over
  std::string broken_;  // why the current world will be
  std::optional<HeldMemory> answer_;
  std::vector<std::weak_ptr<Watched>> watched_;

  std::mutex asking_;  // one held() at a time
  std::thread thread_;
};

// Nobody leaves while others may still need its state, or look at its memory. Once the
// run is done, losing them is no harm. `membership` may be null.
void leave_world(Communicator& comm, const Membership* membership);

class Membership::Watch {
 public:
  explicit Watch(std::shared_ptr<Watched> watched);
  Watch(Watch&&) noexcept = default;
  Watch& operator=(Watch&&) = delete;
  ~Watch();  // an abort that has begun is finished first

 private:
  std::shared_ptr<Watched> watched_;
};

}  // namespace cohort
