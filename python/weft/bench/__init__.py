# SPDX-License-Identifier: Apache-2.0
"""python -m weft.bench: Weft's collectives from Python, beside Gloo in the same run when torch is installed."""
