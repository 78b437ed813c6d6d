# SPDX-License-Identifier: Apache-2.0
# The linker's symbol map, made from the public header, so that the two cannot drift apart.

function(weft_symbol_map header map)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
    file(READ ${header} text)
    string(REGEX REPLACE "/\\*[^*]*\\*+([^/*][^*]*\\*+)*/" "" text "${text}") # comments name functions
    # A declaration begins at the start of a line; macros and struct members do not.
    string(REGEX MATCHALL "\n[a-z][a-z0-9_ ]*[ *]weft_[a-z0-9_]+\\(" declarations "${text}")
    set(names "")
    foreach(declaration ${declarations})
        string(REGEX REPLACE ".*[ *](weft_[a-z0-9_]+)\\($" "\\1" name "${declaration}")
        string(APPEND names "        ${name};\n")
    endforeach()
    if(names STREQUAL "")
        message(FATAL_ERROR "no function found in ${header}")
    endif()
    file(CONFIGURE OUTPUT ${map} @ONLY CONTENT
"WEFT_@PROJECT_VERSION_MAJOR@ {
    global:
@names@    local:
        *;
};
")
endfunction()
