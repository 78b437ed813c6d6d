# SPDX-License-Identifier: Apache-2.0
"""Finds libweft.so and loads it: no compiler, no build, no guessing beyond four places."""
import ctypes
import os

HERE = os.path.dirname(os.path.abspath(__file__))
SONAME = "libweft.so.0"


def candidates():
    """Where libweft may be, the first wins: (path or name, why it is looked for there)."""
    named = os.environ.get("WEFT_LIBRARY")
    if named:  # whoever names one means that one: no other is tried
        return [(named, "WEFT_LIBRARY")]
    tree = os.path.normpath(os.path.join(HERE, "..", "..", "build"))
    return [(os.path.join(HERE, SONAME), "installed with this package"),
            (os.path.join(tree, "libweft.so"), "built by `make build`"),
            (os.path.join(tree, "release", "lib", "libweft.so"), "built by the release preset"),
            (SONAME, "the system's loader")]


def load():
    """The loaded library and its path; ImportError says everything that was tried."""
    tried = []
    for path, why in candidates():
        if os.sep in path and not os.path.exists(path):
            tried.append("%s (%s): no such file" % (path, why))
            continue
        try:
            return ctypes.CDLL(path), path
        except OSError as error:
            tried.append("%s (%s): %s" % (path, why, error))
    raise ImportError(
        "libweft.so was not found. Build it (`make build`), install it (`pip install .` or `make install`), or name "
        "it in WEFT_LIBRARY. Tried:\n  " + "\n  ".join(tried))
