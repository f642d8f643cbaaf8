// SPDX-License-Identifier: Apache-2.0
#pragma once

// Every reader that has a target here: NAME.cpp and corpus/NAME/. CMakeLists.txt has
// the same list.
#define COHORT_FUZZ_TARGETS(each)                                                      \
  each(cifar10) each(costs) each(events) each(gzip) each(history) each(idx) each(link) \
      each(manifest) each(notes) each(pickle) each(record) each(safetensors)           \
          each(schedule) each(snapshot) each(tokens) each(torch_file) each(weight_map) \
              each(yaml)
