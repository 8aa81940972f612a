# Sourced by the scripts that install what a fresh machine lacks; they define `say`.

policy=/usr/sbin/policy-rc.d

is_root() { [ "$(id -u)" -eq 0 ]; }

# Installs Debian packages without starting their services: a policy-rc.d that exits with 101 ("forbidden")
# tells maintainer scripts not to. An existing policy is restored afterwards.
apt_install() {
    command -v apt-get >/dev/null && is_root || return 1
    say "installing $* with apt-get"
    (
        restore() {
            rm -f -- "$policy"
            if [ -e "$policy.fairlock" ]; then mv -- "$policy.fairlock" "$policy"; fi
        }
        trap restore EXIT
        trap 'exit 130' INT TERM
        if [ -e "$policy" ]; then mv -- "$policy" "$policy.fairlock"; fi
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq >&2 && apt-get install -y -qq --no-install-recommends "$@" >&2
    )
}
