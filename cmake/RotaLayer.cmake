# One build target per folder, with its own include directories.
#
#   rota_layer(NAME PREFIX HEADERS ... SOURCES ... USES ... LIBRARIES ...)
#
# HEADERS are what other layers may include, as "PREFIX/header.h"; they are linked into a folder
# that only targets naming this layer after USES (or after its users' USES) can see. A layer's own
# files see all of its headers.
set(ROTA_LAYERS "" CACHE INTERNAL "all layers, in the order of their declaration")

function(rota_layer name prefix)
  cmake_parse_arguments(LAYER "" "" "HEADERS;SOURCES;USES;LIBRARIES" ${ARGN})
  set(wall ${PROJECT_BINARY_DIR}/walls/${name})
  set(inner ${PROJECT_BINARY_DIR}/walls/${name}-inner)
  file(REMOVE_RECURSE ${wall} ${inner})
  file(MAKE_DIRECTORY ${wall}/${prefix} ${inner})
  foreach(header ${LAYER_HEADERS})
    get_filename_component(folder ${wall}/${prefix}/${header} DIRECTORY)
    file(MAKE_DIRECTORY ${folder})
    file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR}/${header} ${wall}/${prefix}/${header} SYMBOLIC)
  endforeach()
  get_filename_component(inner_parent ${inner}/${prefix} DIRECTORY)
  file(MAKE_DIRECTORY ${inner_parent})
  file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR} ${inner}/${prefix} SYMBOLIC)

  if(LAYER_SOURCES)
    add_library(rota_${name} STATIC ${LAYER_SOURCES})
    target_include_directories(rota_${name} PUBLIC ${wall} ${PROJECT_SOURCE_DIR}/include PRIVATE ${inner})
    set(scope PUBLIC)
    set(ROTA_LAYERS "${ROTA_LAYERS};rota_${name}" CACHE INTERNAL "")
  else()
    add_library(rota_${name} INTERFACE)
    target_include_directories(rota_${name} INTERFACE ${wall} ${PROJECT_SOURCE_DIR}/include)
    set(scope INTERFACE)
  endif()
  foreach(other ${LAYER_USES})
    target_link_libraries(rota_${name} ${scope} rota_${other})
  endforeach()
  target_link_libraries(rota_${name} ${scope} ${LAYER_LIBRARIES})
  # Tests may look inside the layers that they name.
  set_property(TARGET rota_${name} PROPERTY ROTA_INNER ${inner})
endfunction()

# Links a test program to layers, whose inner headers it may include.
function(rota_test_layers target)
  foreach(layer ${ARGN})
    get_target_property(inner rota_${layer} ROTA_INNER)
    target_include_directories(${target} PRIVATE ${inner})
    target_link_libraries(${target} PRIVATE rota_${layer})
  endforeach()
  # What tests share is included as "unit/reduce/reference.h".
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
endfunction()

# A Criterion program exits with 0 when a sanitizer reports in one of its children, so the report
# itself fails the test.
set(ROTA_SANITIZER_REPORTS
    "ERROR: [A-Za-z]+Sanitizer;WARNING: ThreadSanitizer;runtime error:" CACHE INTERNAL "")

# rota_unit_test(NAME SOURCES ... USES ...): a Criterion program over some layers; label "unit".
function(rota_unit_test name)
  cmake_parse_arguments(TEST "" "" "SOURCES;USES;LIBRARIES" ${ARGN})
  add_executable(test_${name} ${TEST_SOURCES})
  rota_test_layers(test_${name} ${TEST_USES})
  target_link_libraries(test_${name} PRIVATE ${TEST_LIBRARIES} PkgConfig::CRITERION m)
  add_test(NAME ${name} COMMAND test_${name} --timeout 120)
  set_tests_properties(${name} PROPERTIES LABELS unit TIMEOUT 300
                       FAIL_REGULAR_EXPRESSION "${ROTA_SANITIZER_REPORTS}")
endfunction()

# All thread tests, so that a ThreadSanitizer build needs to build nothing else.
add_custom_target(thread_tests)

# rota_thread_test(NAME SOURCES ... USES ...): a plain program (Criterion aborts under
# ThreadSanitizer) that exits with 0 on success; label "threads", run in every build.
function(rota_thread_test name)
  cmake_parse_arguments(TEST "" "" "SOURCES;USES;LIBRARIES" ${ARGN})
  add_executable(test_${name} ${TEST_SOURCES})
  rota_test_layers(test_${name} ${TEST_USES})
  target_link_libraries(test_${name} PRIVATE ${TEST_LIBRARIES} Threads::Threads m)
  add_dependencies(thread_tests test_${name})
  add_test(NAME ${name} COMMAND test_${name})
  set_tests_properties(${name} PROPERTIES LABELS threads TIMEOUT 300
                       FAIL_REGULAR_EXPRESSION "${ROTA_SANITIZER_REPORTS}")
endfunction()
