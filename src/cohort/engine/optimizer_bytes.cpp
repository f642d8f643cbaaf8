// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/optimizer_bytes.h"

#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>

#include <sstream>

namespace cohort {

SavedBytes bytes_of(torch::optim::Optimizer& optimizer) {
  return {[&optimizer] {
            torch::serialize::OutputArchive archive;
            optimizer.save(archive);
            std::ostringstream out;
            archive.save_to(out);
            return out.str();
          },
          [&optimizer](const std::string& bytes) {
            torch::serialize::InputArchive archive;
            archive.load_from(bytes.data(), bytes.size());
            optimizer.load(archive);
          }};
}

}  // namespace cohort
