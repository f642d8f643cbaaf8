# Compiler settings: one build type, warnings, sanitizers, ccache.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
# One set of code-generation flags for library, tests and programs, so that they
# can share a precompiled header (gcc refuses one built with -fPIC under -fPIE).
add_compile_options(-fPIC)
set(CMAKE_POSITION_INDEPENDENT_CODE OFF)
# __FILE__ is the same wherever a clone lies: so are programs, and the keys of ccache.
add_compile_options(-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
# What is public says so (include/cohort); everything else is nobody's to link with.
add_compile_options(-fvisibility=hidden)

add_library(cohort_warnings INTERFACE)
target_compile_options(cohort_warnings INTERFACE -Wall -Wextra -Werror=return-type
                       -Wno-unused-parameter -Wno-missing-field-initializers)

# For targets whose speed does not matter: compiling them with -O3 takes half as long again.
function(cohort_compile_quickly TARGET)
  target_compile_options(${TARGET} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

# Uses the precompiled header of the project, which CMakeLists.txt makes.
function(cohort_precompiled_headers TARGET)
  target_precompile_headers(${TARGET} REUSE_FROM cohort_headers)
endfunction()

if(COHORT_SANITIZE)
  if(NOT COHORT_SANITIZE MATCHES "^(thread|address)$")
    message(FATAL_ERROR "COHORT_SANITIZE is '${COHORT_SANITIZE}'; legal: thread, address")
  endif()
  set(sanitize -fsanitize=${COHORT_SANITIZE})
  if(COHORT_SANITIZE STREQUAL "address")
    # Checks of undefined behaviour, but not those that look at every pointer again:
    # they would make compiling take half as long again.
    list(APPEND sanitize -fno-sanitize-recover=all
      -fsanitize=signed-integer-overflow,shift,bounds,float-cast-overflow,integer-divide-by-zero,bool,enum,return,unreachable)
  endif()
  # Debug information is only the lines for stacks. With checks in its way GCC takes
  # members of std::function for not initialised.
  add_compile_options(${sanitize} -fno-omit-frame-pointer -g1 -Wno-maybe-uninitialized)
  add_link_options(${sanitize})
endif()

# ccache understands a precompiled header only with -fpch-preprocess and these
# settings; without BASEDIR and NOHASHDIR a second clone would miss every entry.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND PROJECT_IS_TOP_LEVEL)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    add_compile_options("SHELL:-Xclang -fno-pch-timestamp")
  else()
    add_compile_options(-fpch-preprocess)
  endif()
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE_PROGRAM})
endif()
