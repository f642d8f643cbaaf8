# cohort_test(NAME SOURCES a_test.cpp ... [LABELS unit] [LINK targets] [TIMEOUT s])
#
# One program per room: loading LibTorch costs 0.4 s, so tests share it. A test that
# skips fails, unless its label is gpu: a green run must mean that it ran.
find_package(GTest REQUIRED)

function(cohort_test NAME)
  if(NOT COHORT_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LABELS;LINK;ENVIRONMENT" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  # A limit is for what hangs: a virtual machine may get a third of its cores.
  math(EXPR ARG_TIMEOUT "3 * ${ARG_TIMEOUT}")
  if(COHORT_SANITIZE)
    math(EXPR ARG_TIMEOUT "3 * ${ARG_TIMEOUT}")
  endif()
  add_executable(${NAME} ${ARG_SOURCES})
  set_target_properties(${NAME} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/test_bin")
  target_link_libraries(${NAME} PRIVATE cohort cohort_warnings ${ARG_LINK}
                        GTest::gtest GTest::gmock GTest::gtest_main)
  cohort_compile_quickly(${NAME})
  cohort_precompiled_headers(${NAME})
  add_test(NAME ${NAME} COMMAND ${NAME} --gtest_brief=1)
  set_tests_properties(${NAME} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
  set(env ${ARG_ENVIRONMENT} "COHORT_BIN=${CMAKE_BINARY_DIR}/bin/cohort"
      "COHORT_SOURCE=${PROJECT_SOURCE_DIR}")
  if(COHORT_SANITIZE STREQUAL "thread")
    list(APPEND env
      "TSAN_OPTIONS=halt_on_error=1 suppressions=${PROJECT_SOURCE_DIR}/tests/tsan.supp")
  elseif(COHORT_SANITIZE STREQUAL "address")
    list(APPEND env "ASAN_OPTIONS=detect_leaks=0")
  endif()
  # Tests call kernels without the program that describes the processor to BLAS
  # (core/processor.h).
  if(CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64" AND EXISTS /proc/cpuinfo)
    file(STRINGS /proc/cpuinfo neoverse_v1 REGEX "^CPU part.*: 0xd40" LIMIT_COUNT 1)
    if(neoverse_v1)
      list(APPEND env "NVPL_BLAS_DEBUG_CPU_TYPE=1")
    endif()
  endif()
  set_tests_properties(${NAME} PROPERTIES ENVIRONMENT "${env}")
  if(NOT "gpu" IN_LIST ARG_LABELS)
    set_tests_properties(${NAME} PROPERTIES
      FAIL_REGULAR_EXPRESSION "\\[  SKIPPED \\]")
  endif()
endfunction()
