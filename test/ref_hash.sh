#!/usr/bin/env bash
# ref_hash.sh CORE_DIR GOLDEN: the reference gives the golden bits whatever compiles it.  A line for
# each compiler and its flags; then the control: a build with fused multiply-adds must differ; then
# no_fma.sh over the objects for this machine.  GOLDEN is only read.
set -euo pipefail
[ "$#" -eq 2 ] || { echo "usage: ref_hash.sh CORE_DIR GOLDEN" >&2; exit 2; }
core=$(cd "$1" && pwd)
golden=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for compiler in gcc clang; do
    if ! command -v "$compiler" > /dev/null; then
        echo "$compiler is not installed"
        exit 77
    fi
done
lines=$(grep -c . "$golden") || { echo "$golden: no golden hashes"; exit 1; }

# build COMPILER FLAGS...: objects and program under $work/out
build() {
    rm -rf "$work/out"
    mkdir "$work/out"
    local file
    for file in "$core"/{ref,dtype,dtype_rows,dtype_encode,ops,rope,step}.c "$here/ref_hash.c"; do
        "$@" -std=c11 -D_GNU_SOURCE -c "$file" -o "$work/out/$(basename "$file" .c).o"
    done
    "$1" "$work"/out/*.o -lm -o "$work/out/ref_hash"
    "$work/out/ref_hash" > "$work/out/lines"
}

# "line 7: expected, got" for the first line that differs
first_difference() {
    awk 'NR == FNR { want[FNR] = $0; n = FNR; next }
         $0 != want[FNR] { print "line " FNR ": expected " want[FNR] ", got " $0; found = 1; exit }
         END { at = FNR + 1
               if (!found && FNR != n) print "line " at ": expected " want[at] ", got nothing" }
        ' "$golden" "$work/out/lines"
}

failed=0
native=()
for compiler in gcc clang; do
    for flags in -O0 -O3 "-O3 -march=native"; do
        read -r -a arguments <<< "$flags"
        build "$compiler" "${arguments[@]}" -ffp-contract=off
        if cmp -s "$golden" "$work/out/lines"; then
            echo "$compiler $flags: $lines hashes equal"
        else
            echo "$compiler $flags: $(first_difference)"
            failed=1
        fi
    done
    mkdir "$work/$compiler"
    mv "$work"/out/{ref,dtype,dtype_rows,dtype_encode,ops,rope}.o "$work/$compiler"
    native+=("$work/$compiler"/*.o)
done
[ "$failed" -eq 0 ] || exit 1

if [ "$(uname -m)" = aarch64 ] || grep -qw fma /proc/cpuinfo; then
    for compiler in gcc clang; do
        build "$compiler" -O3 -march=native -ffp-contract=fast
        difference=$(first_difference)
        if [ -z "$difference" ]; then
            echo "control: $compiler -ffp-contract=fast gives the same hashes: they see no fusing"
            exit 1
        fi
        echo "control: $compiler -ffp-contract=fast differs, as it must, at ${difference%%, got*}"
    done
else
    echo "control: this machine has no fused multiply-add, nothing to tell apart"
fi

"$here/no_fma.sh" objdump "${native[@]}" | sed "s|$work/||"
