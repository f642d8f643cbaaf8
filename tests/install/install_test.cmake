# cmake -D BUILD= -D PROJECT= -D SCRATCH= -D GENERATOR= -P install_test.cmake
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE out
                  ERROR_VARIABLE out)
  if(NOT code EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}: ${code}\n${out}")
  endif()
  set(out "${out}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE "${SCRATCH}")
run("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${SCRATCH}/prefix")
# A backend's headers are nobody's business.
file(GLOB private "${SCRATCH}/prefix/include/cohort/comm/*/*.h")
if(private)
  message(FATAL_ERROR "private headers were installed: ${private}")
endif()
run("${CMAKE_COMMAND}" -S "${PROJECT}" -B "${SCRATCH}/build" -G "${GENERATOR}"
    "-DCMAKE_PREFIX_PATH=${SCRATCH}/prefix" -DCMAKE_BUILD_TYPE=Release)
run("${CMAKE_COMMAND}" --build "${SCRATCH}/build")
run("${SCRATCH}/build/my_training")
message(STATUS "${out}")
run("${SCRATCH}/prefix/bin/cohort" launch -n 2 -- "${SCRATCH}/build/my_training")
if(NOT out MATCHES "fits on 2 ranks")
  message(FATAL_ERROR "two ranks did not train together: ${out}")
endif()
# The installed program runs from where it was installed.
run("${SCRATCH}/prefix/bin/cohort" --version)
