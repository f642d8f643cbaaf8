// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/cifar10.h"

#include <fstream>

#include "cohort/core/testing_folder.h"
#include "fuzz/target.h"

// A batch of one record, plain or packed.
COHORT_FUZZ_TARGET(cifar10) {
  static const test::TempFolder folder("/dev/shm");
  std::ofstream(folder / "test_batch.bin", std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  allow<DataError>([&] {
    const auto data =
        read_cifar10({.dir = folder.path(), .records_per_file = 1}, Split::kTest);
    demand(data.labels.numel() == 1 && data.images.numel() == 3 * 32 * 32,
           "another number of records");
    demand(*data.labels.const_data_ptr<uint8_t>() < 10, "an eleventh class");
  });
}
