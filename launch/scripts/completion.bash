# Completion of `longstride` in bash, read from what --help prints, so it knows every command and option; recipe keys
# behind --set and --sweep, runs and their checkpoints are read from what is there. A package installs it; otherwise: source launch/scripts/completion.bash
# Folders of runs: beneath runs/, one by itself or in that of a sweep, and beneath what was typed.
_longstride_runs() {
  local record
  for record in {runs,"${1%/*}"}{,/*,/*/*}/environment.json; do
    [ ! -f "$record" ] || printf '%s\n' "${record%/environment.json}"
  done | sort -u
}

_longstride() {
  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} path=() help commands i
  # An alias, or a path from the home folder, is not what can be called from here.
  local command=${BASH_ALIASES[$1]:-$1}
  command=${command/#\~\//$HOME/}
  # Bash takes the = of --split=te for a word.
  [ "$word" != = ] || word=""
  [ "$previous" != = ] || previous=${COMP_WORDS[COMP_CWORD - 2]}
  help=$("$command" --help 2>/dev/null) || return 0
  for ((i = 1; i <= COMP_CWORD; i++)); do
    commands=$(sed -n '/^Subcommands:/,$ s/^  \([a-z0-9]\{1,\}\) .*/\1/p' <<<"$help")
    [ "$i" -lt "$COMP_CWORD" ] && grep -qxF -- "${COMP_WORDS[i]}" <<<"$commands" || continue
    path+=("${COMP_WORDS[i]}")
    help=$("$command" "${path[@]}" --help 2>/dev/null) || return 0
  done
  # Values of the option before the cursor, as in --split TEXT:{train,valid,test}.
  local values=""
  case $previous in
    --*[!a-z0-9-]*) ;;  # a path, of which sed would make commands
    --*) values=$(sed -n "s/^  \(-.,\)\{0,1\}$previous [^ ]*:{\([^}]*\)}.*/\2/p" <<<"$help" | tr ',' ' ') ;;
  esac
  local given run="" recipe=""
  for given in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    [ ! -d "$given/checkpoints" ] || run=$given
    [[ $given != *.yaml ]] || recipe=$given
  done
  if [ -n "$run" ] && [ "$previous" = --checkpoint ]; then
    values="best last $(cd -- "$run/checkpoints" && printf '%s\n' step-* | sed -n 's/^step-0*\([0-9]\{1,\}\)$/\1/p')"
  elif [ -n "$recipe" ] && [[ $previous =~ ^--(set|sweep)$ ]]; then
    compopt -o nospace 2>/dev/null
    values=$("$command" help --keys "$recipe" 2>/dev/null | sed 's/=.*/=/')
  elif [[ $previous =~ ^--(run|from)$ ]] || { [[ $word != -* && $previous != --* ]] && grep -q '^  run TEXT' <<<"$help"; }; then
    values=$(_longstride_runs "$word")
  fi
  if [ -n "$values" ]; then
    COMPREPLY=($(compgen -W "$values" -- "$word"))
  elif [[ $word == -* ]]; then
    COMPREPLY=($(compgen -W "$(grep -o '^  [^ ]*' <<<"$help" | grep -o -- '--[a-z-]*')" -- "$word"))
  else
    COMPREPLY=($(compgen -W "$commands" -- "$word"))
  fi
}
complete -o default -F _longstride longstride
