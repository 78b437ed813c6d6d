/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The average of integers: what was summed, divided towards zero. No CPU divides vectors of integers; up to
 * 32 bits the quotient of two doubles is exact enough (it never rounds up to the next integer) and several
 * times as fast as dividing integers.
 */
#include "reduce/internal.h"

#include <string.h>

#define DIVIDE(type, wide)                                                                         \
    for (size_t at = 0; at < len; at += sizeof(type)) {                                            \
        type value;                                                                                \
        memcpy(&value, (uint8_t *)integers + at, sizeof(value));                                   \
        value = (type)((wide)value / (wide)by);                                                    \
        memcpy((uint8_t *)integers + at, &value, sizeof(value));                                   \
    }

void weft_reduce_divide(weft_dtype_t dtype, void *integers, size_t len, uint32_t by)
{
    switch (dtype) {
    case WEFT_I8:
        DIVIDE(int8_t, double)
        break;
    case WEFT_U8:
        DIVIDE(uint8_t, double)
        break;
    case WEFT_I16:
        DIVIDE(int16_t, double)
        break;
    case WEFT_U16:
        DIVIDE(uint16_t, double)
        break;
    case WEFT_I32:
        DIVIDE(int32_t, double)
        break;
    case WEFT_U32:
        DIVIDE(uint32_t, double)
        break;
    case WEFT_I64:
        DIVIDE(int64_t, int64_t)
        break;
    default:
        DIVIDE(uint64_t, uint64_t)
        break;
    }
}
