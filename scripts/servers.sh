# Sourced by the scripts that run tests: exports the output of scripts/servers as
# FAIRLOCK_TEST_REDIS62=PATH and so on, for the test kit.
#
#   . scripts/servers.sh
found="$(scripts/servers)"
while IFS='=' read -r name path; do
    if [ -n "$name" ]; then export "FAIRLOCK_TEST_${name^^}=$path"; fi
done <<<"$found"
unset found name path
