// SPDX-License-Identifier: Apache-2.0
#include "resize_command.h"

#include <ostream>

#include "cohort/launch/resize_socket.h"

namespace cohort::cli {

int run_resize(const ResizeArgs& args, std::ostream& out) {
  out << process::ask_resize(args.pid, args.ranks) << "\n";
  return 0;
}

}  // namespace cohort::cli
