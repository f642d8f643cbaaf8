// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace cohort::test {

// A rank of an elastic run that counts steps, each an all-reduce over shared memory,
// and goes on with them after a loss. Arguments: STEPS PAUSE_MS TIMEOUT_MS [FAULT].
//
// Says "world GENERATION RANK/SIZE pid PID from STEP" as it joins one, "step N" every
// ten steps, and "end RANK at STEP". Its count is kept by the agent.
//
// FAULT, of rank R as it comes to step S:
//   exit:R:S     ends with code 3, in generation 0
//   always:R:S   kills itself, in every generation
//   hang:R:S     rests for good without a sign, in generation 0
//   leave:R:S    loses its group, and says so to the agent alone, in generation 0
//   last:R:0     kills itself after the last step of generation 0
//   late:R:0     kills itself when it has said that the run is done
//   rejoin:R:0   kills itself as it is about to join generation 1
//   absent:R:0   never joins generation 0; the others do not hear SIGTERM
int elastic_act(const std::vector<std::string>& args);

}  // namespace cohort::test
