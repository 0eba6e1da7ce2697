# Fills an empty project folder with the Workspace's repository. Begun again where an
# earlier try was ended; a folder with anything of its own is left as it is.
set -eu
mark=.git/mooring-checkout
if [ ! -e "$mark" ]; then
  for entry in .[!.]* ..?* *; do
    [ -e "$entry" ] || [ -L "$entry" ] || continue
    case $entry in
      lost+found | "$MOORING_WORKSPACE_FILE") ;;
      *) exit 0 ;;
    esac
  done
  git init -q .
  : > "$mark"
fi
# There is one of an earlier try, whose address may have been wrong.
if [ "$(git config remote.origin.url)" != "$MOORING_REPO_URL" ]; then
  git remote set-url origin "$MOORING_REPO_URL" 2> /dev/null \
    || git remote add origin "$MOORING_REPO_URL"
fi
filter=
if [ -n "$MOORING_REPO_PARTIAL" ]; then
  git config core.repositoryformatversion 1
  git config extensions.partialClone origin
  git config remote.origin.promisor true
  git config remote.origin.partialclonefilter blob:none
  filter=--filter=blob:none
fi
git fetch --progress --tags $filter origin '+refs/heads/*:refs/remotes/origin/*'
branch=$MOORING_REPO_REF
if [ -z "$branch" ]; then
  # A repository without a commit has no head to take.
  git remote set-head origin --auto > /dev/null 2>&1 || { rm -f "$mark"; exit 0; }
  branch=$(git symbolic-ref --short refs/remotes/origin/HEAD)
  branch=${branch#origin/}
fi
if git rev-parse -q --verify "refs/remotes/origin/$branch" > /dev/null; then
  git config "branch.$branch.remote" origin
  git config "branch.$branch.merge" "refs/heads/$branch"
  git checkout -q -B "$branch" "refs/remotes/origin/$branch"
elif git rev-parse -q --verify "$branch^{commit}" > /dev/null; then
  git checkout -q --detach "$branch^{commit}"
else
  git fetch -q $filter origin "$branch"
  git checkout -q --detach FETCH_HEAD
fi
# Submodules whose repositories the Workspace names; others cannot be reached.
if [ -e .gitmodules ]; then
  git config -f .gitmodules --get-regexp '^submodule\..*\.path$' | while read -r _ path; do
    git submodule update --init --recursive --progress -- "$path" || true
  done
fi
rm -f "$mark"
