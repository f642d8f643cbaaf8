// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cohort/config.h"

namespace cohort {

// A row of a table of keys for people: name, value, what is legal, what it does.
std::vector<std::string> key_row(const Key& key, const KeyValue& value);

}  // namespace cohort
