# SPDX-License-Identifier: Apache-2.0
"""Kinds of elements: what numpy, torch, DLPack and the buffer protocol call them, and what Weft does."""
from __future__ import annotations

import sys
from typing import Dict, Optional

from . import _capi

OPS = {_capi.lib.weft_redop_name(number).decode(): number for number in range(_capi.WEFT_REDOPS)}
NOT_FOR_BOOL = ("sum", "avg", "scaled")  # what comes out is no bool


class Kind:
    """How one element is reduced and moved. There is one object per name, so that `is` compares.

    code        Weft's dtype to reduce with; None: it can be moved only
    ops         Weft's number of each operation that it can be reduced with, by name
    move_code   Weft's dtype to move with, of which one element has move_factor
    """
    __slots__ = ("name", "size", "code", "ops", "move_code", "move_factor")

    def __init__(self, name: str, size: int, code: Optional[int]):
        self.name = name
        self.size = size
        self.code = code
        self.move_code = _capi.WEFT_U8 if code is None else code
        self.move_factor = size if code is None else 1
        self.ops = {} if code is None else {op: number for op, number in OPS.items()
                                            if name != "bool" or op not in NOT_FOR_BOOL}


def _weft_kinds() -> Dict[str, Kind]:
    kinds = {}
    for code in range(_capi.WEFT_DTYPES):
        name = _capi.lib.weft_dtype_name(code).decode()
        kinds[name] = Kind(name, _capi.lib.weft_dtype_size(code), code)
    kinds["bool"] = Kind("bool", 1, _capi.WEFT_U8)
    return kinds


KINDS = _weft_kinds()

_NUMBERS = {("i", 1): "i8", ("i", 2): "i16", ("i", 4): "i32", ("i", 8): "i64",
            ("u", 1): "u8", ("u", 2): "u16", ("u", 4): "u32", ("u", 8): "u64",
            ("f", 2): "f16", ("f", 4): "f32", ("f", 8): "f64", ("b", 1): "bool"}
# ml_dtypes' and torch's own names
_NAMED = {"bfloat16": "bf16", "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2"}
_NATIVE = "<" if sys.byteorder == "little" else ">"


def number_kind(letter: str, size: int) -> Optional[Kind]:
    """letter: as numpy's dtype.kind (i, u, f, b)."""
    name = _NUMBERS.get((letter, size))
    return KINDS[name] if name else None


def movable_kind(name: str, size: int) -> Kind:
    """Of elements that Weft can carry but not add up."""
    kind = KINDS.get(name)
    if kind is None or kind.size != size:
        kind = KINDS[name] = Kind(name, size, None)
    return kind


def named_kind(name: str) -> Optional[Kind]:
    """Of a dtype that has no place in the buffer protocol: bfloat16 and its like."""
    return KINDS[_NAMED[name]] if name in _NAMED else None


def format_kind(form: str, size: int) -> Kind:
    """Of a memoryview's format, a letter of Python's struct module with or without a byte order."""
    order, letter = (form[0], form[1:]) if form[:1] in "@=<>!" else ("@", form)
    is_native = order in "@=" or order == _NATIVE or size == 1
    for numpy_letter, letters in (("i", "bhilqn"), ("u", "BHILQNc"), ("f", "efd"), ("b", "?")):
        if len(letter) == 1 and letter in letters and is_native:
            kind = number_kind(numpy_letter, size)
            if kind is not None:
                return kind
    return movable_kind("format %r" % form, size)
