# cmake --install: the public headers, one library, the program, and what find_package and
# pkg-config read.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(_package "${CMAKE_INSTALL_LIBDIR}/cmake/cohort")
get_filename_component(COHORT_BUILT_WITH_TORCH "${LibTorch_INCLUDE_DIR}/.." REALPATH)

# ---- The library -----------------------------------------------------------
# Rooms, recipes and commands as one object, in which only what include/cohort promises
# has a name that others can link with.
set(_joined "${PROJECT_BINARY_DIR}/lib/public/libcohort.a")
add_custom_command(OUTPUT "${_joined}"
  COMMAND "${CMAKE_COMMAND}" -D "OUT=${_joined}" -D "LD=${CMAKE_LINKER}"
          -D "OBJCOPY=${CMAKE_OBJCOPY}" -D "AR=${CMAKE_AR}" -D "NM=${CMAKE_NM}"
          -D "ARCHIVES=$<TARGET_FILE:cohort_cli>;$<TARGET_FILE:cohort_recipes>;$<TARGET_FILE:cohort>"
          -P "${PROJECT_SOURCE_DIR}/cmake/JoinArchives.cmake"
  DEPENDS cohort cohort_cli cohort_recipes "${PROJECT_SOURCE_DIR}/cmake/JoinArchives.cmake"
  COMMENT "Joining what is installed" VERBATIM)
add_custom_target(cohort_public ALL DEPENDS "${_joined}")
install(FILES "${_joined}" DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/cohort"
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(CODE "set(COHORT_LIBTORCH \"${LibTorch_VERSION}\")
set(COHORT_INCLUDE_FOLDER \"${CMAKE_INSTALL_INCLUDEDIR}\")")
install(SCRIPT "${PROJECT_SOURCE_DIR}/cmake/RefuseOtherLibTorch.cmake")

# ---- The program -----------------------------------------------------------
# It finds LibTorch where it lies, not through this checkout.
set_target_properties(cohort_program PROPERTIES
                      INSTALL_RPATH "${COHORT_BUILT_WITH_TORCH}/lib")
install(TARGETS cohort_program RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")

# ---- For find_package and pkg-config ---------------------------------------
configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/cohort-config.cmake.in"
  "${PROJECT_BINARY_DIR}/cohort-config.cmake"
  INSTALL_DESTINATION "${_package}" NO_SET_AND_CHECK_MACRO
  PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
# Before 1.0 a minor version may change an interface.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/cohort-config-version.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/cohort-config.cmake"
              "${PROJECT_BINARY_DIR}/cohort-config-version.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/FindLibTorch.cmake"
        DESTINATION "${_package}")

# From lib/pkgconfig, so that the folder may move.
file(RELATIVE_PATH COHORT_PC_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
set(COHORT_PC_REQUIRES "yaml-cpp, zlib, libdeflate, libssl, libcrypto")
if(sentencepiece_FOUND)
  string(APPEND COHORT_PC_REQUIRES ", sentencepiece")
endif()
set(COHORT_PC_TORCH "-L${COHORT_BUILT_WITH_TORCH}/lib -Wl,-rpath,${COHORT_BUILT_WITH_TORCH}/lib -ltorch_cpu -lc10")
if(COHORT_LINKS_CUDA)
  string(APPEND COHORT_PC_TORCH " -Wl,--as-needed -ltorch_cuda -lc10_cuda ${LibTorch_CUDART_LIBRARY}")
endif()
configure_file("${PROJECT_SOURCE_DIR}/cmake/cohort.pc.in" "${PROJECT_BINARY_DIR}/cohort.pc"
               @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/cohort.pc"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
