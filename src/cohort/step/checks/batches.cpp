// SPDX-License-Identifier: Apache-2.0
// R5 also: transfers with one number begin together, as one exchange.
#include <map>

#include "cohort/core/error.h"
#include "cohort/step/checks/checks.h"

namespace cohort {
namespace {

// None begins before what another of them waits for.
void check_together(const RoleView& role, int first, int end) {
  for (int other = first; other < end; ++other)
    for (const int wait : role.at(other).waits) {
      if (wait >= first)
        role.refuse(other, text("R5: waits for action ", wait,
                                " of its own batch; legal: they begin together"));
      for (int i = first; i < end; ++i)
        if (!role.before(wait, i))
          role.refuse(i, text("R5: is in a batch with action ", other,
                              " and does not wait for ", action_text(role.role(), wait),
                              ", as that one does"));
    }
}

}  // namespace

void check_batches(const RoleView& role) {
  std::map<int, int> seen;  // batch: its first action
  for (int i = 0; i < role.size();) {
    const int first = i++, batch = role.at(first).batch;
    if (batch == kNone) continue;
    if (const auto [at, is_new] = seen.emplace(batch, first); !is_new)
      role.refuse(first, text("R5: is of batch ", batch, ", as action ", at->second,
                              " is; legal: one behind the other"));
    while (i < role.size() && role.at(i).batch == batch) ++i;
    for (int k = first; k < i; ++k)
      if (!is_transfer(role.at(k)))
        role.refuse(k, text("R5: is of batch ", batch, "; legal: Send and Recv"));
    check_together(role, first, i);
  }
}

}  // namespace cohort
