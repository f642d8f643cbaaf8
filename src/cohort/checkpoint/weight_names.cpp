// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/weight_names.h"

#include <string_view>
#include <utility>

namespace cohort {
namespace {

using NameSet = std::set<std::string>;

constexpr std::string_view kBodies[] = {"transformer.", "model.", "bert."};
constexpr std::pair<std::string_view, std::string_view> kOldEnds[] = {
    {"LayerNorm.gamma", "LayerNorm.weight"}, {"LayerNorm.beta", "LayerNorm.bias"}};
// What a tied model has under the second name alone.
constexpr std::pair<std::string_view, std::string_view> kTied[] = {
    {"lm_head.weight", "transformer.wte.weight"},
    {"lm_head.weight", "model.embed_tokens.weight"},
    {"cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"},
    {"cls.predictions.decoder.bias", "cls.predictions.bias"}};

bool holds(const NameSet& names, std::string_view name) {
  return names.contains(std::string(name));
}

std::string of_today(const std::string& name) {
  for (const auto& [old, now] : kOldEnds)
    if (name.ends_with(old))
      return name.substr(0, name.size() - old.size()) + std::string(now);
  return name;
}

// The model's name for a tensor of the file; its own where the model has none.
std::string name_in_model(const NameSet& model, const std::string& given) {
  for (const auto& name : {given, of_today(given)}) {
    if (model.contains(name)) return name;
    for (const auto body : kBodies)
      if (const std::string whole = std::string(body) + name; model.contains(whole))
        return whole;
  }
  return given;
}

std::string_view without_body(std::string_view name) {
  for (const auto body : kBodies)
    if (name.starts_with(body)) return name.substr(body.size());
  return name;
}

// GPT-2 files hold the causal mask of layer N as "h.N.attn.bias".
bool is_mask(std::string_view name) {
  if (!name.starts_with("h.")) return false;
  name.remove_prefix(2);
  const size_t digits = name.find_first_not_of("0123456789");
  if (digits == 0 || digits == name.npos) return false;
  name.remove_prefix(digits);
  return name == ".attn.bias" || name == ".attn.masked_bias";
}

bool is_buffer(std::string_view name) {
  return name.ends_with(".num_batches_tracked") ||
         name.ends_with(".rotary_emb.inv_freq") ||
         name.ends_with("embeddings.position_ids") || is_mask(without_body(name));
}

// BERT was first trained with these two heads, which a masked language model lacks.
bool is_unused(const NameSet& model, std::string_view name) {
  return holds(model, "cls.predictions.bias") &&
         (without_body(name).starts_with("pooler.") ||
          name.starts_with("cls.seq_relationship."));
}

// Where the model is tied, and the file may repeat itself.
std::string tied_to(const NameSet& model, std::string_view name) {
  for (const auto& [head, tied] : kTied)
    if (name == head && holds(model, tied)) return std::string(tied);
  return {};
}

// Where the file is tied, and the model is not.
std::string instead_of(const WeightNames& names, const std::string& missing) {
  for (const auto& [head, tied] : kTied)
    if (missing == head && names.in_file.contains(std::string(tied)))
      return names.in_file.at(std::string(tied));
  return {};
}

void settle_heads(const NameSet& model, WeightNames& names) {
  std::vector<WeightTwin> twins;
  for (auto& twin : names.twins) {
    const auto [at, taken] = names.in_file.try_emplace(twin.of_model, twin.in_file);
    if (!taken) twins.push_back(std::move(twin));
  }
  names.twins = std::move(twins);
  for (const auto& name : model) {
    if (names.in_file.contains(name)) continue;
    const std::string instead = instead_of(names, name);
    if (instead.empty()) {
      names.missing.push_back(name);
      continue;
    }
    names.in_file[name] = instead;
    names.tied_in_file.push_back({instead, name});
  }
}

}  // namespace

WeightNames match_names(const NameSet& model, const NameSet& file) {
  WeightNames names;
  for (const auto& given : file) {
    const std::string name = name_in_model(model, given);
    if (model.contains(name)) {
      const auto [at, is_first] = names.in_file.try_emplace(name, given);
      if (!is_first) names.twice.push_back({given, name});
    } else if (const std::string tied = tied_to(model, name); !tied.empty()) {
      names.twins.push_back({given, tied});
    } else if (is_unused(model, name)) {
      names.unused.push_back(given);
    } else if (!is_buffer(name)) {
      names.unknown.push_back(given);
    }
  }
  settle_heads(model, names);
  return names;
}

}  // namespace cohort
