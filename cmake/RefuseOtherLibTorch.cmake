# Run at install: COHORT_LIBTORCH, COHORT_INCLUDE_FOLDER. What is installed refuses to be
# compiled with another LibTorch than the library was: all headers that have tensors
# include this one. In a checkout they are the same.
set(_header "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/${COHORT_INCLUDE_FOLDER}/cohort/tensor.h")
set(_first "#include <ATen/core/Tensor.h>\n")
set(_check "#if __has_include(<torch/headeronly/version.h>)
#include <torch/headeronly/version.h>
#else
#include <torch/version.h>
#endif

#include <string_view>

static_assert(std::string_view(TORCH_VERSION) == \"${COHORT_LIBTORCH}\",
              \"LibTorch \" TORCH_VERSION \"; this Cohort was built with ${COHORT_LIBTORCH}, and \"
              \"needs it: give the compiler that one, or build Cohort anew\");

")
file(READ "${_header}" _text)
string(FIND "${_text}" "${_first}" _at)
if(_at LESS 0)
  message(FATAL_ERROR "${_header} does not include ATen/core/Tensor.h")
endif()
string(REPLACE "${_first}" "${_check}${_first}" _text "${_text}")
file(WRITE "${_header}" "${_text}")
