# Every program in test_bin/ is a test of that name, and is built.
file(GLOB programs RELATIVE "${BUILD}/test_bin" "${BUILD}/test_bin/*")
execute_process(COMMAND "${CTEST}" -N WORKING_DIRECTORY "${BUILD}" OUTPUT_VARIABLE listed
                COMMAND_ERROR_IS_FATAL ANY)
if(NOT programs)
  message(FATAL_ERROR "no test programs in ${BUILD}/test_bin")
endif()
foreach(program IN LISTS programs)
  if(NOT listed MATCHES ": ${program}\n")
    message(SEND_ERROR "${program} was built but ctest does not run it (an old one? remove it)")
  endif()
endforeach()
