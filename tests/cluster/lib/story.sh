# What the stories share: an installed Mooring, workspaces, a person at a terminal.
# `story NAME FUNCTION` runs one and prints a line; the first failure ends the file.
#
# MOORING  the `mooring` program; a person's is `kubectl mooring`, too

. "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/env.sh"
ROOT=$(realpath "$HERE/../..")
: "${MOORING:?names the program mooring}"
NS=agents
WORK=$(mktemp -d)
export XDG_STATE_HOME=$WORK/state
trap 'jobs -p | xargs -r kill 2>/dev/null; rm -rf "$WORK"' EXIT
mkdir "$WORK/bin"
ln -s "$(realpath "$MOORING")" "$WORK/bin/kubectl-mooring"
export PATH=$WORK/bin:$PATH

story() { # NAME FUNCTION
	local start=$SECONDS ended
	# Not as a condition: there the shell would not stop at the first failure.
	set +e
	(
		set -euo pipefail
		"$2"
	) >"$WORK/story.log" 2>&1
	ended=$?
	set -e
	if [ $ended = 0 ]; then
		printf 'ok      %-72s %3d s\n' "$1" $((SECONDS - start))
	else
		printf 'FAILED  %-72s %3d s\n' "$1" $((SECONDS - start))
		cat "$WORK/story.log"
		kubectl -n $NS get workspaces,pods,approvals -o wide || true
		for pod in $(kubectl -n $NS get pods -o name); do echo "-- $pod"; kubectl -n $NS logs --tail=5 "$pod" || true; done
		exit 1
	fi
}

eventually() { # SECONDS COMMAND...
	local end=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		[ $SECONDS -lt $end ] || { echo "not in time: $*"; "$@"; return 1; }
		sleep 0.2
	done
}

# A Workspace whose tools may all run; further lines of its spec come from standard input.
workspace() { # NAME
	{
		printf 'apiVersion: mooring.dev/v1alpha1\nkind: Workspace\nmetadata: {name: %s}\nspec:\n' "$1"
		cat
	} | kubectl -n $NS apply -f -
}
seen() { kubectl -n $NS get workspace "$1" -o json | jq -e '.status.observedGeneration == .metadata.generation'; }
ready() { # NAME: by its newest spec
	eventually 60 seen "$1"
	kubectl -n $NS wait "workspace/$1" --for=condition=Ready --timeout=90s
}
field() { kubectl -n $NS get workspace "$1" -o "jsonpath={.status.$2}"; } # NAME PATH
condition() { # NAME TYPE: status/reason: message
	kubectl -n $NS get workspace "$1" -o json |
		jq -r --arg type "$2" '.status.conditions[] | select(.type == $type) | "\(.status)/\(.reason): \(.message)"'
}
holds() { condition "$1" "$2" | grep -qE "$3"; } # NAME TYPE PATTERN

# Says a line to a workspace's agent in a new conversation; its answer comes out.
say() { # NAME TEXT
	printf '%s\n' "$2" | timeout 120 kubectl mooring attach "$1" -n $NS --new
}
# The same, and the answer has to hold PATTERN.
answers() { # NAME TEXT PATTERN
	local text
	text=$(say "$1" "$2") || true
	echo "$text"
	grep -qE "$3" <<<"$text"
}
# Says it, and stays for as long as FILE is there; for what happens meanwhile.
say_on() { # NAME TEXT FILE
	{ printf '%s\n' "$2"; while [ -e "$3" ]; do sleep 0.1; done; } | timeout 180 kubectl mooring attach "$1" -n $NS --new
}

# The folder of the sandbox's project, as the node has it.
project() { # NAME
	echo "$RUN/volumes/$(kubectl -n $NS get pvc "data-$1-sandbox-0" -o jsonpath='{.spec.volumeName}')/project"
}
in_project() { # NAME COMMAND...
	local folder
	folder=$(project "$1")
	shift
	(cd "$folder" && "$@")
}
# SIGKILL to the process of a pod's container, from outside.
kill_pod_process() { # NAMESPACE SELECTOR
	local id
	id=$(kubectl -n "$1" get pod -l "$2" -o jsonpath='{.items[0].status.containerStatuses[0].containerID}')
	"$HERE/exec" ctr -n k8s.io task kill -s SIGKILL "${id#containerd://}"
}
restarts() { kubectl -n $NS get pod "$1" -o jsonpath='{.status.containerStatuses[0].restartCount}'; }
# A kubeconfig with which every program acts as USER.
as() { # USER COMMAND...
	local user=$1
	shift
	kubectl config view --raw -o json | jq --arg user "$user" '.users[0].user.as = $user' >"$WORK/$user.kubeconfig"
	KUBECONFIG=$WORK/$user.kubeconfig "$@"
}

OPEN='  models: [{name: main, provider: rehearsal}]
  policy: {tool: {"*": allow}, bash: {"*": allow}, path: {"*": allow}, externalDirectory: allow}
  approvals: {requesterMayApprove: true}'
ASKS='  models: [{name: main, provider: rehearsal}]
  members: [{discordUserId: "1", kubernetesUser: ada, role: Approver}, {discordUserId: "2", kubernetesUser: carl, role: User}]
  policy: {tool: {"*": allow}, bash: {"*": allow, "touch *": ask}, path: {"*": allow}}'
