// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <vector>

#include "cohort/communicator.h"

namespace cohort {

// How ranks tell one another texts: gather(mine) returns every rank's text, by rank.
// All ranks call it equally often. It throws, after a deadline of its own, when a rank
// does not come.
struct TextExchange {
  using Task = std::function<std::string()>;

  int rank = 0;
  int size = 1;
  std::function<std::vector<std::string>(const std::string& mine)> gather =
      [](const std::string& mine) { return std::vector<std::string>{mine}; };

  // The same for texts that take long to make: a slow disk is not a dead rank. While a
  // rank is at its task the others wait for as long as it takes and know that it lives.
  // A task does not throw, and holds what it uses: where a rank is lost meanwhile this
  // throws, and the task runs on. Not set: the task first, then gather().
  std::function<std::vector<std::string>(Task task)> patient_gather = {};

  std::vector<std::string> work(Task task) const {
    return patient_gather ? patient_gather(std::move(task)) : gather(task());
  }
};

struct PatienceOptions {
  // Called now and then on the waiting thread: ranks that are still at their tasks.
  std::function<void(const std::vector<int>& late, std::chrono::duration<double>)>
      watch = {};
  // Where a task goes that is left behind; the owner of this waits for them. Null: the
  // one that is cut off waits.
  std::vector<std::future<std::string>>* left_behind = nullptr;
};

// Over a group; it must outlive the exchange and be used by nobody else meanwhile.
TextExchange text_exchange(Communicator& comm, PatienceOptions patience = {});
// Between threads of this process: one exchange for each of them.
std::vector<TextExchange> thread_text_exchanges(int size);

}  // namespace cohort
