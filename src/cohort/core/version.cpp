// SPDX-License-Identifier: Apache-2.0
#include "cohort/version.h"

#include <elf.h>
#include <link.h>

#include <cstring>

namespace cohort {
namespace {

// A note is {name size, data size, type}, then name and data, each padded to 4.
std::string find_note(const char* at, const char* end) {
  while (at + sizeof(ElfW(Nhdr)) <= end) {
    ElfW(Nhdr) note;
    std::memcpy(&note, at, sizeof(note));
    const char* name = at + sizeof(note);
    const char* data = name + (note.n_namesz + 3) / 4 * 4;
    if (note.n_type == NT_GNU_BUILD_ID && std::strncmp(name, "GNU", 4) == 0) {
      std::string hex;
      for (const char* byte = data; byte < data + note.n_descsz; ++byte) {
        constexpr char kDigits[] = "0123456789abcdef";
        hex += kDigits[static_cast<unsigned char>(*byte) >> 4];
        hex += kDigits[*byte & 15];
      }
      return hex;
    }
    at = data + (note.n_descsz + 3) / 4 * 4;
  }
  return {};
}

// The first object is the program itself.
int visit_program(dl_phdr_info* object, size_t, void* result) {
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const auto& segment = object->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const auto* begin =
        reinterpret_cast<const char*>(object->dlpi_addr + segment.p_vaddr);
    std::string id = find_note(begin, begin + segment.p_memsz);
    if (!id.empty()) *static_cast<std::string*>(result) = id;
  }
  return 1;
}

}  // namespace

std::string_view version() { return COHORT_VERSION; }

std::string build_id() {
  std::string id = "unknown";
  dl_iterate_phdr(&visit_program, &id);
  return id;
}

}  // namespace cohort
