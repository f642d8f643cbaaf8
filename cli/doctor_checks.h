// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "doctor_command.h"

namespace cohort::cli {

enum class Health {
  kOk,
  kAbsent,  // something can do without it, at a cost that the text names
  kBroken,  // no run can work
};

struct Finding {
  std::string check;
  Health health = Health::kOk;
  std::string text;
  std::string package = {};  // what would bring it; empty: nothing to install
};

Finding check_libtorch();
Finding check_cores();
Finding check_memory();
Finding check_shared_memory();
Finding check_huge_pages();
Finding check_peer_descriptors();
Finding check_loopback();
Finding check_name_lookup();
Finding check_limits();
Finding check_gpu();
Finding check_mpi();
Finding check_ccache();
Finding check_dataset(const std::string& dir);
Finding check_backend(const DoctorBackend& backend);

}  // namespace cohort::cli
