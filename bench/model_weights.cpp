// SPDX-License-Identifier: Apache-2.0
// model_weights MODEL OUT [IN]: writes the weights of a model as safetensors, the first
// ones or those of the file IN. For bench/peers/torchvision_weights.py.
#include <cstdio>

#include "cohort/checkpoint/load_weights.h"
#include "cohort/checkpoint/safetensors.h"
#include "cohort/core/error.h"
#include "cohort/nn/models.h"
#include "cohort/step/weights_hash.h"

int main(int argc, char** argv) try {
  if (argc < 3) throw cohort::ConfigError("usage: model_weights MODEL OUT [IN]");
  const cohort::Chain chain =
      cohort::make_resnet(cohort::resnet_options(argv[1]), {.seed = 7});
  if (argc > 3) cohort::load_weights(argv[3], chain);
  auto state = chain.parameters();
  for (const auto& buffer : chain.buffers()) state.push_back(buffer);
  cohort::write_safetensors(argv[2], state);
  std::printf("%s\n", cohort::weights_hash(state).c_str());
  return 0;
} catch (const cohort::Error& error) {
  std::fprintf(stderr, "model_weights: %s\n", error.what());
  return 1;
}
