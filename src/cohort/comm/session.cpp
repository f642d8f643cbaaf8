// SPDX-License-Identifier: Apache-2.0
#include "cohort/session.h"

#include <cstdlib>

#include "cohort/comm/world.h"
#include "cohort/core/error.h"
#include "cohort/core/loaded_libtorch.h"
#include "cohort/core/processor.h"

namespace cohort {

Session Session::from_env(const ConnectOptions& options) {
  if (std::getenv("COHORT_ELASTIC"))
    throw ConfigError(
        "[session] this is a rank or a spare of `cohort launch --elastic`, whose "
        "worlds come and go; legal: ElasticRun::train() and the communicator it "
        "gives, or a launch without --elastic");
  require_built_libtorch();
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
