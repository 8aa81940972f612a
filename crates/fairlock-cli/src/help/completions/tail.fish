
# Behind `--` another command line starts, which is completed as such.
function __fish_fairlock_command
    set -l words (commandline -opc)
    set -l at (contains -i -- -- $words)
    and contains -- $words[2] run elect
    and complete -C (string join ' ' -- (string escape -- $words[(math $at + 1)..]) (commandline -ct))
end

# Names of locks come from the store. No files where there are some.
function __fish_fairlock_has_names
    set -l words (commandline -opc)
    set -g __fish_fairlock_names (command $words[1] __names (string join ' ' -- $words (commandline -ct)) 2>/dev/null)
    test -n "$__fish_fairlock_names"
end

complete -c fairlock -a "(__fish_fairlock_command)"
complete -c fairlock -n __fish_fairlock_has_names -f -a "(printf '%s\n' \$__fish_fairlock_names)"
