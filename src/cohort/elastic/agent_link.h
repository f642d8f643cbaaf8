// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "cohort/comm/world.h"
#include "cohort/core/unique_fd.h"

namespace cohort {

// What a rank of an elastic run and its agent say to one another.
struct LinkMessage {
  enum Kind : uint32_t {
    // The agent's.
    kProgressPage =
        1,    // fd: the run's progress page; the first message, before the rank starts
    kWorld,   // text: a new World; what was before it is over
    kBroken,  // text: why; a rank has lost this world, so there will be another
    kDismissed,  // leave: the run ends without you, or goes on with fewer ranks
    kRunEnds,    // text: why; there is no next world
    kFinished,   // the answer to kFinish: there is no world after this one
    kHeld,       // text: name, fd: memory; without fd: there is no further one
    kStop,       // text: a signal; the user asks for the end of the run
    // The rank's.
    kWaiting,   // a spare is ready to be used
    kFinish,    // rank 0 is about to say that the run is done
    kLost,      // text: why this rank's world is broken
    kHold,      // text: name, fd: memory to hold
    kNextHeld,  // text: a name; asks for the first held one behind it
    kTaken,     // the process has taken its end of the link: it has an elastic loop
  };
  Kind kind = kProgressPage;
  int generation = 0;  // the sender's world
  std::string text;
  UniqueFd fd;
};

// One end of the socket between them.
//
// Thread safety: send() from any thread, receive() from one.
class AgentLink {
 public:
  explicit AgentLink(UniqueFd socket) : socket_(std::move(socket)) {}

  // Both ends. CommError when the system has no descriptor left.
  static std::pair<AgentLink, AgentLink> make_pair();

  // False when the other side is gone, or did not read for `limit`.
  bool send(LinkMessage::Kind kind, int generation, std::string_view text = {},
            int fd = -1, std::chrono::milliseconds limit = {}) const;

  // Does not wait. Ends the link when the other side is gone or makes no sense.
  std::optional<LinkMessage> receive();

  // Whether there may be more to receive.
  bool open() const { return open_; }
  // Also valid after the link has ended: senders may still use it.
  int fd() const { return socket_.get(); }

 private:
  UniqueFd socket_;
  bool open_ = true;
};

// The text of kWorld, a record. decode_world() throws CommError for what is no world.
std::string encode(const World& world);
World decode_world(const std::string& record);

}  // namespace cohort
