// SPDX-License-Identifier: Apache-2.0
#include "cohort/session.h"

#include "cohort/comm/world.h"
#include "cohort/core/processor.h"

namespace cohort {

Session Session::from_env(const ConnectOptions& options) {
  describe_processor();
  settle_vector_math();
  return Session(world_from_env(), options);
}

Session::Session(const World& world, const ConnectOptions& options)
    : world_(world),
      store_(join(world_, options)),
      comm_(connect(world_, *store_, options)) {}

Session::Session(Session&&) noexcept = default;
Session::~Session() = default;

}  // namespace cohort
