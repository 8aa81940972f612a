# How acceptance scripts judge; read by each of them, which then says its lines.
#
#   scripts/accept/PART                runs scripts/test and the benches, then judges
#   scripts/accept/PART --log FILE     judges by the output of a run of scripts/test
#   scripts/accept/PART --quick        leaves out (NOT RUN) what is measured, because a noisy machine
#                                      must not decide, what CI runs as a step of its own, and what
#                                      takes long
#
# A line passes by tests when each of its patterns matches at least one test that ran and passed,
# and none that failed or was ignored. Exit 0 when nothing failed and nothing is not built.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

log=''
quick=no
while [ $# -gt 0 ]; do
    case "$1" in
        --log) log="$2"; shift 2 ;;
        --quick) quick=yes; shift ;;
        *) echo "usage: $0 [--log FILE] [--quick]" >&2; exit 64 ;;
    esac
done

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
if [ -z "$log" ]; then
    log="$work/test.log"
    scripts/test --no-fail-fast >"$log" 2>&1
fi
# "test a::b ... ok" and nothing else; a test's own output may stand on the same line.
grep -E '^test [^ ]+ (- should panic )?\.\.\. ' "$log" | sed -E 's/^test ([^ ]+).*\.\.\. *(.*)$/\1 \2/' >"$work/tests"
grep -E ' ok$' "$work/tests" | cut -d' ' -f1 | sort -u >"$work/passed"
grep -E ' (FAILED|ignored)' "$work/tests" | cut -d' ' -f1 | sort -u >"$work/failed"
passed_all=$(wc -l <"$work/passed")

pass=0 fail=0 limits=0 open=0
say() { # verdict id text shown-by figure
    printf '%-9s %-5s %s\n                by: %s\n' "$1" "$2" "$3" "$4"
    [ -z "${5:-}" ] || printf '                figure: %s\n' "$5"
    case "$1" in
        PASS) pass=$((pass + 1)) ;;
        FAIL) fail=$((fail + 1)) ;;
        LIMIT) limits=$((limits + 1)) ;; # accept/speed says what that is
        *) open=$((open + 1)) ;;
    esac
}

# tests ID TEXT FIGURE PATTERN...
tests() {
    local id="$1" text="$2" figure="$3" verdict=PASS count=0 missing='' n
    shift 3
    for pattern in "$@"; do
        n=$(grep -cE "$pattern" "$work/passed" || true)
        count=$((count + n))
        if [ "$n" -eq 0 ] || grep -qE "$pattern" "$work/failed"; then
            verdict=FAIL
            missing="$missing $pattern"
        fi
    done
    say "$verdict" "$id" "$text" "scripts/test: $*" "$count tests passed${missing:+; none or a failed one for:$missing}${figure:+; $figure}"
}

# planned ID TEXT FIGURE PATTERN...: tests, or NOT BUILT while none of the patterns matches any test
planned() {
    local pattern
    for pattern in "${@:4}"; do
        if grep -qhE "$pattern" "$work/passed" "$work/failed"; then tests "$@"; return; fi
    done
    say 'NOT BUILT' "$1" "$2" "scripts/test: ${*:4}" ''
}

# figures PATTERN: what tests printed of themselves
figures() { grep -hoE "$1" "$log" | sort -u | head -n "${2:-3}" | paste -sd ';'; }

# command_line ID TEXT COMMAND
command_line() {
    local out code
    out="$(bash -c "$3" 2>&1)"; code=$?
    if [ "$code" -eq 0 ]; then say PASS "$1" "$2" "$3" "$(tail -n 1 <<<"$out")"
    else say FAIL "$1" "$2" "$3" "exit $code: $(tail -n 1 <<<"$out")"; fi
}

# slow_line ID TEXT COMMAND: a command_line that --quick leaves out
slow_line() {
    if [ "$quick" = yes ]; then say 'NOT RUN' "$1" "$2" "$3" 'left out: --quick'; else command_line "$@"; fi
}

# verdict_of COMMAND...: PASS when it succeeds
verdict_of() { if "$@"; then echo PASS; else echo FAIL; fi; }

# at_most A B: both numbers, A <= B
at_most() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && b != "" && a + 0 <= b + 0) }'; }

finish() {
    echo
    echo "$pass passed, $fail failed, $open not built or not run; $passed_all tests passed in all"
    if [ "$quick" = yes ]; then [ "$fail" -eq 0 ]; else [ "$fail" -eq 0 ] && [ "$open" -eq 0 ]; fi
}
