// SPDX-License-Identifier: Apache-2.0
#include <sys/socket.h>

#include "cohort/core/record.h"
#include "cohort/elastic/agent_link.h"
#include "fuzz/target.h"

namespace cohort::fuzz {
namespace {

void receive_raw(std::string_view bytes) {
  auto [here, there] = AgentLink::make_pair();
  if (::send(there.fd(), bytes.data(), bytes.size(), MSG_DONTWAIT) < 0) return;
  const auto message = here.receive();
  demand(message.has_value() || !here.open() || bytes.empty(),
         "a message that is neither taken nor refused");
}

void round_trip(std::string_view bytes) {
  auto [here, there] = AgentLink::make_pair();
  if (!here.send(LinkMessage::kLost, 3, bytes)) return;
  const auto message = there.receive();
  demand(message && message->text == bytes && message->generation == 3,
         "a message that does not arrive");
}

}  // namespace
}  // namespace cohort::fuzz

// What an agent, its ranks and its zygote say to one another.
COHORT_FUZZ_TARGET(link) {
  receive_raw(bytes);
  round_trip(bytes);
  const std::string input =
      encode(World{}).substr(0, kRecordMarkBytes) + std::string(bytes);
  allow<CommError>([&] {
    demand(encode(decode_world(input)) == input, "a world that does not come back");
  });
  allow<CommError>([&] { (void)decode_world(std::string(bytes)); });
}
