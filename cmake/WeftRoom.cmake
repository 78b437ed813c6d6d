# SPDX-License-Identifier: Apache-2.0
# weft_room(NAME): the .c files of the folder and its kinds (lane/tcp) become the object library weft_NAME and part of libweft.

function(weft_room name)
    file(GLOB sources CONFIGURE_DEPENDS *.c */*.c)
    if(NOT sources)
        return()
    endif()
    add_library(weft_${name} OBJECT ${sources})
    target_link_libraries(weft_${name} PRIVATE weft_compile PkgConfig::SODIUM Threads::Threads)
    set_property(GLOBAL APPEND PROPERTY WEFT_ROOMS weft_${name})
endfunction()
