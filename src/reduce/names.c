/* SPDX-License-Identifier: Apache-2.0 */
/* Names and sizes of the public enums; which pairs are defined. */
#include "reduce/reduce.h"

const char *weft_dtype_name(weft_dtype_t dtype)
{
    static const char *const names[] = {
#define NAME(name, number, bytes, text) [number] = (text),
        WEFT_DTYPE_LIST(NAME)
#undef NAME
    };
    return (unsigned)dtype < WEFT_DTYPES ? names[dtype] : "?";
}

size_t weft_dtype_size(weft_dtype_t dtype)
{
    static const uint8_t sizes[] = {
#define SIZE(name, number, bytes, text) [number] = (bytes),
        WEFT_DTYPE_LIST(SIZE)
#undef SIZE
    };
    return (unsigned)dtype < WEFT_DTYPES ? sizes[dtype] : 0;
}

const char *weft_redop_name(weft_redop_t redop)
{
    static const char *const names[] = {
#define NAME(name, number, text) [number] = (text),
        WEFT_REDOP_LIST(NAME)
#undef NAME
    };
    return (unsigned)redop < WEFT_REDOPS ? names[redop] : "?";
}

const char *weft_coll_name(weft_coll_t coll)
{
    static const char *const names[] = {
#define NAME(name, number, text) [number] = (text),
        WEFT_COLL_LIST(NAME)
#undef NAME
    };
    return (unsigned)coll < WEFT_COLLS ? names[coll] : "?";
}

static bool is_float(weft_dtype_t dtype)
{
    return dtype >= WEFT_F16;
}

bool weft_reduce_is_defined(weft_dtype_t dtype, weft_redop_t op)
{
    if ((unsigned)dtype >= WEFT_DTYPES || (unsigned)op >= WEFT_REDOPS) {
        return false;
    }
    return op == WEFT_BAND || op == WEFT_BOR || op == WEFT_BXOR ? !is_float(dtype)
           : op == WEFT_SCALED                                  ? is_float(dtype)
                                                                : true;
}
