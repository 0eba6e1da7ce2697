# What the daemon does to the worktrees of conversations. It runs confined, as every
# command: git obeys the repository's configuration. In the environment: ACT, PROJECT,
# DIR, NAME, BRANCH (empty before the first), FROM (a folder whose state is taken over).
# Lines that begin with `mooring ` are for the daemon, the rest is git's own.
set -u
g() { git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c advice.detachedHead=false "$@"; }
refuse() { echo "mooring refused $1"; exit 3; }
known() { g rev-parse -q --verify "$1^{commit}"; }

cd "$PROJECT" || refuse "the project's folder cannot be entered"
if [ "$(g rev-parse --show-toplevel 2>&1)" != "$(pwd -P)" ]; then
  refuse "the project is no git repository, or not the top of one"
fi

add() {
  if [ -n "$BRANCH" ]; then
    [ -e "$DIR/.git" ] && exit 0
    # Its folder was deleted; what was committed is on its branch.
    g worktree unlock "$DIR" 2>/dev/null
    g worktree prune
    g worktree add -q "$DIR" "$BRANCH" || refuse "git worktree add failed"
    exit 0
  fi
  # What is there was left half done: no command has run in it yet.
  g worktree unlock "$DIR" 2>/dev/null
  g worktree remove -f -f "$DIR" 2>/dev/null
  rm -rf -- "$DIR"
  g worktree prune
  tree=
  if [ -n "$FROM" ] && base=$(cd "$FROM" && known HEAD); then
    index=$(mktemp) || refuse "there is no room for a temporary file"
    tree=$(cd "$FROM" && export GIT_INDEX_FILE="$index" && g read-tree HEAD && g add -A . && g write-tree)
    rm -f -- "$index"
    [ -n "$tree" ] || refuse "the files to begin with could not be read"
  else
    base=$(known HEAD) || refuse "the repository has no commit yet: make one, or set repo.worktrees to Shared"
  fi
  BRANCH=mooring/$NAME
  more=1
  while at=$(known "refs/heads/$BRANCH"); do
    # One that was left half done is where it began, and nobody has it.
    if [ "$at" = "$base" ] && ! g worktree list --porcelain | grep -qxF "branch refs/heads/$BRANCH"; then
      break
    fi
    more=$((more + 1))
    BRANCH=mooring/$NAME-$more
  done
  if [ -n "$at" ]; then
    g worktree add -q "$DIR" "$BRANCH" || refuse "git worktree add failed"
  else
    g worktree add -q -b "$BRANCH" "$DIR" "$base" || refuse "git worktree add failed"
  fi
  if [ -n "$tree" ]; then
    (cd "$DIR" && g read-tree -m -u HEAD "$tree" && g reset -q) || refuse "the files could not be taken over"
  fi
  echo "mooring branch $BRANCH"
}

# Takes the marks away by which git looks past changes (assume-unchanged, skip-worktree),
# but for files that a sparse checkout leaves out, in the index that is in the environment.
unmark() {
  marked=$(mktemp) || return 1
  g ls-files -z -v | while IFS= read -r -d '' line; do
    name=${line#??}
    case $line in
      [Ss]*) [ -e "$name" ] || [ -L "$name" ] || continue ;;
      [[:lower:]]*) ;;
      *) continue ;;
    esac
    printf '%s\0' "$name"
  done > "$marked"
  g update-index --no-skip-worktree -z --stdin < "$marked" &&
    g update-index --no-assume-unchanged -z --stdin < "$marked"
  unmarked=$?
  rm -f -- "$marked"
  return "$unmarked"
}

# What git sees of changes in a worktree, on a copy of its index without such marks.
changes() {
  index=$(mktemp) || return 1
  own=$(g rev-parse --git-path index) || return 1
  # Without an index of its own, all is told as deleted: nothing is taken for kept.
  if [ -e "$own" ]; then cp -- "$own" "$index" || return 1; else rm -f -- "$index"; fi
  export GIT_INDEX_FILE="$index"
  unmark && g status --porcelain --untracked-files=all --no-renames > "$index.seen"
  changed=$?
  wc -l < "$index.seen"
  rm -f -- "$index" "$index.seen"
  return "$changed"
}

look() {
  uncommitted=0
  heads=
  if [ -e "$DIR/.git" ]; then
    uncommitted=$(cd "$DIR" && changes) ||
      refuse "git status failed"
    heads=$(cd "$DIR" && known HEAD)
  fi
  tip=$(known "refs/heads/$BRANCH") && heads="$heads $tip"
  unpushed=0
  if [ -n "$heads" ]; then
    # Kept nowhere else: on no remote's branch and on no other branch here.
    unpushed=$(g rev-list --count $heads --not --remotes --exclude="$BRANCH" --branches --) ||
      refuse "git rev-list failed"
  fi
  echo "mooring uncommitted $((uncommitted))"
  echo "mooring unpushed $((unpushed))"
}

remove() {
  look
  [ "$uncommitted" -eq 0 ] && [ "$unpushed" -eq 0 ] || exit 0
  if [ -e "$DIR" ]; then
    g worktree remove "$DIR" || refuse "git worktree remove failed"
  else
    g worktree unlock "$DIR" 2>/dev/null
    g worktree prune
  fi
  # Only as it was looked at.
  [ -z "$tip" ] || g update-ref -d "refs/heads/$BRANCH" "$tip" || refuse "the branch has just changed"
  echo "mooring removed"
}

"$ACT"
