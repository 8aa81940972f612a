# Behind `--` another command line starts; names of locks come from the store.
_fairlock_or_command() {
    local at=${words[(i)--]} line="${(j: :)words[1, CURRENT - 1]} $PREFIX"
    if (( at < CURRENT )) && [[ $words[2] == (run|elect) ]]; then
        words=("${(@)words[at + 1, -1]}")
        (( CURRENT -= at ))
        _normal
        return 0
    fi
    local -a names
    names=(${(f)"$($words[1] __names $line 2>/dev/null)"})
    (( $#names )) && compadd -a names
}

