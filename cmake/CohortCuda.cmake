# Code that names CUDA is compiled wherever its headers are, so that every build keeps it
# healthy, and linked only where libtorch_cuda links; elsewhere other files answer. This
# is the one place that decides.
set(COHORT_WITH_CUDA AUTO CACHE STRING "ON, OFF, or AUTO: where libtorch_cuda links")
set_property(CACHE COHORT_WITH_CUDA PROPERTY STRINGS AUTO ON OFF)
set(COHORT_LINKS_CUDA ${COHORT_WITH_CUDA})
if(COHORT_WITH_CUDA STREQUAL "AUTO")
  set(COHORT_LINKS_CUDA OFF)
  if(TARGET LibTorch::Cuda)
    include(CheckCXXSourceCompiles)
    set(CMAKE_REQUIRED_LIBRARIES LibTorch::Cuda)
    check_cxx_source_compiles("#include <utility>
      namespace at::cuda { std::pair<unsigned long long, unsigned long long>
      graph_pool_handle(); }
      int main() { return static_cast<int>(at::cuda::graph_pool_handle().first); }"
      COHORT_LIBTORCH_CUDA_LINKS)
    unset(CMAKE_REQUIRED_LIBRARIES)
    set(COHORT_LINKS_CUDA ${COHORT_LIBTORCH_CUDA_LINKS})
  endif()
endif()

if(TARGET LibTorch::CudaHeaders)
  add_library(cohort_cuda OBJECT)
  target_include_directories(cohort_cuda PRIVATE "${PROJECT_SOURCE_DIR}/include"
                             "${PROJECT_SOURCE_DIR}/src")
  target_link_libraries(cohort_cuda PRIVATE LibTorch::LibTorch LibTorch::CudaHeaders
                        cohort_warnings)
endif()
if(COHORT_LINKS_CUDA)
  message(STATUS "CUDA: linked")
  target_sources(cohort PRIVATE $<TARGET_OBJECTS:cohort_cuda>)
  target_link_libraries(cohort PUBLIC LibTorch::Cuda)
else()
  message(STATUS "CUDA: not linked")
endif()

# cohort_cuda_sources(<file>... WITHOUT <file>): the files that name CUDA, and what
# stands in for them where it is not linked.
function(cohort_cuda_sources)
  cmake_parse_arguments(ARG "" "WITHOUT" "" ${ARGN})
  if(TARGET cohort_cuda)
    target_sources(cohort_cuda PRIVATE ${ARG_UNPARSED_ARGUMENTS})
  endif()
  if(NOT COHORT_LINKS_CUDA)
    target_sources(cohort PRIVATE ${ARG_WITHOUT})
  endif()
endfunction()
