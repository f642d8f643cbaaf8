# cmake -D OUT= -D ARCHIVES= -D LD= -D OBJCOPY= -D AR= -D NM= -P JoinArchives.cmake
# One archive of one object: all members of the given ones, with hidden names made local.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code ERROR_VARIABLE said)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${ARGN}: ${code}\n${said}")
  endif()
endfunction()

get_filename_component(folder "${OUT}" DIRECTORY)
file(MAKE_DIRECTORY "${folder}")
set(object "${folder}/cohort.o")
# Groups that a user's objects have too would be dropped in favour of theirs, and with them
# what has become local here: so they are groups no longer.
run("${LD}" -r --force-group-allocation --whole-archive ${ARCHIVES} -o "${object}")
# What must be one in a whole program is then weak, so that any other copy is the same one.
execute_process(COMMAND "${NM}" --defined-only "${object}" OUTPUT_VARIABLE names
                COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL " u [^\n]+" unique "${names}")
list(TRANSFORM unique REPLACE "^ u " "")
list(JOIN unique "\n" unique)
file(WRITE "${folder}/unique.txt" "${unique}\n")
run("${OBJCOPY}" --strip-debug "--weaken-symbols=${folder}/unique.txt" "${object}")
# Only now: objcopy leaves a unique name global, though it is hidden.
run("${OBJCOPY}" --localize-hidden "${object}")
file(REMOVE "${OUT}")
run("${AR}" rcs "${OUT}.part" "${object}")
file(RENAME "${OUT}.part" "${OUT}")
file(REMOVE "${object}" "${folder}/unique.txt")
