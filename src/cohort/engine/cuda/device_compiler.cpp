// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/cuda/device_compiler.h"

#include <dlfcn.h>

#include <array>
#include <cctype>
#include <cstring>
#include <sstream>
#include <utility>

#include "cohort/core/error.h"
#include "cohort/core/file.h"
#include "cohort/core/hash.h"

namespace cohort {
namespace {

// NVRTC looks in no folder; <cstdint> is all that the texts include beside themselves.
constexpr char kIntegers[] = R"(#pragma once
typedef signed char int8_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
)";

constexpr int kNvrtcSuccess = 0;

std::vector<std::string> compile_options(GpuArchitecture gpu) {
  return {text("--gpu-architecture=sm_", gpu.major, gpu.minor),
          "--std=c++17",
          "--fmad=false",
          "--ftz=false",
          "--prec-div=true",
          "--prec-sqrt=true",
          "--device-as-default-execution-space"};
}

// The line that tells most: the first error, or the first line at all.
std::string first_error(const std::string& log) {
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);)
    if (line.find("error") != std::string::npos) return line;
  return log.substr(0, log.find('\n'));
}

constexpr size_t kCacheHashDigits = 16;

// A file of the cache begins with the hash of what follows.
std::string read_cached(const std::filesystem::path& path) {
  try {
    const std::string file = read_file(path);
    if (file.size() <= kCacheHashDigits) return "";
    std::string code = file.substr(kCacheHashDigits);
    return file.compare(0, kCacheHashDigits, hex16(hash64(code))) == 0 ? code : "";
  } catch (const Error&) {
    return "";
  }
}

void write_cached(const std::filesystem::path& path, const std::string& code) {
  try {
    make_folder(path.parent_path());
    write_file_atomically(path, hex16(hash64(code)) + code);
  } catch (const Error&) {  // the next process compiles it again
  }
}

}  // namespace

std::string kernel_name(const KernelSpec& kernel) {
  std::string name = "cohort";
  bool is_new_word = true;
  for (const char c : kernel.function) {
    if (!std::isalnum(static_cast<unsigned char>(c))) {
      is_new_word = true;
      continue;
    }
    if (std::exchange(is_new_word, false)) name += '_';
    name += c;
  }
  return name;
}

std::string text_of(const KernelProgram& program) {
  std::string all = text("#include \"cohort/engine/cuda/kernels/", program.file,
                         ".cuh\"\nnamespace cohort::kernels {\n");
  for (const auto& kernel : program.kernels)
    all += text("extern \"C\" __global__ void __launch_bounds__(kThreads) ",
                kernel_name(kernel), "(const __grid_constant__ ", kernel.arguments,
                " arguments) { ", kernel.function, "(arguments); }\n");
  return all + "}\n";
}

// The part of NVRTC that is used, which has been the same since CUDA 11.1.
struct DeviceCompiler::Library {
  using Program = void*;

  int (*version)(int*, int*) = nullptr;
  int (*create)(Program*, const char* text, const char* name, int num_headers,
                const char* const* headers, const char* const* names) = nullptr;
  int (*compile)(Program, int num_options, const char* const* options) = nullptr;
  int (*log_size)(Program, size_t*) = nullptr;
  int (*log)(Program, char*) = nullptr;
  int (*code_size)(Program, size_t*) = nullptr;
  int (*code)(Program, char*) = nullptr;
  int (*destroy)(Program*) = nullptr;
  const char* (*error)(int) = nullptr;

  bool load(const std::string& file) {
    // It stays: code that was compiled may be asked for until the process ends.
    void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) return false;
    const auto take = [&](auto& function, const char* name) {
      function =
          reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    return take(version, "nvrtcVersion") && take(create, "nvrtcCreateProgram") &&
           take(compile, "nvrtcCompileProgram") &&
           take(log_size, "nvrtcGetProgramLogSize") &&
           take(log, "nvrtcGetProgramLog") && take(code_size, "nvrtcGetCUBINSize") &&
           take(code, "nvrtcGetCUBIN") && take(destroy, "nvrtcDestroyProgram") &&
           take(error, "nvrtcGetErrorString");
  }

  void check(int result, const char* what) const {
    if (result != kNvrtcSuccess)
      throw BugError(text("[engine] NVRTC: ", what, ": ", error(result)));
  }
};

DeviceCompiler::DeviceCompiler(std::unique_ptr<Library> library)
    : library_(std::move(library)) {}
DeviceCompiler::~DeviceCompiler() = default;

std::unique_ptr<DeviceCompiler> DeviceCompiler::find(
    const std::filesystem::path& folder) {
  auto library = std::make_unique<Library>();
  for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"})
    for (const auto& path : {folder / name, std::filesystem::path(name)})
      if (library->load(path.string()))
        return std::unique_ptr<DeviceCompiler>(new DeviceCompiler(std::move(library)));
  return nullptr;
}

std::string DeviceCompiler::compile(const KernelProgram& program,
                                    GpuArchitecture gpu) const {
  std::vector<const char*> names = {"cstdint"}, texts = {kIntegers}, options;
  for (const DeviceText& file : device_texts()) {
    names.push_back(file.name);
    texts.push_back(file.text);
  }
  const auto given = compile_options(gpu);
  for (const std::string& option : given) options.push_back(option.c_str());
  Library::Program made = nullptr;
  library_->check(
      library_->create(&made, text_of(program).c_str(), program.file.c_str(),
                       static_cast<int>(names.size()), texts.data(), names.data()),
      "no program");
  const auto destroy = [this](void* it) { library_->destroy(&it); };
  const std::unique_ptr<void, decltype(destroy)> owner(made, destroy);
  const int result =
      library_->compile(made, static_cast<int>(options.size()), options.data());
  if (result != kNvrtcSuccess) {
    size_t size = 0;
    library_->log_size(made, &size);
    std::string log(size, '\0');
    if (size > 0) library_->log(made, log.data());
    throw BugError(text("[engine] kernels '", program.file, "' for sm_", gpu.major,
                        gpu.minor, ": ", library_->error(result), ": ",
                        first_error(log)));
  }
  size_t size = 0;
  library_->check(library_->code_size(made, &size), "no code");
  std::string code(size, '\0');
  library_->check(library_->code(made, code.data()), "no code");
  return code;
}

std::string DeviceCompiler::compile_once(const KernelProgram& program,
                                         GpuArchitecture gpu,
                                         const std::filesystem::path& cache) const {
  if (cache.empty()) return compile(program, gpu);
  int major = 0, minor = 0;
  library_->check(library_->version(&major, &minor), "no version");
  Hasher key;
  key.add(int64_t{major}).add(int64_t{minor}).add(text_of(program)).add(kIntegers);
  for (const DeviceText& file : device_texts()) key.add(file.name).add(file.text);
  for (const std::string& option : compile_options(gpu)) key.add(option);
  const auto path = cache / (hex16(key.digest()) + ".cubin");
  if (std::string code = read_cached(path); !code.empty()) return code;
  std::string code = compile(program, gpu);
  write_cached(path, code);
  return code;
}

}  // namespace cohort
