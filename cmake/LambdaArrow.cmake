# lambda_flight(NAME SOURCES ... BINDINGS ... [TESTS ...])
#
# The part of package NAME that speaks Arrow Flight, built against the headers and libraries inside the pyarrow wheel of
# Python_EXECUTABLE: SOURCES become the static library `NAME_flight_csrc`, which links NAME_csrc; BINDINGS become the
# extension module `_flight`, with a nanobind domain of its own; TESTS become the binary `NAME_flight_test`. Nothing
# else of the package sees Arrow.
#
# An installed module finds Arrow in the pyarrow that the interpreter has already loaded (paramserver/native_flight.py
# imports it first, and the loader knows libraries by their SONAME), or in the pyarrow beside its own package.
set(find_arrow [[
import pyarrow
directory, = pyarrow.get_library_dirs()
print(pyarrow.get_include(), directory, pyarrow.__version__.split(".")[0], sep="\n")
]])
execute_process(COMMAND "${Python_EXECUTABLE}" -c "${find_arrow}" OUTPUT_VARIABLE arrow_found
                OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE arrow_failed)
if(arrow_failed)
  message(FATAL_ERROR "the parameter server is built against the pyarrow wheel, which ${Python_EXECUTABLE} lacks: "
                      "install the requirements of [build-system] in pyproject.toml.")
endif()
string(REPLACE "\n" ";" arrow_found "${arrow_found}")
list(GET arrow_found 0 arrow_include)
list(GET arrow_found 1 arrow_directory)
list(GET arrow_found 2 arrow_major)

foreach(name IN ITEMS arrow arrow_flight)
  set(library "${arrow_directory}/lib${name}.so.${arrow_major}00")
  if(NOT EXISTS "${library}")
    message(FATAL_ERROR "${library} is not there: this pyarrow is not a wheel from PyPI; install one that is.")
  endif()
  add_library(lambda_${name} SHARED IMPORTED GLOBAL)
  set_target_properties(lambda_${name} PROPERTIES IMPORTED_LOCATION "${library}"
                        INTERFACE_INCLUDE_DIRECTORIES "${arrow_include}")
endforeach()

function(lambda_flight name)
  cmake_parse_arguments(ARG "" "" "SOURCES;BINDINGS;TESTS" ${ARGN})

  add_library(${name}_flight_csrc STATIC ${ARG_SOURCES})
  target_link_libraries(${name}_flight_csrc PUBLIC ${name}_csrc lambda_arrow_flight lambda_arrow)
  # Reading Arrow's headers is most of what compiling a file here takes.
  target_precompile_headers(${name}_flight_csrc PRIVATE <arrow/api.h> <arrow/flight/api.h>)

  nanobind_add_module(${name}_flight NB_STATIC NB_DOMAIN ${name}_flight NOMINSIZE ${ARG_BINDINGS})
  target_link_libraries(${name}_flight PRIVATE ${name}_flight_csrc)
  set_target_properties(${name}_flight PROPERTIES OUTPUT_NAME _flight INSTALL_RPATH "$ORIGIN/../pyarrow")
  lambda_place(${name}_flight ${name})

  if(LAMBDA_SVC_TESTS AND ARG_TESTS)
    add_executable(${name}_flight_test ${ARG_TESTS})
    target_link_libraries(${name}_flight_test PRIVATE ${name}_flight_csrc)
    target_precompile_headers(${name}_flight_test REUSE_FROM ${name}_flight_csrc)
    add_test(NAME ${name}_flight COMMAND ${name}_flight_test)
  endif()
endfunction()
