# SPDX-License-Identifier: Apache-2.0
"""include/weft/weft.h in ctypes, name by name: `lib.weft_allreduce`, `weft_error_t`, `WEFT_SUM`.

Nothing here thinks: it declares. What the functions do is said in the header. tests/python/test_capi.py compares this
file with the header (functions, constants, sizes and offsets), so that the two cannot drift apart.
Handles (weft_comm_t, weft_request_t, weft_op_t) are c_void_p: pass `byref(handle)` where C wants a pointer to one.
"""
import ctypes
from ctypes import (CFUNCTYPE, POINTER, Structure, c_char, c_char_p, c_double, c_int, c_size_t, c_uint8, c_uint32,
                    c_uint64, c_void_p)

from . import _find

WEFT_VERSION_MAJOR = 0
WEFT_VERSION_MINOR = 1
WEFT_VERSION_PATCH = 0

WEFT_ID_TEXT_LEN = 192
WEFT_RANKS_MAX = 1000000
WEFT_CONTROL_MAX = 65536
WEFT_ANY_SOURCE = -1
WEFT_ANY_TAG = -1
WEFT_NO_LIMIT = 0xFFFFFFFF

(WEFT_OK, WEFT_ERR_INVALID, WEFT_ERR_MEMORY, WEFT_ERR_SYSTEM, WEFT_ERR_TIMEOUT, WEFT_ERR_PEER, WEFT_ERR_NETWORK,
 WEFT_ERR_AUTH, WEFT_ERR_VERSION, WEFT_ERR_PROTOCOL, WEFT_ERR_MISMATCH, WEFT_ERR_DUPLICATE, WEFT_ERR_TRUNCATED,
 WEFT_ERR_ABORTED, WEFT_ERR_FORKED, WEFT_ERR_BUSY, WEFT_ERR_UNSUPPORTED) = range(17)

(WEFT_I8, WEFT_U8, WEFT_I16, WEFT_U16, WEFT_I32, WEFT_U32, WEFT_I64, WEFT_U64, WEFT_F16, WEFT_BF16, WEFT_F32,
 WEFT_F64, WEFT_F8E4M3, WEFT_F8E5M2) = range(14)
WEFT_DTYPES = 14

(WEFT_SUM, WEFT_PROD, WEFT_MIN, WEFT_MAX, WEFT_AVG, WEFT_BAND, WEFT_BOR, WEFT_BXOR, WEFT_SCALED) = range(9)
WEFT_REDOPS = 9

(WEFT_ALLREDUCE, WEFT_REDUCE_SCATTER, WEFT_ALLGATHER, WEFT_BROADCAST, WEFT_REDUCE, WEFT_GATHER, WEFT_SCATTER,
 WEFT_ALLTOALL, WEFT_BARRIER) = range(9)
WEFT_COLLS = 9

weft_status_t = weft_dtype_t = weft_redop_t = weft_coll_t = c_int
weft_comm_t = weft_request_t = weft_op_t = c_void_p


class weft_id_t(Structure):
    _fields_ = [("bytes", c_uint8 * 128)]


class weft_config_t(Structure):
    """As WEFT_CONFIG_INIT when made without arguments."""
    _fields_ = [("size", c_size_t), ("start_timeout_ms", c_uint32), ("timeout_ms", c_uint32), ("interface", c_char_p)]

    def __init__(self, **settings):
        super().__init__(size=ctypes.sizeof(weft_config_t), **settings)


class weft_error_t(Structure):
    _fields_ = [("status", weft_status_t), ("rank", c_int), ("verdict", c_uint32), ("text", c_char * 256)]


class weft_message_t(Structure):
    _fields_ = [("source", c_int), ("tag", c_int), ("len", c_size_t)]


class weft_mem_t(Structure):
    _fields_ = [("bytes", c_uint8 * 64)]


class weft_call_t(Structure):
    """As WEFT_CALL_INIT when made without arguments."""
    _fields_ = [("size", c_size_t), ("coll", weft_coll_t), ("dtype", weft_dtype_t), ("op", weft_redop_t),
                ("root", c_int), ("in_", c_void_p), ("out", c_void_p), ("count", c_size_t), ("scale", c_double),
                ("in_counts", POINTER(c_size_t)), ("in_places", POINTER(c_size_t)),
                ("out_counts", POINTER(c_size_t)), ("out_places", POINTER(c_size_t)),
                ("timeout_ms", c_uint32), ("algorithm", c_char_p)]

    def __init__(self, **settings):
        given = dict(coll=WEFT_BARRIER, dtype=WEFT_U8, op=WEFT_SUM, scale=1.0)
        given.update(settings)
        super().__init__(size=ctypes.sizeof(weft_call_t), **given)


_status = weft_status_t
_comm = weft_comm_t
_comm_p = POINTER(weft_comm_t)
_request_p = POINTER(weft_request_t)
_op = weft_op_t
_int_p = POINTER(c_int)
_id_p = POINTER(weft_id_t)
_config_p = POINTER(weft_config_t)
_error_p = POINTER(weft_error_t)
_message_p = POINTER(weft_message_t)
_mem_p = POINTER(weft_mem_t)
_call_p = POINTER(weft_call_t)
_collective = [_comm, c_void_p, c_void_p, c_size_t, weft_dtype_t]  # comm, in, out, count, dtype

# Memory is c_void_p, which takes an address (int), None, bytes and ctypes objects alike.
FUNCTIONS = {
    "weft_status_name": (c_char_p, [weft_status_t]),
    "weft_status_text": (c_char_p, [weft_status_t]),
    "weft_error_text": (c_char_p, []),
    "weft_version": (c_char_p, []),

    "weft_id_create": (_status, [_config_p, _id_p]),
    "weft_id_destroy": (None, [_id_p]),
    "weft_id_print": (_status, [_id_p, c_char_p]),
    "weft_id_print_public": (_status, [_id_p, c_char_p]),
    "weft_id_parse": (_status, [c_char_p, _id_p]),

    "weft_comm_create": (_status, [_id_p, c_int, c_int, _config_p, _comm_p]),
    "weft_comm_create_scalable": (_status, [_id_p, c_int, c_int, c_int, _config_p, _comm_p]),
    "weft_init": (_status, [_config_p, _comm_p]),
    "weft_comm_rank": (_status, [_comm, _int_p]),
    "weft_comm_ranks": (_status, [_comm, _int_p]),
    "weft_comm_local": (_status, [_comm, _int_p, _int_p]),
    "weft_comm_split": (_status, [_comm, c_int, c_int, _comm_p]),
    "weft_comm_shrink": (_status, [_comm, _comm_p]),
    "weft_comm_duplicate": (_status, [_comm, _comm_p]),
    "weft_comm_status": (_status, [_comm]),
    "weft_comm_get_error": (_status, [_comm, _error_p]),
    "weft_comm_error_fd": (_status, [_comm, _int_p]),
    "weft_comm_set_timeout": (_status, [_comm, c_uint32]),
    "weft_abort": (_status, [_comm, c_char_p]),
    "weft_dump": (_status, [_comm, c_char_p]),
    "weft_comm_close": (_status, [_comm]),

    "weft_control_barrier": (_status, [_comm]),
    "weft_control_allgather": (_status, [_comm, c_void_p, c_size_t, c_void_p]),
    "weft_control_broadcast": (_status, [_comm, c_void_p, c_size_t, c_int]),
    "weft_control_send": (_status, [_comm, c_int, c_uint32, c_void_p, c_size_t]),
    "weft_control_recv": (_status, [_comm, c_int, c_uint32, c_void_p, c_size_t, POINTER(c_size_t)]),

    "weft_send": (_status, [_comm, c_void_p, c_size_t, c_int, c_int, _request_p]),
    "weft_recv": (_status, [_comm, c_void_p, c_size_t, c_int, c_int, _message_p, _request_p]),
    "weft_probe": (_status, [_comm, c_int, c_int, c_uint32, _message_p]),
    "weft_test": (_status, [_request_p, _int_p]),
    "weft_wait": (_status, [_request_p, c_uint32]),
    "weft_wait_any": (_status, [_request_p, c_int, c_uint32, _int_p]),
    "weft_wait_all": (_status, [_request_p, c_int, c_uint32]),
    "weft_cancel": (_status, [_request_p]),
    "weft_request_set_timeout": (_status, [weft_request_t, c_uint32]),
    "weft_group_begin": (_status, [_comm]),
    "weft_group_end": (_status, [_comm]),

    "weft_alloc": (_status, [c_size_t, POINTER(c_void_p)]),
    "weft_free": (_status, [c_void_p]),
    "weft_mem_register": (_status, [_comm, c_void_p, c_size_t, _mem_p]),
    "weft_mem_deregister": (_status, [_comm, _mem_p]),
    "weft_put": (_status, [_comm, _mem_p, c_size_t, c_void_p, c_size_t]),
    "weft_get": (_status, [_comm, _mem_p, c_size_t, c_void_p, c_size_t]),
    "weft_put_signal": (_status, [_comm, _mem_p, c_size_t, c_void_p, c_size_t, _mem_p, c_size_t, c_uint64]),
    "weft_wait_signal": (_status, [_comm, c_void_p, c_uint64, c_uint32]),
    "weft_fence": (_status, [_comm]),
    "weft_quiet": (_status, [_comm]),

    "weft_dtype_name": (c_char_p, [weft_dtype_t]),
    "weft_redop_name": (c_char_p, [weft_redop_t]),
    "weft_coll_name": (c_char_p, [weft_coll_t]),
    "weft_dtype_size": (c_size_t, [weft_dtype_t]),

    "weft_allreduce": (_status, _collective + [weft_redop_t, _request_p]),
    "weft_reduce_scatter": (_status, _collective + [weft_redop_t, _request_p]),
    "weft_allgather": (_status, _collective + [_request_p]),
    "weft_broadcast": (_status, _collective + [c_int, _request_p]),
    "weft_reduce": (_status, _collective + [weft_redop_t, c_int, _request_p]),
    "weft_gather": (_status, _collective + [c_int, _request_p]),
    "weft_scatter": (_status, _collective + [c_int, _request_p]),
    "weft_alltoall": (_status, _collective + [_request_p]),
    "weft_barrier": (_status, [_comm, _request_p]),
    "weft_collective": (_status, [_comm, _call_p, _request_p]),
    "weft_op_create": (_status, [_comm, _call_p, POINTER(weft_op_t)]),
    "weft_op_start": (_status, [_op]),
    "weft_op_wait": (_status, [_op, c_uint32]),
    "weft_op_destroy": (_status, [_op]),
}


class _Library:
    """The functions of libweft as attributes, each with its types; calling one releases the GIL."""

    def __init__(self, library, path):
        self.path = path
        for name, (result, arguments) in FUNCTIONS.items():
            # A prototype of our own, not the library's attribute: others who load libweft cannot change our types.
            setattr(self, name, CFUNCTYPE(result, *arguments)((name, library)))


def _load():
    library, path = _find.load()
    try:
        version = library.weft_version
    except AttributeError:
        raise ImportError("%s is not libweft: name the right library in WEFT_LIBRARY." % path) from None
    version.restype = c_char_p
    found = version().decode()
    wanted = "%d.%d." % (WEFT_VERSION_MAJOR, WEFT_VERSION_MINOR)
    if not found.startswith(wanted):
        raise ImportError("%s is Weft %s, but this Python package speaks %sx. Install both from one source, or name "
                          "the right library in WEFT_LIBRARY." % (path, found, wanted))
    try:
        return _Library(library, path)
    except AttributeError as error:
        raise ImportError("%s (Weft %s) lacks a function of this Python package: %s" % (path, found, error)) from None


lib = _load()
