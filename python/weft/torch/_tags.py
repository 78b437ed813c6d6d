# SPDX-License-Identifier: Apache-2.0
"""Tags of messages: the user's, and a few at the end of Weft's range for ourselves, which no call of torch can meet."""
from ._errors import ArgumentError

LAST = 2 ** 31 - 1  # Weft's
BELL = LAST  # to oneself: the wait for messages begins anew
FAREWELL = LAST - 1  # of a rank that leaves
USERS_LAST = LAST - 16


def checked(tag, what):
    if not 0 <= tag <= USERS_LAST:
        raise ArgumentError("%s: tag %d; tags are 0 to %d" % (what, tag, USERS_LAST))
    return tag
