# Finds LibTorch in a PyTorch wheel, or in any folder with include/ and lib/.
#
# The wheel's own TorchConfig.cmake demands a whole CUDA toolkit; this needs only
# the headers and libtorch_cpu. Look in COHORT_TORCH (variable or environment),
# then where tools/setup links it: .deps/torch.
#
# Defines LibTorch::LibTorch and LibTorch_VERSION; LibTorch::CudaHeaders where code for
# GPUs compiles, LibTorch::Cuda where libtorch_cuda lies too (it may still not link: the
# thin wheel lacks what that needs).
set(COHORT_TORCH "$ENV{COHORT_TORCH}" CACHE PATH
    "Folder of LibTorch with include/ and lib/ (default: .deps/torch)")
set(_libtorch_hints "${COHORT_TORCH}" "${PROJECT_SOURCE_DIR}/.deps/torch"
    "${_cohort_built_with_torch}")  # from the installed package

find_path(LibTorch_INCLUDE_DIR ATen/core/Tensor.h
          HINTS ${_libtorch_hints} PATH_SUFFIXES include NO_DEFAULT_PATH)
find_library(LibTorch_CPU_LIBRARY torch_cpu
             HINTS ${_libtorch_hints} PATH_SUFFIXES lib NO_DEFAULT_PATH)
find_library(LibTorch_C10_LIBRARY c10
             HINTS ${_libtorch_hints} PATH_SUFFIXES lib NO_DEFAULT_PATH)

if(LibTorch_INCLUDE_DIR)
  set(_version_header "${LibTorch_INCLUDE_DIR}/torch/headeronly/version.h")
  if(NOT EXISTS "${_version_header}")
    set(_version_header "${LibTorch_INCLUDE_DIR}/torch/csrc/api/include/torch/version.h")
  endif()
  if(EXISTS "${_version_header}")
    file(STRINGS "${_version_header}" _lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH)")
    string(REGEX MATCHALL "[0-9]+" _numbers "${_lines}")
    string(REPLACE ";" "." LibTorch_VERSION "${_numbers}")
  endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_INCLUDE_DIR LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY
  VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE "run tools/setup, or set COHORT_TORCH to a folder with include/ and lib/")

if(LibTorch_FOUND AND NOT TARGET LibTorch::LibTorch)
  add_library(LibTorch::LibTorch INTERFACE IMPORTED)
  target_include_directories(LibTorch::LibTorch SYSTEM INTERFACE
    "${LibTorch_INCLUDE_DIR}"
    "${LibTorch_INCLUDE_DIR}/torch/csrc/api/include")
  target_link_libraries(LibTorch::LibTorch INTERFACE
    "${LibTorch_CPU_LIBRARY}" "${LibTorch_C10_LIBRARY}")
endif()

# ---- GPUs ---------------------------------------------------------------------------
# The wheels cuda-toolkit[cudart,crt,cccl] have the headers, as has a CUDA toolkit.
get_filename_component(_packages "${LibTorch_INCLUDE_DIR}" REALPATH)
get_filename_component(_packages "${_packages}/../.." ABSOLUTE)
find_path(LibTorch_CUDA_INCLUDE_DIR cuda_runtime_api.h
          HINTS "${_packages}/nvidia/cu13/include" /usr/local/cuda/include)
find_path(LibTorch_CUDA_CRT_DIR crt/host_config.h
          HINTS "${_packages}/nvidia/cu13/include" /usr/local/cuda/include)
find_library(LibTorch_CUDA_LIBRARY torch_cuda
             HINTS ${_libtorch_hints} PATH_SUFFIXES lib NO_DEFAULT_PATH)
find_library(LibTorch_C10_CUDA_LIBRARY c10_cuda
             HINTS ${_libtorch_hints} PATH_SUFFIXES lib NO_DEFAULT_PATH)
find_library(LibTorch_CUDART_LIBRARY NAMES libcudart.so.13 cudart
             HINTS "${_packages}/nvidia/cu13/lib" /usr/local/cuda/lib64)

if(LibTorch_FOUND AND LibTorch_CUDA_INCLUDE_DIR AND LibTorch_CUDA_CRT_DIR
   AND NOT TARGET LibTorch::CudaHeaders)
  add_library(LibTorch::CudaHeaders INTERFACE IMPORTED)
  target_include_directories(LibTorch::CudaHeaders SYSTEM INTERFACE
    "${LibTorch_CUDA_INCLUDE_DIR}" "${LibTorch_CUDA_CRT_DIR}")
  if(LibTorch_CUDA_LIBRARY AND LibTorch_C10_CUDA_LIBRARY AND LibTorch_CUDART_LIBRARY)
    add_library(LibTorch::Cuda INTERFACE IMPORTED)
    # A program that uses no GPU must not load a gigabyte for it.
    target_link_options(LibTorch::Cuda INTERFACE "LINKER:--as-needed")
    target_link_libraries(LibTorch::Cuda INTERFACE LibTorch::CudaHeaders
      "${LibTorch_CUDA_LIBRARY}" "${LibTorch_C10_CUDA_LIBRARY}"
      "${LibTorch_CUDART_LIBRARY}")
  endif()
endif()
mark_as_advanced(LibTorch_CUDA_INCLUDE_DIR LibTorch_CUDA_CRT_DIR LibTorch_CUDA_LIBRARY
                 LibTorch_C10_CUDA_LIBRARY LibTorch_CUDART_LIBRARY)
mark_as_advanced(LibTorch_INCLUDE_DIR LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY)
