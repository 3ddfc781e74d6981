# lambda_package(NAME SOURCES ... BINDINGS ... [TESTS ...] [LIBRARIES ...])
#
# SOURCES become a static library `NAME_csrc` that knows nothing of Python. BINDINGS become the extension module
# `_core` of the Python package NAME, with a nanobind domain of its own, so that exception types of two packages are
# never mixed up. TESTS become the binary `NAME_test`. Headers are included from the top of the tree
# ("paramserver/csrc/table.h"), so an include line names the package it reaches into.
find_package(Threads REQUIRED)
find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)
execute_process(COMMAND "${Python_EXECUTABLE}" -m nanobind --cmake_dir
                OUTPUT_STRIP_TRAILING_WHITESPACE OUTPUT_VARIABLE nanobind_ROOT COMMAND_ERROR_IS_FATAL ANY)
find_package(nanobind CONFIG REQUIRED)

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 11)
  message(FATAL_ERROR "lambda-svc needs g++ 11 or newer (C++20); found ${CMAKE_CXX_COMPILER_VERSION}. "
                      "Install a newer one and set CXX=/path/to/g++.")
elseif(CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14)
  message(FATAL_ERROR "lambda-svc needs clang++ 14 or newer (C++20); found ${CMAKE_CXX_COMPILER_VERSION}. "
                      "Install a newer one and set CXX=/path/to/clang++.")
endif()

# Where an extension module of a package lies: beside the Python sources, or in the build folder until it is installed.
function(lambda_place target package)
  if(LAMBDA_SVC_IN_TREE)
    set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${CMAKE_SOURCE_DIR}/${package}")
  else()
    set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/out/${package}")
  endif()
  install(TARGETS ${target} LIBRARY DESTINATION ${package})
endfunction()

function(lambda_package name)
  cmake_parse_arguments(ARG "" "" "SOURCES;BINDINGS;TESTS;LIBRARIES" ${ARGN})

  add_library(${name}_csrc STATIC ${ARG_SOURCES})
  target_include_directories(${name}_csrc PUBLIC "${CMAKE_SOURCE_DIR}")
  target_compile_options(${name}_csrc PUBLIC -Wall -Wextra -Wno-unused-parameter)
  target_link_libraries(${name}_csrc PUBLIC Threads::Threads ${ARG_LIBRARIES})
  if(LAMBDA_SVC_SANITIZE)
    target_compile_options(${name}_csrc PUBLIC -fsanitize=${LAMBDA_SVC_SANITIZE} -fno-omit-frame-pointer -g)
    target_link_options(${name}_csrc PUBLIC -fsanitize=${LAMBDA_SVC_SANITIZE})
  endif()

  nanobind_add_module(${name}_core NB_STATIC NB_DOMAIN ${name} NOMINSIZE ${ARG_BINDINGS})
  target_link_libraries(${name}_core PRIVATE ${name}_csrc)
  set_target_properties(${name}_core PROPERTIES OUTPUT_NAME _core)
  lambda_place(${name}_core ${name})

  if(LAMBDA_SVC_TESTS AND ARG_TESTS)
    add_executable(${name}_test ${ARG_TESTS})
    target_link_libraries(${name}_test PRIVATE ${name}_csrc)
    add_test(NAME ${name} COMMAND ${name}_test)
  endif()
endfunction()
