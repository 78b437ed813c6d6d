#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lint.sh format|tidy|cppcheck|layers|all|fix-format
set -eu
cd "$(dirname "$0")/.."

sources()
{
    find include src cli tests -name '*.[ch]' | sort
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
    python3 scripts/tidy.py build/release
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

case ${1:-all} in
format | tidy | cppcheck | layers) "lint_$1" ;;
fix-format) sources | xargs clang-format -i ;;
all)
    status=0
    for part in format layers cppcheck tidy; do
        "$0" $part || status=1 # all of them, so that one run shows everything
    done
    exit $status
    ;;
*)
    echo "usage: lint.sh format|tidy|cppcheck|layers|all|fix-format" >&2
    exit 2
    ;;
esac
