# SPDX-License-Identifier: Apache-2.0
"""How the ranks of a group find each other: rank 0 makes Weft's id, and torch's store carries it to the others.

The id has the group's secret in it, so who can read the store can join (docs/threats.md). It is deleted there as soon
as all ranks have joined.
"""
import ctypes
import threading
from datetime import timedelta

from .. import _capi as c
from .. import _interrupt
from ._errors import BackendError, failure

lib = c.lib
_FAILED = "failed: "


def in_helper(call, discard=lambda _result: None):
    """call(), which may wait for other ranks for minutes; when this is the main thread, in another one, so that Ctrl-C can
    leave it. discard(result): of a call that was left and succeeded after all."""
    if threading.get_ident() != _interrupt.MAIN:
        return call()
    outcome, left = [], []

    def work():
        try:
            outcome.append((call(), None))
        except BaseException as error:
            outcome.append((None, error))
        if left and outcome[0][1] is None:
            discard(outcome[0][0])

    thread = threading.Thread(target=work, name="weft-start", daemon=True)
    try:
        thread.start()
        thread.join()
    except BaseException:
        left.append(True)
        raise
    result, error = outcome[0]
    if error is not None:
        raise error
    return result


def create_comm(store, rank, ranks, timeout_ms):
    """A communicator of the ranks that call this with the same store (which has the group's own prefix)."""
    return in_helper(lambda: _create(store, rank, ranks, timeout_ms), lib.weft_comm_close)


def _create(store, rank, ranks, timeout_ms):
    config = c.weft_config_t(start_timeout_ms=timeout_ms, timeout_ms=timeout_ms)
    if ranks == 1:
        return _join(_make_id(config), 0, 1, config)
    key = _next_key(store, rank, ranks)
    if rank != 0:
        return _join(_read_id(store, key, timeout_ms), rank, ranks, config)
    try:
        made = _make_id(config)
    except BackendError as error:
        store.set(key, _FAILED + str(error))
        raise
    store.set(key, _print_id(made))
    try:
        return _join(made, rank, ranks, config)
    finally:
        _forget(store, key)


def _next_key(store, rank, ranks):
    """Groups may be made again under the same name and in the same store (destroy and init again under torchrun): every
    rank counts how often it was here, which is the same number on all of them."""
    return "weft/id/%d/%d" % (ranks, store.add("weft/start/%d/%d" % (ranks, rank), 1))


def _make_id(config):
    made = c.weft_id_t()
    status = lib.weft_id_create(ctypes.byref(config), ctypes.byref(made))
    if status != c.WEFT_OK:
        raise failure(status)
    return made


def _print_id(made):
    text = ctypes.create_string_buffer(c.WEFT_ID_TEXT_LEN)
    status = lib.weft_id_print(ctypes.byref(made), text)
    if status != c.WEFT_OK:
        raise failure(status)
    return text.value.decode()


def _read_id(store, key, timeout_ms):
    try:
        store.wait([key], timedelta(milliseconds=timeout_ms))
        text = store.get(key).decode()
    except RuntimeError as error:
        raise BackendError("rank 0 of the group put no id into the store within %d ms: %s" % (timeout_ms, error),
                           c.WEFT_ERR_TIMEOUT) from None
    if text.startswith(_FAILED):
        raise BackendError("rank 0 of the group could not start: " + text[len(_FAILED):], c.WEFT_ERR_PEER, 0)
    read = c.weft_id_t()
    status = lib.weft_id_parse(text.encode(), ctypes.byref(read))
    if status != c.WEFT_OK:
        raise failure(status)
    return read


def _join(made, rank, ranks, config):
    comm = c.weft_comm_t()
    status = lib.weft_comm_create(ctypes.byref(made), rank, ranks, ctypes.byref(config), ctypes.byref(comm))
    if status != c.WEFT_OK:
        error = failure(status)
        if rank == 0:
            lib.weft_id_destroy(ctypes.byref(made))
        raise error
    return comm.value


def _forget(store, key):
    try:
        store.delete_key(key)
    except (RuntimeError, NotImplementedError):
        pass  # a store that cannot: it keeps the id as long as it lives
