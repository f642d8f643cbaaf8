// SPDX-License-Identifier: Apache-2.0
// Stands in for the libnccl.so.2 of an old installation: it has every function, and a
// version that nobody tested with.

#define COHORT_FAKE(name) \
  extern "C" int name() { return 1; }

COHORT_FAKE(ncclGetUniqueId)
COHORT_FAKE(ncclCommInitRankConfig)
COHORT_FAKE(ncclCommGetAsyncError)
COHORT_FAKE(ncclCommFinalize)
COHORT_FAKE(ncclCommDestroy)
COHORT_FAKE(ncclCommAbort)
COHORT_FAKE(ncclGetErrorString)
COHORT_FAKE(ncclGetLastError)
COHORT_FAKE(ncclGroupStart)
COHORT_FAKE(ncclGroupEnd)
COHORT_FAKE(ncclAllReduce)
COHORT_FAKE(ncclReduceScatter)
COHORT_FAKE(ncclAllGather)
COHORT_FAKE(ncclBroadcast)
COHORT_FAKE(ncclSend)
COHORT_FAKE(ncclRecv)

extern "C" int ncclGetVersion(int* version) {
  *version = 21003;
  return 0;
}
