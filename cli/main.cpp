// SPDX-License-Identifier: Apache-2.0
// The program `cohort`.
#include "cohort/core/error.h"

int main() { return 0; }
