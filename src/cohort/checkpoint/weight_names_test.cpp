// SPDX-License-Identifier: Apache-2.0
// Files as they lie on the Hugging Face Hub, made small.
#include "cohort/checkpoint/weight_names.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "cohort/checkpoint/load_weights.h"
#include "cohort/checkpoint/safetensors.h"
#include "cohort/checkpoint/tensor_source.h"
#include "cohort/core/error.h"
#include "cohort/core/testing_folder.h"
#include "cohort/nn/language_models.h"
#include "cohort/step/chain_specs.h"
#include "cohort/step/weights_hash.h"

namespace cohort {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

using Tensors = std::map<std::string, Tensor>;

Chain small_gpt(uint64_t seed, bool tie = true) {
  return make_gpt(
      {.vocab = 11, .context = 8, .width = 8, .depth = 2, .heads = 2, .tie = tie},
      {.seed = seed});
}

Chain small_llama(uint64_t seed, bool tie) {
  return make_llama({.vocab = 11,
                     .context = 8,
                     .width = 8,
                     .depth = 2,
                     .heads = 2,
                     .kv_heads = 1,
                     .hidden = 12,
                     .tie = tie},
                    {.seed = seed});
}

Chain small_bert(uint64_t seed) {
  return make_bert(
      {.vocab = 11, .context = 8, .width = 8, .depth = 1, .heads = 2, .hidden = 12},
      {.seed = seed});
}

Tensors tensors_of(const Chain& chain) {
  Tensors all;
  for (const auto& [name, tensor] : chain.parameters()) all[name] = tensor.detach();
  return all;
}

std::string replaced(std::string name, const std::string& from, const std::string& to) {
  const size_t at = name.find(from);
  return at == name.npos ? name : name.replace(at, from.size(), to);
}

Tensors renamed(const Tensors& tensors, const std::string& from,
                const std::string& to) {
  Tensors out;
  for (const auto& [name, tensor] : tensors) out[replaced(name, from, to)] = tensor;
  return out;
}

class WeightsOfTheHub : public testing::Test {
 protected:
  void write(const Tensors& tensors) {
    std::vector<NamedTensor> list;
    for (const auto& [name, tensor] : tensors) list.push_back({name, tensor});
    write_safetensors(path_, list);
  }

  // What is noted; both ways of looking at the file agree.
  std::string note(const Chain& into) const {
    return check_weights(path_, parameter_specs(into));
  }

  std::string refusal(const Tensors& tensors, const Chain& into) {
    write(tensors);
    std::string why[2];
    for (int i = 0; i < 2; ++i) try {
        i == 0 ? (void)note(into) : load_weights(path_, into);
      } catch (const CheckpointError& error) {
        why[i] = error.what();
      }
    EXPECT_EQ(why[0], why[1]);
    return why[0];
  }

  // Returns the note.
  std::string loads(const Tensors& file, const Chain& into, const Chain& wanted) {
    write(file);
    const std::string told = note(into);
    load_weights(path_, into);
    EXPECT_EQ(weights_hash(into.parameters()), weights_hash(wanted.parameters()));
    return told;
  }

  test::TempFolder folder_;
  std::string path_ = folder_ / "model.safetensors";
};

TEST_F(WeightsOfTheHub, Gpt2HasNoPrefixAndItsMasks) {
  const Chain given = small_gpt(1);
  Tensors file = renamed(tensors_of(given), "transformer.", "");
  ASSERT_TRUE(file.contains("wte.weight"));
  for (const char* layer : {"h.0.", "h.1."}) {
    file[std::string(layer) + "attn.bias"] = at::ones({1, 1, 8, 8});
    file[std::string(layer) + "attn.masked_bias"] = at::full({}, -1e4);
  }
  EXPECT_EQ(loads(file, small_gpt(2), given), "");
}

TEST_F(WeightsOfTheHub, ATiedHeadMayBeThereAgain) {
  const Chain given = small_gpt(1);
  Tensors file = tensors_of(given);
  file["lm_head.weight"] = file.at("transformer.wte.weight").clone();
  EXPECT_EQ(loads(file, small_gpt(2), given), "");
  file["transformer.h.0.attn.bias"] = at::ones({1, 1, 8, 8}, at::kByte);
  EXPECT_EQ(loads(file, small_gpt(2), given), "");
  file.erase("transformer.wte.weight");
  EXPECT_EQ(loads(file, small_gpt(2), given), "");
}

TEST_F(WeightsOfTheHub, AHeadOfItsOwnIsNoTiedOne) {
  Tensors file = tensors_of(small_gpt(1));
  const Chain into = small_gpt(2);
  file["lm_head.weight"] = at::ones({11, 8});
  write(file);
  const std::string before = weights_hash(into.parameters());
  EXPECT_THAT([&] { load_weights(path_, into); },
              testing::ThrowsMessage<CheckpointError>(
                  HasSubstr("'lm_head.weight' is not 'transformer.wte.weight', and the "
                            "model has one tensor for both")));
  EXPECT_EQ(weights_hash(into.parameters()), before);
  file["lm_head.weight"] = at::ones({12, 8});
  EXPECT_THAT(refusal(file, into), HasSubstr("'lm_head.weight' is 12x8, expected "));
}

TEST_F(WeightsOfTheHub, LlamaHasFrequenciesAndItsHeadMayBeTied) {
  for (const bool tie : {false, true}) {
    const Chain given = small_llama(1, tie);
    Tensors file = tensors_of(given);
    EXPECT_EQ(file.contains("lm_head.weight"), !tie);
    file["model.layers.0.self_attn.rotary_emb.inv_freq"] = at::ones({2});
    file["model.rotary_emb.inv_freq"] = at::ones({2});
    EXPECT_EQ(loads(file, small_llama(2, tie), given), "");
  }
}

TEST_F(WeightsOfTheHub, AHeadThatIsTiedInTheFileBeginsAsTheEmbedding) {
  const Chain given = small_llama(1, /*tie=*/true), into = small_llama(2, false);
  write(tensors_of(given));
  EXPECT_THAT(note(into), HasSubstr("tied in the file: 'lm_head.weight' begins as "
                                    "'model.embed_tokens.weight'"));
  load_weights(path_, into);
  const Tensors loaded = tensors_of(into);
  EXPECT_TRUE(at::equal(loaded.at("lm_head.weight"),
                        tensors_of(given).at("model.embed_tokens.weight")));
}

TEST_F(WeightsOfTheHub, BertHasOldNamesAndPartsThatAreNotNeeded) {
  const Chain given = small_bert(1);
  Tensors file;
  for (const auto& [name, tensor] : tensors_of(given))
    file[replaced(replaced(name, "LayerNorm.weight", "LayerNorm.gamma"),
                  "LayerNorm.bias", "LayerNorm.beta")] = tensor;
  ASSERT_TRUE(file.contains("bert.embeddings.LayerNorm.gamma"));
  file["cls.predictions.decoder.weight"] =
      file.at("bert.embeddings.word_embeddings.weight").clone();
  file["cls.predictions.decoder.bias"] = file.at("cls.predictions.bias").clone();
  file["bert.embeddings.position_ids"] = at::arange(8).unsqueeze(0);
  EXPECT_EQ(loads(file, small_bert(2), given), "");
  file["bert.pooler.dense.weight"] = at::ones({8, 8});
  file["bert.pooler.dense.bias"] = at::ones({8});
  file["cls.seq_relationship.weight"] = at::ones({2, 8});
  file["cls.seq_relationship.bias"] = at::ones({2});
  EXPECT_EQ(loads(file, small_bert(2), given),
            "[checkpoint.weights] " + path_ +
                "; passed over, for the model does without: 'bert.pooler.dense.bias', "
                "'bert.pooler.dense.weight', 'cls.seq_relationship.bias' and 1 more");
}

TEST_F(WeightsOfTheHub, BertMayHaveNoPrefix) {
  const Chain given = small_bert(1);
  EXPECT_EQ(loads(renamed(tensors_of(given), "bert.", ""), small_bert(2), given), "");
}

TEST_F(WeightsOfTheHub, OtherTensorsAreRefusedWithTheNearestNames) {
  Tensors file = renamed(tensors_of(small_gpt(1)), "transformer.", "");
  file["h.0.attn.c_atn.bias"] = file.at("h.0.attn.c_attn.bias");
  file.erase("h.0.attn.c_attn.bias");
  file["h.0.attn.rotary"] = at::ones({1});
  EXPECT_THAT(refusal(file, small_gpt(2)),
              AllOf(HasSubstr("missing in the file: 'transformer.h.0.attn.c_attn.bias' "
                              "(nearest: 'h.0.attn.c_atn.bias')"),
                    HasSubstr("unknown to the model: 'h.0.attn.c_atn.bias'"),
                    HasSubstr("'h.0.attn.rotary'")));
  // What BERT does without is unknown to others.
  file = tensors_of(small_gpt(1));
  file["pooler.dense.bias"] = at::ones({8});
  EXPECT_THAT(refusal(file, small_gpt(2)),
              HasSubstr("unknown to the model: 'pooler.dense.bias'"));
  file = tensors_of(small_gpt(1));
  file["wpe.weight"] = file.at("transformer.wpe.weight");
  EXPECT_THAT(refusal(file, small_gpt(2)),
              HasSubstr("twice in the file: 'transformer.wpe.weight', as "
                        "'transformer.wpe.weight' and as 'wpe.weight'"));
}

TEST_F(WeightsOfTheHub, AFolderOfSeveralFilesIsOneModel) {
  const Chain given = small_gpt(1);
  write(renamed(tensors_of(given), "transformer.", ""));
  const std::string hub = folder_ / "hub";
  export_tensors(open_tensors(path_), hub,
                 {.form = TensorForm::kHuggingFace, .max_shard_bytes = 500});
  const Chain into = small_gpt(2);
  EXPECT_EQ(check_weights(hub, parameter_specs(into)), "");
  load_weights(hub, into);
  EXPECT_EQ(weights_hash(into.parameters()), weights_hash(given.parameters()));
  // As does what is made a checkpoint of.
  const Chain other = small_gpt(3);
  load_weights(write_checkpoint(open_tensors(hub), folder_ / "saved", 2), other);
  EXPECT_EQ(weights_hash(other.parameters()), weights_hash(given.parameters()));
}

TEST_F(WeightsOfTheHub, APyTorchFileIsRefusedUnread) {
  write(tensors_of(small_gpt(1)));
  const std::string file = folder_ / "model.pt";
  export_tensors(open_tensors(path_), file, {.form = TensorForm::kTorch});
  EXPECT_THAT(
      [&] { (void)check_weights(file, {}); },
      testing::ThrowsMessage<CheckpointError>(HasSubstr("is a PyTorch file; legal: ")));
}

}  // namespace
}  // namespace cohort
