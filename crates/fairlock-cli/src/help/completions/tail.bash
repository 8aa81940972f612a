
# Behind `--` another command line starts, where the generated function would offer our options and no files. Names of
# locks come from the store.
_fairlock_or_command() {
    local at line names typed head
    for ((at = 1; at < COMP_CWORD; at++)); do
        if [[ ${COMP_WORDS[at]} == -- && (${COMP_WORDS[1]} == run || ${COMP_WORDS[1]} == elect) ]]; then
            if declare -F _comp_command_offset >/dev/null; then
                _comp_command_offset $((at + 1))
            elif declare -F _command_offset >/dev/null; then
                _command_offset $((at + 1))
            elif ((COMP_CWORD == at + 1)); then
                COMPREPLY=($(compgen -c -- "$2") $(compgen -f -- "$2"))
            else
                COMPREPLY=($(compgen -f -- "$2"))
            fi
            return
        fi
    done
    line=${COMP_LINE:0:COMP_POINT}
    if names=$("$1" __names "$line" 2>/dev/null) && [[ -n $names ]]; then
        # Readline replaces only what follows the last of the characters at which it breaks words, such as `:`.
        typed=${line##*[[:space:]]}
        head=${typed%"${typed##*["$COMP_WORDBREAKS"]}"}
        COMPREPLY=()
        while read -r typed; do
            COMPREPLY+=("${typed#"$head"}")
        done <<<"$names"
        return
    fi
    _fairlock "$@"
}

if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -F _fairlock_or_command -o nosort -o bashdefault -o default fairlock
else
    complete -F _fairlock_or_command -o bashdefault -o default fairlock
fi
