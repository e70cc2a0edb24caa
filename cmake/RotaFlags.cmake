# Compiler settings that every target of rota shares.
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()
# A project that takes rota in by add_subdirectory wants the library alone.
include(CMakeDependentOption)
option(ROTA_PROGRAMS "Build the command, the benchmark and the examples" ${PROJECT_IS_TOP_LEVEL})
cmake_dependent_option(ROTA_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL} ROTA_PROGRAMS OFF)
option(ROTA_INSTALL "Make the targets install and uninstall" ${PROJECT_IS_TOP_LEVEL})
option(ROTA_WERROR "Treat warnings as errors" ${PROJECT_IS_TOP_LEVEL})
set(ROTA_SANITIZE "" CACHE STRING "Sanitizers to build with, e.g. address,undefined or thread")

add_compile_definitions(_GNU_SOURCE)
# -ffp-contract=off: a fused multiply-add would round differently from one build to the next.
add_compile_options(-Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes
                    -Wpointer-arith -Wvla -ffp-contract=off -fno-common)
if(ROTA_WERROR)
  add_compile_options(-Werror)
endif()
if(ROTA_SANITIZE)
  add_compile_options(-fsanitize=${ROTA_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${ROTA_SANITIZE})
  if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    # Instrumented code makes gcc doubt more than is doubtful; plain builds keep these warnings.
    add_compile_options(-Wno-maybe-uninitialized -Wno-format-truncation)
  endif()
  if(ROTA_SANITIZE MATCHES "address.*undefined" AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
    # Beside a shared libasan, a shared libubsan sets log_path in libasan and writes to stderr.
    add_link_options(-static-libubsan)
  endif()
  if(ROTA_SANITIZE MATCHES "thread" AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
    # gcc warns of every fence, which its ThreadSanitizer does not model. Ours order a store before
    # a load (doorbell); none of them is the only thing that publishes data.
    add_compile_options(-Wno-tsan)
  endif()
endif()
