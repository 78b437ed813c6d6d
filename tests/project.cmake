# SPDX-License-Identifier: Apache-2.0
# Tests of the project rather than of one build: lint, layers, installation, and the fast part of the
# other presets. They run in the release tree, so that no other preset is needed for a verdict.
if(NOT CMAKE_BUILD_TYPE STREQUAL "Release" OR NOT CMAKE_C_COMPILER_ID STREQUAL "GNU")
    return()
endif()

# weft_project_test(NAME TIMEOUT COMMAND…): runs alone, because it uses all cores itself.
function(weft_project_test name timeout)
    add_test(NAME ${name} COMMAND ${ARGN} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(${name} PROPERTIES TIMEOUT ${timeout} LABELS project RUN_SERIAL ON)
endfunction()

weft_project_test(lint.format 60 scripts/lint.sh format)
weft_project_test(lint.layers 60 scripts/lint.sh layers)
weft_project_test(lint.faults 60 scripts/lint.sh faults)
weft_project_test(lint.python 60 scripts/lint.sh python)
weft_project_test(lint.layers_self_test 60 scripts/layers.py --self-test)
weft_project_test(install.consumer 60 scripts/consumer.sh ${PROJECT_BINARY_DIR} ${PROJECT_VERSION})
weft_project_test(install.wheel 900 scripts/wheel.sh ${PROJECT_VERSION}) # builds everything again: minutes
set_tests_properties(install.wheel PROPERTIES LABELS "project;long" SKIP_RETURN_CODE 77)
# Where bytes of others are read, and where threads meet; check-all runs everything under both. Builds of their
# own take minutes, so `make test` leaves them to `make test-sanitized`.
weft_project_test(asan.subset 600 scripts/sanitize.sh asan
    "unit\\.(wire|net|lane|link|mem|p2p|exec|api)\\.|fault\\.f(33_abort_in_messages|14_memory_handles)")
weft_project_test(tsan.subset 600 scripts/sanitize.sh tsan
    "unit\\.(engine|api|lane)\\.|fault\\.f33_abort(_in_messages)?$")
weft_project_test(fuzz.smoke 300 scripts/fuzz.sh 2)
set_tests_properties(asan.subset tsan.subset fuzz.smoke PROPERTIES LABELS "project;sanitized")
