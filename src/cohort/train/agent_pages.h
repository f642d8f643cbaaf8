// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cohort/elastic/membership.h"
#include "cohort/train/page_holder.h"

namespace cohort {

// Snapshots are held by the agent, which outlives ranks.
class AgentPages final : public PageHolder {
 public:
  explicit AgentPages(Membership& membership) : membership_(membership) {}

  void hold(const std::string& name, int fd) override { membership_.hold(name, fd); }
  std::vector<HeldPages> held() override {
    std::vector<HeldPages> all;
    for (auto& [name, fd] : membership_.held()) all.push_back({name, fd.release()});
    return all;
  }

 private:
  Membership& membership_;
};

}  // namespace cohort
