#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lint.sh format|tidy|deep-tidy|cppcheck|layers|faults|python|all|fix-format
set -eu
cd "$(dirname "$0")/.."

sources()
{
    find include src cli plugins tests -name '*.[ch]' | sort
}

compile_commands() # clang-tidy and cppcheck read how each file is compiled
{
    cmake --preset release -DWEFT_TESTS=ON >/dev/null
}

lint_format()
{
    sources | xargs clang-format --dry-run -Werror
    missing=$(sources | xargs grep -L 'SPDX-License-Identifier: Apache-2.0' || true)
    if [ -n "$missing" ]; then
        echo "no SPDX line in: $missing"
        return 1
    fi
    echo "format: fine"
}

lint_tidy()
{
    compile_commands
    python3 scripts/tidy.py build/release "$@"
}

lint_cppcheck()
{
    compile_commands
    mkdir -p build/lint/cppcheck
    cppcheck --quiet --project=build/release/compile_commands.json -j 2 \
        --cppcheck-build-dir=build/lint/cppcheck --enable=warning,performance,portability \
        --inline-suppr --suppress=varFuncNullUB --error-exitcode=1 --suppress=missingIncludeSystem \
        --template='{file}:{line}: {severity}: {message} [{id}]'
    echo "cppcheck: fine"
}

lint_layers()
{
    python3 scripts/layers.py
}

lint_faults() # the table of docs/threats.md names every fault test that has a row, and no other
{
    status=0
    for test in tests/fault/f[0-9][0-9]_*.c; do
        name=fault.$(basename "$test" .c)
        grep -q "\`$name\`" docs/threats.md || { echo "$name is not in docs/threats.md"; status=1; }
    done
    for name in $(grep -o '`fault\.[a-z0-9_]*`' docs/threats.md | tr -d '`' | sort -u); do
        [ -e "tests/fault/${name#fault.}.c" ] || { echo "docs/threats.md: there is no $name"; status=1; }
    done
    [ $status -ne 0 ] || echo "faults: fine"
    return $status
}

lint_python() # Debian's interpreter has Debian's pyflakes
{
    files=$(find python bench scripts tests examples -name '*.py' | sort)
    missing=$(echo "$files" | xargs grep -L 'SPDX-License-Identifier: Apache-2.0' || true)
    [ -z "$missing" ] || { echo "no SPDX line in: $missing"; return 1; }
    echo "$files" | xargs /usr/bin/python3 -W error -m pyflakes
    echo "python: fine"
}

case ${1:-all} in
deep-tidy) lint_tidy --deep ;;
format | tidy | cppcheck | layers | faults | python) "lint_$1" ;;
fix-format) sources | xargs clang-format -i ;;
all)
    status=0
    for part in format layers faults python cppcheck tidy; do
        "$0" $part || status=1 # all of them, so that one run shows everything
    done
    exit $status
    ;;
*)
    echo "usage: lint.sh format|tidy|deep-tidy|cppcheck|layers|faults|python|all|fix-format" >&2
    exit 2
    ;;
esac
