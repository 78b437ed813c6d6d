#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The tests of weft.torch (tests/torch), in a virtual environment under build/ that has the PyTorch they are written for.
# Arguments go to unittest: `scripts/test-torch.sh -v test_works` runs one file. Needs build/libweft.so (`make build`).
set -eu
cd "$(dirname "$0")/.."

venv=$PWD/build/torch-venv
wanted=tests/torch/requirements.txt
if ! cmp -s "$wanted" "$venv/installed.txt"; then
    echo "making $venv"
    rm -rf "$venv"
    "${PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$wanted"
    cp "$wanted" "$venv/installed.txt" # last: a half-made one is made again
fi
export PYTHONPATH="$PWD/python" OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
cd tests/torch
if [ $# -eq 0 ]; then
    set -- discover
fi
exec "$venv/bin/python" -W ignore::FutureWarning -m unittest "$@"
