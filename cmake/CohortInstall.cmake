# cmake --install: headers, library, program, and a package for find_package(cohort).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(_package "${CMAKE_INSTALL_LIBDIR}/cmake/cohort")
get_filename_component(COHORT_BUILT_WITH_TORCH "${LibTorch_INCLUDE_DIR}/.." REALPATH)

install(TARGETS cohort EXPORT cohort-targets
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
# The installed program finds LibTorch where it lies, not through this checkout.
set_target_properties(cohort_program PROPERTIES
                      INSTALL_RPATH "${COHORT_BUILT_WITH_TORCH}/lib")
install(TARGETS cohort_program RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")

# Backends and *_impl.h are private; what is for tests is for ours.
install(DIRECTORY "${PROJECT_SOURCE_DIR}/src/cohort"
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        FILES_MATCHING PATTERN "*.h"
        PATTERN "*_impl.h" EXCLUDE
        PATTERN "testing_*.h" EXCLUDE
        PATTERN "*_test.h" EXCLUDE
        REGEX "/src/cohort/comm/[a-z_]+$" EXCLUDE)
install(DIRECTORY "${PROJECT_BINARY_DIR}/generated/"
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" OPTIONAL
        FILES_MATCHING PATTERN "*.h")

install(EXPORT cohort-targets NAMESPACE cohort:: DESTINATION "${_package}")
configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/cohort-config.cmake.in"
  "${PROJECT_BINARY_DIR}/cohort-config.cmake"
  INSTALL_DESTINATION "${_package}" NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may change an interface.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/cohort-config-version.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/cohort-config.cmake"
              "${PROJECT_BINARY_DIR}/cohort-config-version.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/FindLibTorch.cmake"
        DESTINATION "${_package}")
