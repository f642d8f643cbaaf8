// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/agreement.h"

#include <algorithm>
#include <string>
#include <tuple>

#include "cohort/comm/gather_records.h"
#include "cohort/core/error.h"
#include "cohort/core/hash.h"
#include "cohort/step/chain_specs.h"

namespace cohort {
namespace {

// What must be alike of a block, in words. Not the dtype: that of a rank that has
// trained before is what it computes in.
struct BlockForm {
  std::string name;
  std::vector<std::string> parameters;

  bool operator==(const BlockForm&) const = default;
};

auto record_fields(Alike<BlockForm> auto& block) {
  return std::tie(block.name, block.parameters);
}

std::string parameter_text(const TensorSpec& spec, bool trained) {
  std::string sizes;
  for (const int64_t size : spec.shape) sizes += text(sizes.empty() ? "" : ", ", size);
  return text(spec.name, trained ? "" : ", which is frozen,", " [", sizes, "]");
}

std::vector<BlockForm> block_forms(const Chain& chain) {
  std::vector<BlockForm> forms;
  for (const auto& block : chain.blocks) {
    BlockForm form{.name = block->name(), .parameters = {}};
    for (size_t i = 0; i < block->parameters().size(); ++i)
      form.parameters.push_back(parameter_text(
          parameter_spec(*block, i), block->parameters()[i].tensor.requires_grad()));
    forms.push_back(std::move(form));
  }
  return forms;
}

uint64_t hash_of_blocks(const std::vector<BlockForm>& forms) {
  Hasher hasher;
  for (const auto& form : forms) {
    hasher.add(form.name).add(static_cast<int64_t>(form.parameters.size()));
    for (const auto& parameter : form.parameters) hasher.add(parameter);
  }
  return hasher.digest();
}

// The item there, or that there is none.
template <typename Items, typename Say>
std::string item_or_none(const Items& items, size_t index, const Say& say) {
  return index < items.size() ? std::string(say(items[index])) : "none";
}

// Where these differ, in words: "block 2 (fc) has fc.weight [3, 4], and on rank 0
// fc.weight [2, 4]".
std::string first_difference(const std::vector<BlockForm>& here,
                             const std::vector<BlockForm>& first) {
  const size_t b =
      static_cast<size_t>(std::ranges::mismatch(here, first).in1 - here.begin());
  const auto name = [](const BlockForm& form) { return form.name; };
  if (b >= here.size() || b >= first.size() || here[b].name != first[b].name)
    return text("block ", b, " is ", item_or_none(here, b, name), ", and on rank 0 ",
                item_or_none(first, b, name));
  const auto& mine = here[b].parameters;
  const auto& its = first[b].parameters;
  const size_t p =
      static_cast<size_t>(std::ranges::mismatch(mine, its).in1 - mine.begin());
  const auto same = [](const std::string& form) { return form; };
  return text("block ", b, " (", here[b].name, ") has ", item_or_none(mine, p, same),
              ", and on rank 0 ", item_or_none(its, p, same));
}

}  // namespace

std::vector<uint64_t> gather_numbers(Communicator& comm, uint64_t mine) {
  Tensor all = at::empty({comm.size()}, at::kLong);
  comm.all_gather(all, at::full({1}, static_cast<int64_t>(mine), at::kLong)).wait();
  const int64_t* const numbers = all.const_data_ptr<int64_t>();
  return {numbers, numbers + comm.size()};
}

void require_equal(Communicator& comm, uint64_t hash, std::string_view what) {
  const std::vector<uint64_t> hashes = gather_numbers(comm, hash);
  std::string others;
  for (int r = 1; r < comm.size(); ++r)
    if (hashes[r] != hashes[0])
      others += (others.empty() ? "" : ", ") + std::to_string(r);
  if (others.empty()) return;
  throw ConfigError(text("[engine] the ", what, " of rank ", others,
                         " is not that of rank 0 (", hex16(hashes[0]),
                         "): all ranks must run the same program with the same "
                         "configuration (rank ",
                         comm.rank(), " of ", comm.size(), " has ", hex16(hash), ")"));
}

uint64_t form_of(std::span<const NamedTensor> tensors) {
  Hasher hasher;
  for (const auto& [name, tensor] : tensors) {
    hasher.add(name).add(static_cast<int64_t>(tensor.scalar_type()));
    for (const int64_t size : tensor.sizes()) hasher.add(size);
  }
  return hasher.digest();
}

void require_equal_blocks(Communicator& comm, const Chain& chain) {
  const std::vector<BlockForm> forms = block_forms(chain);
  const std::vector<uint64_t> hashes = gather_numbers(comm, hash_of_blocks(forms));
  const auto other = std::ranges::find_if(
      hashes, [&](uint64_t hash) { return hash != hashes.front(); });
  if (other == hashes.end()) return;
  const auto all = gather_records(text_exchange(comm), forms,
                                  "[engine] a rank tells no blocks of a model");
  const auto rank = static_cast<size_t>(other - hashes.begin());
  throw ConfigError(
      text("[engine] the model of rank ", rank,
           " is not that of rank 0: ", first_difference(all[rank], all[0]),
           "; legal: the same blocks on every rank, by the configuration "
           "alone (rank ",
           comm.rank(), " of ", comm.size(), ")"));
}

void take_values(Communicator& comm, const Tensor& tensor, int root) {
  Tensor here = tensor.detach().cpu();
  const Tensor before = tensor.is_cpu() ? Tensor() : here.clone();
  comm.broadcast(here, root).wait();
  if (!tensor.is_cpu() && !at::equal(here, before)) tensor.detach().copy_(here);
}

}  // namespace cohort
