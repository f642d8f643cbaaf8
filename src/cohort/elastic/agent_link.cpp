// SPDX-License-Identifier: Apache-2.0
#include "cohort/elastic/agent_link.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "cohort/core/error.h"
#include "cohort/core/message.h"
#include "cohort/core/record.h"

namespace cohort {
namespace {

constexpr uint32_t kLinkVersion =
    0xC0480001;  // a mark, and the version in its last byte

struct Head {
  uint32_t version = kLinkVersion;
  uint32_t kind = 0;
  int32_t generation = 0;
  uint32_t text_bytes = 0;
};

bool makes_sense(const Head& head, const std::string& text, size_t num_fds) {
  return head.version == kLinkVersion && head.kind >= LinkMessage::kProgressPage &&
         head.kind <= LinkMessage::kTaken && head.text_bytes == text.size() &&
         num_fds <= 1;
}

bool is_world(const World& w) {
  return w.size >= 1 && w.rank >= 0 && w.rank < w.size && w.local_size >= 1 &&
         w.local_rank >= 0 && w.local_rank < w.local_size && w.generation >= 0 &&
         w.master_port >= 0 && w.master_port <= 65'535;
}

}  // namespace

std::pair<AgentLink, AgentLink> AgentLink::make_pair() {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
    throw CommError(
        text("[elastic.link] socketpair: ", strerror(errno), "; raise `ulimit -n`"));
  }
  return {AgentLink(UniqueFd(pair[0])), AgentLink(UniqueFd(pair[1]))};
}

bool AgentLink::send(LinkMessage::Kind kind, int generation, std::string_view text,
                     int fd, std::chrono::milliseconds limit) const {
  const Head head{kLinkVersion, kind, generation, static_cast<uint32_t>(text.size())};
  const std::span<const int> fds(&fd, fd >= 0 ? 1 : 0);
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (;;) {
    const int sent = try_send_message(socket_.get(), &head, sizeof head, text, fds);
    if (sent != 0) return sent > 0;
    if (std::chrono::steady_clock::now() >= deadline) return false;
    pollfd room{socket_.get(), POLLOUT, 0};
    ::poll(&room, 1, 100);
  }
}

std::optional<LinkMessage> AgentLink::receive() {
  if (!open_) return std::nullopt;
  Head head;
  LinkMessage message;
  std::vector<UniqueFd> fds;
  const int got = receive_message(socket_.get(), &head, sizeof head, message.text, fds);
  if (got == 0) return std::nullopt;
  if (got < 0 || !makes_sense(head, message.text, fds.size())) {
    open_ = false;
    return std::nullopt;
  }
  message.kind = static_cast<LinkMessage::Kind>(head.kind);
  message.generation = head.generation;
  if (!fds.empty()) message.fd = std::move(fds[0]);
  return message;
}

auto record_fields(Alike<World> auto& w) {
  return std::tie(w.rank, w.size, w.local_rank, w.local_size, w.node_rank, w.num_nodes,
                  w.generation, w.master_port, w.master_addr, w.token, w.launcher);
}

std::string encode(const World& world) { return to_record(world); }

World decode_world(const std::string& record) {
  constexpr const char* kNoWorld = "[elastic.link] the agent sent no world";
  auto world = read_record<World>(record, ErrorKind::kComm, kNoWorld);
  if (!is_world(world))
    throw CommError(text(kNoWorld, ": rank ", world.rank, " of ", world.size,
                         ", on its node ", world.local_rank, " of ", world.local_size,
                         ", port ", world.master_port));
  return world;
}

}  // namespace cohort
