// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/load_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/checkpoint/safetensors.h"
#include "cohort/core/error.h"
#include "cohort/core/testing_folder.h"
#include "cohort/nn/models.h"
#include "cohort/step/weights_hash.h"

namespace cohort {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::vector<NamedTensor> state_of(const Chain& chain) {
  auto state = chain.parameters();
  for (const auto& buffer : chain.buffers()) state.push_back(buffer);
  return state;
}

class LoadWeights : public testing::Test {
 protected:
  static Chain make(uint64_t seed) {
    return make_resnet({.depths = {1}, .width = 4, .classes = 3}, {.seed = seed});
  }

  std::string error_of(const std::vector<NamedTensor>& tensors) {
    write_safetensors(path_, tensors);
    const Chain chain = make(2);
    const std::string before = weights_hash(state_of(chain));
    try {
      load_weights(path_, chain);
    } catch (const CheckpointError& error) {
      EXPECT_EQ(weights_hash(state_of(chain)), before);
      return error.what();
    }
    return "";
  }

  test::TempFolder folder_;
  std::string path_ = folder_ / "model.safetensors";
};

TEST_F(LoadWeights, BringsBackWhatWasWritten) {
  const Chain first = make(1), second = make(2);
  first.buffers()[0].tensor.fill_(0.5);
  write_safetensors(path_, state_of(first));
  load_weights(path_, second);
  EXPECT_EQ(weights_hash(state_of(second)), weights_hash(state_of(first)));
  // Filters keep the memory order that convolutions are fast with.
  EXPECT_TRUE(
      second.parameters()[0].tensor.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(second.parameters()[0].tensor.requires_grad());
}

TEST_F(LoadWeights, TakesPyTorchsCountsAndOtherDtypes) {
  const Chain first = make(1);
  auto state = state_of(first);
  for (auto& [name, tensor] : state) tensor = tensor.detach().to(at::kDouble);
  state.push_back({"bn1.num_batches_tracked", at::zeros({}, at::kLong)});
  EXPECT_EQ(error_of(state), "");
}

TEST_F(LoadWeights, NamesMissingAndUnknownTensorsWithTheNearest) {
  auto state = state_of(make(1));
  for (auto& [name, tensor] : state)
    if (name == "layer1.0.conv2.weight") name = "layer1.0.conv2.weights";
  EXPECT_THAT(error_of(state),
              AllOf(HasSubstr(path_),
                    HasSubstr("missing in the file: "
                              "'layer1.0.conv2.weight' (nearest: "
                              "'layer1.0.conv2.weights')"),
                    HasSubstr("unknown to the model: 'layer1.0.conv2.weights'"),
                    Not(HasSubstr("another form"))));
}

TEST_F(LoadWeights, NamesAFewOfMany) {
  EXPECT_THAT(error_of({}), HasSubstr("'bn1.running_mean', 'bn1.running_var' and "));
}

TEST_F(LoadWeights, NamesAnotherShape) {
  auto state = state_of(make(1));
  for (auto& [name, tensor] : state)
    if (name == "fc.weight") tensor = at::zeros({10, 16});
  EXPECT_THAT(error_of(state), HasSubstr("'fc.weight' is 10x16, expected 3x16"));
  for (auto& [name, tensor] : state)
    if (name == "fc.weight") tensor = at::zeros({3, 16}, at::kLong);
  EXPECT_THAT(error_of(state), HasSubstr("'fc.weight' is Long, expected Float"));
}

TEST_F(LoadWeights, SaysThatThereIsNoFile) {
  EXPECT_THROW(load_weights(folder_ / "none", make(1)), CheckpointError);
}

}  // namespace
}  // namespace cohort
