// SPDX-License-Identifier: Apache-2.0
#include "doctor_checks.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <netdb.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <torch/headeronly/version.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <sstream>

#include "cli/child_answer.h"
#include "cohort/core/error.h"
#include "cohort/core/unique_fd.h"

namespace cohort::cli {
namespace {

namespace fs = std::filesystem;

std::string gigabytes(double bytes) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(1) << bytes / 1e9 << " GB";
  return out.str();
}

std::string first_line(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

bool in_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (access((folder + "/" + program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

int make_memfd(size_t bytes) {
  const int fd = memfd_create("cohort-doctor", MFD_CLOEXEC);
  if (fd >= 0 && posix_fallocate(fd, 0, static_cast<off_t>(bytes)) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

std::string limit_text(int resource, double unit, const char* name) {
  rlimit limit{};
  getrlimit(static_cast<__rlimit_resource>(resource), &limit);
  if (limit.rlim_cur == RLIM_INFINITY) return "unlimited";
  std::ostringstream out;
  out << static_cast<double>(limit.rlim_cur) / unit << name;
  return out.str();
}

Finding try_backend(const DoctorBackend& backend) {
  const ChildAnswer tried = ask_child(backend.trial, backend.patience);
  if (tried.worked)
    return {"backend", Health::kOk,
            text("backend ", backend.name, ": ", backend.version, ", ", tried.text)};
  return {"backend", Health::kAbsent,
          text("backend ", backend.name, ": ", backend.version,
               " was tried here and failed: ", tried.text)};
}

int find_libtorch(dl_phdr_info* info, size_t, void* found) {
  if (!std::strstr(info->dlpi_name, "libtorch_cpu.so")) return 0;
  *static_cast<std::string*>(found) = info->dlpi_name;
  return 1;
}

}  // namespace

Finding check_libtorch() {
  std::string path;
  dl_iterate_phdr(find_libtorch, &path);
  std::error_code ignored;
  const fs::path real = fs::weakly_canonical(path, ignored);
  return {"libtorch", Health::kOk,
          text("LibTorch ", TORCH_VERSION, " in ", real.string())};
}

Finding check_cores() {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  sched_getaffinity(0, sizeof(mine), &mine);
  const int usable = CPU_COUNT(&mine);
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  std::string line = text(usable, " of ", online, " cores usable");
  const std::string quota = first_line("/sys/fs/cgroup/cpu.max");
  if (!quota.empty() && quota.rfind("max", 0) != 0) {
    line += text("; control group allows (quota period) ", quota, " us");
  }
  if (usable == 1) {
    return {"cores", Health::kAbsent, line + ": more ranks than one share it, slowly"};
  }
  return {"cores", Health::kOk, line};
}

Finding check_memory() {
  const double total =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  double available = 0;
  std::ifstream in("/proc/meminfo");
  for (std::string key, rest; in >> key && std::getline(in, rest);) {
    if (key == "MemAvailable:") available = std::strtod(rest.c_str(), nullptr) * 1024;
  }
  std::string line =
      text(gigabytes(available), " of ", gigabytes(total), " memory free");
  const std::string limit = first_line("/sys/fs/cgroup/memory.max");
  if (!limit.empty() && limit != "max") {
    line +=
        text("; control group allows ", gigabytes(std::strtod(limit.c_str(), nullptr)));
  }
  if (available < 1e9)
    return {"memory", Health::kAbsent, line + ": a rank takes about 0.5 GB"};
  return {"memory", Health::kOk, line};
}

Finding check_shared_memory() {
  constexpr size_t kBytes = 1 << 20;
  UniqueFd memory(make_memfd(kBytes));
  void* page = memory.get() < 0 ? MAP_FAILED
                                : mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                                       MAP_SHARED, memory.get(), 0);
  if (page == MAP_FAILED) {
    return {"shared memory", Health::kBroken,
            text("shared memory (memfd): ", std::strerror(errno),
                 "; ranks of one node cannot share pages")};
  }
  munmap(page, kBytes);
  struct statvfs shm {};
  std::string line = "shared memory (memfd) works";
  if (statvfs("/dev/shm", &shm) == 0) {
    line += text("; /dev/shm has ",
                 gigabytes(static_cast<double>(shm.f_bavail) * shm.f_frsize), " free");
  }
  return {"shared memory", Health::kOk, line};
}

Finding check_huge_pages() {
  const std::string setting =
      first_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  const auto begin = setting.find('['), end = setting.find(']');
  const std::string chosen = begin == std::string::npos || end == std::string::npos
                                 ? "unknown"
                                 : setting.substr(begin + 1, end - begin - 1);
  const bool helps = chosen == "advise" || chosen == "always" ||
                     chosen == "within_size" || chosen == "force";
  const std::string line = text("huge pages for shared memory: ", chosen);
  if (helps) return {"huge pages", Health::kOk, line};
  return {"huge pages", Health::kAbsent,
          line +
              ": large exchanges pay for small pages (an administrator can write "
              "advise to /sys/kernel/mm/transparent_hugepage/shmem_enabled)"};
}

// Ranks map each other's memory by /proc/<pid>/fd; hardened systems may forbid it.
Finding check_peer_descriptors() {
  UniqueFd memory(make_memfd(4096));
  const std::string ours = text("/proc/", getpid(), "/fd/", memory.get());
  const ChildAnswer opened = ask_child(
      [&] {
        if (UniqueFd(open(ours.c_str(), O_RDWR | O_CLOEXEC)).get() < 0)
          throw ConfigError(std::strerror(errno));
        return std::string();
      },
      std::chrono::seconds(2));
  if (opened.worked) {
    return {"peer descriptors", Health::kOk,
            "a process can open another's shared memory"};
  }
  return {"peer descriptors", Health::kBroken,
          "a process cannot open another's shared memory by /proc/<pid>/fd: the shm "
          "backend does not work (is /proc mounted with hidepid?)"};
}

Finding check_loopback() {
  UniqueFd server(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  UniqueFd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const bool works = bind(server.get(), generic, size) == 0 &&
                     listen(server.get(), 1) == 0 &&
                     getsockname(server.get(), generic, &size) == 0 &&
                     connect(client.get(), generic, size) == 0;
  if (works) return {"loopback", Health::kOk, "TCP on 127.0.0.1 works"};
  return {"loopback", Health::kBroken,
          text("TCP on 127.0.0.1: ", std::strerror(errno), "; ranks cannot meet")};
}

Finding check_name_lookup() {
  constexpr std::chrono::milliseconds kPatience{1000};
  const auto begin = std::chrono::steady_clock::now();
  const ChildAnswer named = ask_child(
      [] {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        char host[NI_MAXHOST];
        getnameinfo(reinterpret_cast<sockaddr*>(&address), sizeof(address), host,
                    sizeof(host), nullptr, 0, 0);
        return std::string();
      },
      kPatience);
  const auto taken = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - begin);
  if (named.worked) {
    return {"names", Health::kOk, text("127.0.0.1 is named in ", taken.count(), " ms")};
  }
  return {"names", Health::kAbsent,
          text("no name for 127.0.0.1 after ", kPatience.count(),
               " ms: programs started by `launch` may be slow to meet (add it to "
               "/etc/hosts)")};
}

Finding check_limits() {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  const std::string line =
      text("limits: open files ", limit_text(RLIMIT_NOFILE, 1, ""), ", address space ",
           limit_text(RLIMIT_AS, 1e9, " GB"), ", locked memory ",
           limit_text(RLIMIT_MEMLOCK, 1e6, " MB"));
  rlimit space{};
  getrlimit(RLIMIT_AS, &space);
  if (files.rlim_cur < 1024) {
    return {"limits", Health::kAbsent,
            line + ": too few files for many ranks (ulimit -n)"};
  }
  if (space.rlim_cur != RLIM_INFINITY && space.rlim_cur < 8'000'000'000) {
    return {"limits", Health::kAbsent, line + ": ranks may not get memory (ulimit -v)"};
  }
  return {"limits", Health::kOk, line};
}

Finding check_gpu() {
  int devices = 0;
  while (fs::exists(text("/dev/nvidia", devices))) ++devices;
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver) dlclose(driver);
  if (devices > 0 && driver) {
    return {"gpu", Health::kOk, text(devices, " NVIDIA GPU", devices > 1 ? "s" : "")};
  }
  if (devices > 0) {
    return {"gpu", Health::kAbsent,
            text(devices, " NVIDIA device nodes but no libcuda.so.1: CPU only")};
  }
  return {"gpu", Health::kAbsent, "no GPU: CPU only"};
}

Finding check_mpi() {
  if (in_path("mpirun")) return {"mpi", Health::kOk, "mpirun is there"};
  return {"mpi", Health::kAbsent, "no mpirun: no mpi backend", "libopenmpi-dev"};
}

Finding check_ccache() {
  if (in_path("ccache")) return {"ccache", Health::kOk, "ccache is there"};
  return {"ccache", Health::kAbsent, "no ccache: builds repeat work", "ccache"};
}

Finding check_dataset(const std::string& dir) {
  for (const char* name : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                           "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}) {
    const fs::path plain = fs::path(dir) / name;
    const fs::path packed = plain.string() + ".gz";
    if (access(plain.c_str(), R_OK) != 0 && access(packed.c_str(), R_OK) != 0) {
      return {"dataset", Health::kAbsent,
              text("Fashion-MNIST: no readable ", packed.string(),
                   ": fashion-mnist needs data.dir"),
              "dataset-fashion-mnist"};
    }
  }
  return {"dataset", Health::kOk, text("Fashion-MNIST in ", dir)};
}

Finding check_backend(const DoctorBackend& backend) {
  if (backend.available && backend.trial) return try_backend(backend);
  if (backend.available)
    return {"backend", Health::kOk, text("backend ", backend.name)};
  return {"backend", Health::kAbsent,
          text("backend ", backend.name, ": ",
               backend.reason.empty() ? "not available" : backend.reason)};
}

}  // namespace cohort::cli
