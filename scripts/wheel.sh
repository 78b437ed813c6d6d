#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# wheel.sh VERSION: installs the Python package with pip into a virtual environment of its own and uses what is there, far
# from the source tree: every file of the package is there, a job under the installed `weft run`, no library of this machine
# but libc's.
set -eu
version=$1
cd "$(dirname "$0")/.."
root=$(pwd)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
skipped=77 # ctest's SKIP_RETURN_CODE

skip()
{
    echo "skipped: $1"
    exit $skipped
}

python3 -m venv "$place/env" >/dev/null 2>&1 || skip "python3 makes no virtual environment (Debian: python3-venv)"
"$place/env/bin/pip" -q download --no-deps -d "$place/index" "scikit-build-core>=0.10" >/dev/null 2>&1 ||
    skip "no package index with scikit-build-core can be reached"
"$place/env/bin/pip" -q wheel --no-deps -w "$place/wheel" "$root" 2>"$place/log" || { cat "$place/log"; exit 1; }
wheel=$(ls "$place/wheel")
case $wheel in
weft-"$version"-py3-none-linux_*.whl) ;;
*)
    echo "the wheel is called $wheel: it must serve every Python 3"
    exit 1
    ;;
esac
"$place/env/bin/pip" -q install --no-index --find-links "$place/wheel" weft 2>"$place/log" || { cat "$place/log"; exit 1; }

cd "$place"
site=$(echo "$place"/env/lib/python3*/site-packages)
unset PYTHONPATH WEFT_LIBRARY
(cd "$root/python" && find weft -name '*.py' -o -name py.typed) >wanted
missing=$(while read -r file; do [ -e "$site/$file" ] || echo "$file"; done <wanted)
[ -s wanted ] && [ -z "$missing" ] || { echo "the wheel has no" $missing; exit 1; }
own='-e ^libc\. -e ^ld- -e ^libm\.'
[ -e "$(pkg-config --variable=libdir libsodium)/libsodium.a" ] || own="$own -e ^libsodium" # no archive to take along
for file in "$site/weft/libweft.so.0" env/bin/weft; do
    needed=$(readelf -d "$file" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | grep -v $own || true)
    [ -z "$needed" ] || { echo "$file needs" $needed; exit 1; }
done
[ "$(env/bin/weft --version)" = "weft $version" ] || { echo "the command is missing"; exit 1; }
cat >sum.py <<'END'
import array, os, weft
assert weft.__file__.startswith(os.getcwd()) and weft._capi.lib.path.startswith(os.getcwd())
with weft.init() as comm:
    numbers = array.array("d", [comm.rank + 1.0])  # without numpy, too
    comm.allreduce(numbers)
    assert list(numbers) == [6.0]
    if comm.rank == 0:
        print(weft.__version__, "adds up to", numbers[0])
END
said=$(env/bin/weft run -n 3 -- env/bin/python -W error sum.py)
[ "$said" = "$version adds up to 6.0" ] || { echo "the job said: $said"; exit 1; }
# Any other Python of this machine can use the same files.
for python in python3.9 python3.10 python3.12 python3.13 /usr/bin/python3; do
    if "$python" -c '' 2>/dev/null; then
        PYTHONPATH=$site "$python" -B -c 'import weft' || exit 1
    fi
done
echo "wheel: fine"
