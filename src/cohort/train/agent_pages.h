// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cohort/elastic/membership.h"
#include "cohort/train/page_keeper.h"

namespace cohort {

// Snapshots are kept by the agent, which outlives ranks.
class AgentPages final : public PageKeeper {
 public:
  explicit AgentPages(Membership& membership) : membership_(membership) {}

  void keep(const std::string& name, int fd) override { membership_.hold(name, fd); }
  std::vector<KeptPages> kept() override {
    std::vector<KeptPages> all;
    for (auto& [name, fd] : membership_.held()) all.push_back({name, fd.release()});
    return all;
  }

 private:
  Membership& membership_;
};

}  // namespace cohort
