# Names that all commands share.
#
# MOORING_TEST_CACHE  where programs and images are kept (default: XDG cache folder)
# MOORING_CLUSTER     which cluster is meant, when several run at once (default: test)

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
CACHE=${MOORING_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/mooring}/cluster
CLUSTER=${MOORING_CLUSTER:-test}
# What is built is kept by what it is built from, so that a changed version never meets an old program.
KEY=$(cd "$HERE" && cat build lib/image.sh programs/go.sum programs/*.go programs/*/*.go containerd/go.sum helm3/go.sum | sha256sum | cut -c1-16)
BUILT=$CACHE/$KEY
RUN=$CACHE/run/$CLUSTER # one cluster's state: `up` makes it, `down` removes it

# These exist only inside the cluster's own namespaces.
NODE=node1
NODE_IP=10.89.0.1
POD_CIDR=10.244.0.0/24
SVC_CIDR=10.96.0.0/16
API_SVC=10.96.0.1
DNS_SVC=10.96.0.10
API=https://$NODE_IP:6443
GIT_PORT=8080 # of the git host of the stories, on the node

CGROUP=mooring-$CLUSTER
CONTROLLERS="cpu cpuacct cpuset memory devices freezer blkio pids systemd"
# What the kubelet sets for the whole machine, which no namespace holds back.
SYSCTLS="vm.overcommit_memory vm.panic_on_oom kernel.panic kernel.panic_on_oops kernel.keys.root_maxkeys kernel.keys.root_maxbytes"

export PATH=$BUILT/bin:$PATH:/usr/sbin:/sbin

fail() { echo "$(basename "$0"): $*" >&2; exit 1; }

# Ends one program of the cluster by SIGKILL; its loop in inner.sh decides whether it comes back.
end_program() {
	[ -s "$RUN/init.pid" ] || fail "cluster \"$CLUSTER\" is not up"
	[ -s "$RUN/pid/$1" ] || fail "no program \"$1\"; there are: $(cd "$RUN/pid" && ls | grep -v '\.hold$' | tr '\n' ' ')"
	nsenter -t "$(cat "$RUN/init.pid")" -p kill -9 "$(cat "$RUN/pid/$1")"
}
