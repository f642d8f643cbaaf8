#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# torchrun starts the ranks of `cohort train`: the same weights as under our own
# launcher. By hand: it needs PyTorch (see README.md here).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cohort=${COHORT_BIN:-$root/build/release/bin/cohort}
python=${COHORT_PEERS:-$root/.deps/peers/bin/python}
torchrun=$(dirname "$python")/torchrun
arguments=(train fashion-mnist --max-steps "${1:-20}" --set threads=1 --json)

hash_of() { sed -n 's/.*"event":"done".*"weights_hash":"\([0-9a-f]*\)".*/\1/p'; }

for ranks in 1 2; do
  theirs=$("$torchrun" --standalone --nproc-per-node "$ranks" --no-python \
    "$cohort" "${arguments[@]}" | hash_of)
  ours=$("$cohort" "${arguments[@]}" -n "$ranks" | hash_of)
  echo "$ranks ranks: torchrun $theirs, cohort $ours"
  [[ -n $theirs && $theirs == "$ours" ]] || { echo "they differ" >&2; exit 1; }
done
