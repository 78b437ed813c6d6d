#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# deps.sh LIST…: installs the Debian packages that the lists name and this machine lacks. Silent when
# there is nothing to do; where it may not install, it prints the command that would and fails.
set -eu

if ! command -v dpkg-query >/dev/null; then
    exit 0 # not Debian: the build itself says what it misses
fi

wanted=$(sed -e 's/#.*//' "$@" | tr -s ' \n' '\n' | sort -u)
missing=""
for package in $wanted; do
    # shellcheck disable=SC2016 # ${…} is dpkg's
    case $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) in
    installed) ;;
    *) missing="$missing $package" ;;
    esac
done
[ -n "$missing" ] || exit 0

refuse()
{
    echo "Packages are missing and could not be installed ($1). Run as root:" >&2
    echo "    apt-get update && apt-get install -y --no-install-recommends$missing" >&2
    exit 1
}

as_root=""
if [ "$(id -u)" -ne 0 ]; then
    sudo -n true 2>/dev/null || refuse "neither root nor sudo without a password"
    as_root="sudo -n"
fi
echo "installing:$missing"
# sudo drops the environment, so it is named again behind it.
apt="$as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0"
$apt update >&2 || refuse "apt-get update failed"
# shellcheck disable=SC2086 # both are lists
$apt install -y --no-install-recommends $missing >/dev/null || refuse "apt-get install failed"
