// SPDX-License-Identifier: Apache-2.0
// A program with a recipe of its own that has one fault, by COHORT_ODD:
//   name   the recipe has the name of another one
//   key    one of its keys is a key of every recipe
//   rank   its model depends on the rank
#include <ATen/ATen.h>

#include <cstdlib>
#include <string>

#include "cohort/program.h"

namespace {

using cohort::Batch, cohort::Chain, cohort::Config, cohort::Context, cohort::Tensor;

std::string odd() {
  const char* given = std::getenv("COHORT_ODD");
  return given ? given : "";
}

class Points final : public cohort::Dataset {
 public:
  int64_t size() const override { return 64; }
  std::span<const std::string> fields() const override { return fields_; }
  Batch gather(std::span<const int64_t> ids,
               std::span<const std::string> fields) const override {
    const auto count = static_cast<int64_t>(ids.size());
    Batch batch = cohort::empty_batch(*this, ids, fields);
    for (const auto& field : fields)
      batch.at(field) =
          field == "input" ? at::ones({count, 2}) : at::zeros({count}, at::kLong);
    return batch;
  }
  std::string describe() const override { return "points: 64 of 2 numbers"; }

 private:
  std::vector<std::string> fields_ = {"input", "target"};
};

void add_layer(Chain& chain, const std::string& name, int64_t in, int64_t out) {
  cohort::TensorLists tensors;
  const cohort::Linear linear(tensors, name, in, out, {.seed = 1});
  const int place = static_cast<int>(chain.blocks.size());
  chain.blocks.push_back(std::make_unique<cohort::FunctionBlock>(
      name, std::move(tensors),
      [linear](const Tensor& x, Context& context) { return linear(x, context); },
      cohort::fields_of_layer(place)));
}

class OddRecipe final : public cohort::Recipe {
 public:
  std::string_view name() const override { return odd() == "name" ? "mlp" : "odd"; }
  std::string_view help() const override { return "with one fault"; }
  Config defaults() const override {
    auto keys = cohort::common_keys();
    if (odd() == "key") keys.add_int("optim.lr", 1, "is there already");
    Config config(std::move(keys));
    config.set("epochs", "2", "recipe odd");
    config.set("batch", "16", "recipe odd");
    return config;
  }
  Chain make_chain(const Config&, const cohort::TensorPart& part) const override {
    cohort::require_whole_layers(*this, part);
    const char* rank = std::getenv("RANK");
    const int64_t more = odd() == "rank" && rank ? std::atoi(rank) : 0;
    Chain chain{.blocks = {}, .loss = cohort::classifier_loss()};
    add_layer(chain, "first", 2, 4);
    add_layer(chain, "second", 4, 3 + more);
    return chain;
  }
  std::unique_ptr<cohort::DataLoading> load(const Config&, bool) const override {
    return cohort::data_at_hand({.train = std::make_unique<Points>()});
  }
};

}  // namespace

int main(int argc, char** argv) {
  return cohort::run_program(argc, argv, {std::make_shared<OddRecipe>()});
}
