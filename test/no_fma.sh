#!/usr/bin/env bash
# no_fma.sh OBJDUMP FILE...: fails when the code of a file has a fused multiply-add (abi/README.md:
# multiply, then add).  First proves that it would see one.  CC: the compiler for that, else cc.
set -euo pipefail
[ "$#" -ge 2 ] || { echo "usage: no_fma.sh OBJDUMP FILE..." >&2; exit 2; }
objdump=$1
shift

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# "function: instruction" of every fused multiply-add: of x86; of arm64; of s390x; of riscv64
fused() {
    "$objdump" -d --no-show-raw-insn "$1" > "$work/code"
    awk '/^[0-9a-f]+ <.*>:$/ { function_name = $2 }
         /^ *[0-9a-f]+:/ {
             for (i = 2; i <= 3 && i <= NF; i++)
                 if ($i ~ /^vf(m|nm|cm)(add|sub|ul)/ || $i ~ /^(fn?madd|fn?msub|v?fml[as]l?2?)$/ ||
                     $i ~ /^(m[as][ed]br?|[wv]fn?m[as]([sdx]b)?)$/ || $i ~ /^fn?m(add|sub)\.[sd]$/)
                     { print function_name " " $i; break }
         }' "$work/code"
}

echo 'float snippet(float a, float b, float c) { return a * b + c; }' > "$work/snippet.c"
read -r -a cc <<< "${CC:-cc}"
machine=()
case "$("${cc[@]}" -dumpmachine)" in
x86_64-* | i?86-*) machine=(-march=haswell) ;;
esac
"${cc[@]}" -O2 -ffp-contract=fast "${machine[@]}" -c "$work/snippet.c" -o "$work/snippet.o"
if [ -z "$(fused "$work/snippet.o")" ]; then
    echo "no_fma: cannot see the fused multiply-add of its own snippet"
    exit 1
fi

failed=0
for file in "$@"; do
    hits=$(fused "$file")
    instructions=$(grep -c '^ *[0-9a-f]*:' "$work/code" || true)
    if [ -n "$hits" ]; then
        echo "$file: $(wc -l <<< "$hits") fused multiply-adds, first:"
        head -n 5 <<< "$hits"
        failed=1
    elif [ "$instructions" -eq 0 ]; then
        echo "$file: no code to look at"
        failed=1
    else
        echo "$file: none in $instructions instructions"
    fi
done
exit "$failed"
