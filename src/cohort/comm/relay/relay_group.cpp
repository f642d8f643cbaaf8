// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/relay/relay_group.h"

#include <algorithm>
#include <exception>

#include "cohort/comm/device/patience.h"
#include "cohort/comm/relay/relay_call.h"
#include "cohort/core/error.h"

namespace cohort::relay_backend {
namespace {

using device_comm::kEndPatience;

}  // namespace

RelayGroup::RelayGroup(std::shared_ptr<RelayDriver> driver,
                       std::shared_ptr<Communicator> host,
                       const DeviceGroupOptions& options)
    : DeviceGroup(host, text("comm.", host->backend()), options),
      driver_(std::move(driver)),
      memory_(driver_, *host),
      thread_(host->split(0), memory_.word(), [this](const std::string& reason) {
        abort(device_comm::first_line_of(reason.c_str()));
      }) {}

RelayGroup::~RelayGroup() {
  const bool in_peace = std::uncaught_exceptions() == 0;
  if (!becomes_idle([&] { return !in_peace || is_broken(); })) {
    this->abort("a rank ended before its calls did");
    becomes_idle([] { return false; });
  }
  thread_.end();
}

std::unique_ptr<device_comm::DeviceCall> RelayGroup::call(const std::string& what,
                                                          device_comm::Stream lane) {
  return std::make_unique<RelayCall>(*this, what, lane);
}

void RelayGroup::pass(device_comm::Stream lane, const Passage& passage) {
  // Also where it is not made to its end, a copy may be under way.
  struct Leaves {
    RelayMemory& memory;
    device_comm::Stream lane;
    ~Leaves() { memory.leave(lane); }
  };
  std::byte* const at = memory_.take(lane, passage.bytes);
  const Leaves leaves{memory_, lane};
  passage.fill(at);
  const auto ticket = thread_.ask(
      [call = passage.call, at](Communicator& comm) { return call(comm, at); });
  driver_->tell(ticket.give);
  driver_->await(memory_.word_of_lanes(), ticket.number);
  passage.take(at);
}

bool RelayGroup::becomes_idle(const std::function<bool()>& gives_up) const {
  const auto deadline =
      Clock::now() + std::min<Clock::duration>(kEndPatience, options().timeout);
  device_comm::Pause pause;
  while (!memory_.is_idle()) {
    if (gives_up() || Clock::now() > deadline) return false;
    pause.take();
  }
  return true;
}

}  // namespace cohort::relay_backend
