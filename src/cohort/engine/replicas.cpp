// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/replicas.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string_view>

#include "cohort/core/error.h"
#include "cohort/core/hash.h"
#include "cohort/step/checks/role_view.h"

namespace cohort {
namespace {

// Whose copy of a tensor is another than those of most ranks, or that nobody can tell.
struct OddOnes {
  std::string text;        // empty: all of them are equal
  std::vector<int> ranks;  // empty: nobody can tell
};

OddOnes find_odd(const std::map<int, uint64_t>& hashes) {
  std::map<uint64_t, std::vector<int>> holders;
  std::vector<int> all;
  for (const auto& [rank, hash] : hashes) {
    holders[hash].push_back(rank);
    all.push_back(rank);
  }
  if (holders.size() < 2) return {};
  const auto most = std::max_element(
      holders.begin(), holders.end(),
      [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  if (2 * most->second.size() <= all.size())
    return {text(" differs between ranks ", ranks_text(all)), {}};
  std::erase_if(all, [&](int rank) { return hashes.at(rank) == most->first; });
  return {text(all.size() == 1 ? " of rank " : " of ranks ", ranks_text(all),
               all.size() == 1 ? " differs" : " differ", " from the others'"),
          all};
}

}  // namespace

void ReplicaComparison::add(const std::string& name,
                            const std::map<int, uint64_t>& hashes) {
  const OddOnes found = find_odd(hashes);
  if (found.text.empty()) return;
  if (what_.empty()) what_ = name + found.text;
  certain_ &= !found.ranks.empty();
  for (const int rank : found.ranks) odd_[rank] = true;
}

ReplicaReport ReplicaComparison::report() const {
  ReplicaReport report{.what = what_, .odd = {}};
  if (certain_)
    for (const auto& [rank, is] : odd_) report.odd.push_back(rank);
  return report;
}

uint64_t tensor_hash(const Tensor& tensor) {
  const Tensor flat = tensor.detach().contiguous().cpu();
  return hash64(std::string_view(static_cast<const char*>(flat.const_data_ptr()),
                                 static_cast<size_t>(flat.nbytes())));
}

}  // namespace cohort
