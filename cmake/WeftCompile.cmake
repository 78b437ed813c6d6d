# SPDX-License-Identifier: Apache-2.0
# How every file of the project is compiled. Targets link weft_compile to get it.

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_C_FLAGS_RELEASE "-O2 -g")
set(CMAKE_C_FLAGS_DEBUG "-Og -g")

add_library(weft_compile INTERFACE)
target_include_directories(weft_compile INTERFACE
    ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
# Defined empty, so that a file which also defines it does not redefine it differently.
target_compile_definitions(weft_compile INTERFACE _GNU_SOURCE=)
target_compile_options(weft_compile INTERFACE
    -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla
    $<$<BOOL:${WEFT_WERROR}>:-Werror>)

if(WEFT_SANITIZE)
    # A finding ends the program, so that no test can pass over one.
    set(sanitize -fsanitize=${WEFT_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    if(WEFT_SANITIZE STREQUAL "thread" AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
        # It says of some fences that it does not follow them: no data is passed by any, see weft_board_tell_tsan().
        list(APPEND sanitize -Wno-tsan)
    endif()
    if(WEFT_FUZZ)
        # libFuzzer makes nothing of who called whom, unless it is asked to.
        list(APPEND sanitize -fsanitize=fuzzer-no-link -fno-sanitize-coverage=indirect-calls)
        # Each input finds links put back: with less memory they cost less, and their ends are met.
        target_compile_definitions(weft_compile INTERFACE WEFT_LINK_KEEP=8192 WEFT_LINK_POOL_PER_SLOT=8)
    endif()
    target_compile_options(weft_compile INTERFACE ${sanitize})
    target_link_options(weft_compile INTERFACE ${sanitize})
endif()
