#!/usr/bin/env bash
# The ABI header compiles alone, as C and C++, on every kind of target.  A line for each way.
set -euo pipefail
abi=$(cd "$(dirname "$0")/../abi" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if ! command -v clang > /dev/null; then
    echo "clang is not installed"
    exit 77
fi

echo '#include "fak_backend.h"' > "$work/plain.c"
{
    echo '#include "fak_backend.h"'
    echo 'FAK_NOTE("vendor", FAK_APPROX, "x86-64-v3");'
} > "$work/note.c"

failed=0
# try COMPILER ARGUMENTS...: both files
try() {
    local what=$* file said
    if ! command -v "$1" > /dev/null; then
        echo "-- $what: $1 is not installed"
        return
    fi
    for file in plain note; do
        if said=$("$@" -Wpedantic -Wall -Wextra -Werror -fsyntax-only "-I$abi" "$work/$file.c" 2>&1)
        then
            echo "ok $what, $file"
        else
            echo "FAILED $what, $file"
            echo "$said"
            failed=1
        fi
    done
}

for compiler in gcc clang; do
    try "$compiler" -std=c11
done
for compiler in g++ clang++; do
    for standard in c++11 c++17 c++20; do
        try "$compiler" -x c++ "-std=$standard"
    done
done
for target in wasm32 armv7-linux-gnueabihf s390x-linux-gnu aarch64-linux-gnu \
    x86_64-pc-windows-msvc; do
    try clang "--target=$target" -ffreestanding -std=c11
done
exit "$failed"
