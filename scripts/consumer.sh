#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# consumer.sh BUILD_DIR VERSION: installs into an empty prefix and uses what is there the way others
# would: pkg-config, find_package, the header alone as C11 and as C++17.
set -eu
build=$1
version=$2
here=$(cd "$(dirname "$0")/../tests/install" && pwd)
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT

expect() # WHAT HOW-IT-IS HOW-IT-MUST-BE
{
    if [ "$2" != "$3" ]; then
        printf '%s: got "%s", expected "%s"\n' "$1" "$2" "$3"
        exit 1
    fi
}

cmake --install "$build" --prefix "$prefix" >/dev/null
libdir=$(dirname "$(find "$prefix" -name libweft.so)")
export PKG_CONFIG_PATH="$libdir/pkgconfig"
export LD_LIBRARY_PATH="$libdir"
said="$version ERR_PEER"

expect "pkg-config --modversion" "$(pkg-config --modversion weft)" "$version"
# shellcheck disable=SC2046 # flags are a list
cc -std=c11 -Wall -Wextra -Werror -o "$prefix/shared" "$here/consumer.c" \
    $(pkg-config --cflags --libs weft)
expect "program by pkg-config" "$("$prefix/shared")" "$said"
# shellcheck disable=SC2046
cc -std=c11 -o "$prefix/static" "$here/consumer.c" $(pkg-config --cflags weft) \
    "$libdir/libweft.a" $(pkg-config --libs libsodium) -pthread
expect "program by libweft.a" "$("$prefix/static")" "$said"

cmake -S "$here" -B "$prefix/consumer" -DCMAKE_PREFIX_PATH="$prefix" -DWEFT_VERSION="$version" \
    >/dev/null
cmake --build "$prefix/consumer" >/dev/null
expect "program by find_package" "$("$prefix/consumer/consumer")" "$said"

for language in "c c11 cc" "c++ c++17 c++"; do
    # shellcheck disable=SC2086 # three words
    set -- $language
    "$3" -x "$1" -std="$2" -Wall -Wextra -Wpedantic -Werror -fsyntax-only \
        -I"$prefix/include" -include weft/weft.h /dev/null
done

expect "weft --version" "$("$prefix/bin/weft" --version)" "weft $version"
expect "soname" "$(readelf -d "$libdir/libweft.so" | sed -n 's/.*soname: \[\(.*\)\]/\1/p')" \
    "libweft.so.${version%%.*}"

# Exactly what the header declares is exported: no internal name leaks, nothing is forgotten.
nm -D --defined-only "$libdir/libweft.so" | sed -n 's/.* T \([^@]*\).*/\1/p' | sort >"$prefix/exported"
cc -E "$prefix/include/weft/weft.h" | grep -o '\bweft_[a-z_]*(' | tr -d '(' | sort -u >"$prefix/declared"
diff "$prefix/exported" "$prefix/declared"
echo "install: fine"
