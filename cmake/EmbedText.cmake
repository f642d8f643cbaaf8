# Writes OUT, a .cpp that holds FILES (a list, relative to ROOT) as text: the very files
# that the compiler of the host reads. Run as a script: cmake -DOUT= -DROOT= -DFILES= -P
set(rows "")
foreach(file IN LISTS FILES)
  file(READ "${ROOT}/${file}" content)
  string(APPEND rows "    {\"${file}\", R\"COHORT(${content})COHORT\"},\n")
endforeach()
file(WRITE "${OUT}" "// SPDX-License-Identifier: Apache-2.0
#include \"cohort/engine/cuda/device_text.h\"

namespace cohort {

std::span<const DeviceText> device_texts() {
  static constexpr DeviceText kTexts[] = {
${rows}  };
  return kTexts;
}

}  // namespace cohort
")
