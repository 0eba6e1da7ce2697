#!/bin/bash
# Process 1 of the cluster's namespaces (`up` starts it): network, mounts, keys,
# images, then every program, each started again whenever it ends.
set -euo pipefail
. "$(dirname "$(realpath "$0")")/env.sh"
hostname $NODE
if [ "$LEVEL" = node ]; then
	for c in $CONTROLLERS; do
		[ ! -d "/sys/fs/cgroup/$c/$CGROUP" ] || echo $$ >"/sys/fs/cgroup/$c/$CGROUP/cgroup.procs"
	done
fi

# Mounts: changes stay in here. /run is new and empty; logs and state go to $RUN.
mount --make-rprivate / && mount --make-rshared /
mount -t tmpfs tmpfs /run
mount --bind "$RUN/log" /var/log
for d in cni kubelet; do
	mkdir -p "$RUN/$d" /var/lib/$d
	mount --bind "$RUN/$d" /var/lib/$d
done
: >"$RUN/resolv.conf"
mount --bind "$RUN/resolv.conf" /etc/resolv.conf

# Configurations, with this cluster's names put in.
mkdir "$RUN/config" "$RUN/config/cni" "$RUN/config/cni-bin"
for f in "$HERE"/config/*; do
	sed "s|@RUN@|$RUN|g; s|@NODE@|$NODE|g; s|@NODE_IP@|$NODE_IP|g; s|@POD_CIDR@|$POD_CIDR|g; s|@DNS_SVC@|$DNS_SVC|g; s|@CGROUP@|$CGROUP|g" "$f" >"$RUN/config/${f##*/}"
done
mv "$RUN/config/cni.conflist" "$RUN/config/cni/"
ln -s /usr/lib/cni/* "$HERE/config/cni-gate" "$RUN/config/cni-bin/"
[ "${GATE:-0}" = 1 ] || sed -i 's|"socket": .*|"socket": "" }|' "$RUN/config/cni/cni.conflist"

# Network: one address for the node, on an empty bridge. Pods are routed, so that all they send passes FORWARD or INPUT.
ip link set lo up
ip link add node0 type bridge && ip addr add $NODE_IP/24 dev node0 && ip link set node0 up
ip route add $SVC_CIDR dev node0
sysctl -qw net.ipv4.ip_forward=1

# Keys.
cd "$RUN/pki"
key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1.key"; }
cert() { # NAME SUBJECT [NAMES]
	key "$1"
	openssl req -new -key "$1.key" -subj "$2" | openssl x509 -req -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -out "$1.crt" 2>/dev/null \
		-extfile <(echo "basicConstraints=CA:FALSE"; echo "extendedKeyUsage=serverAuth,clientAuth"; [ -z "${3:-}" ] || echo "subjectAltName=$3")
}
kubeconfig() { # NAME SUBJECT [SERVER]
	cert "$1" "$2"
	cat >"$RUN/.$1" <<-EOT
	apiVersion: v1
	kind: Config
	clusters: [{ name: test, cluster: { server: "${3:-$API}", certificate-authority-data: $(base64 -w0 ca.crt) } }]
	users: [{ name: $1, user: { client-certificate-data: $(base64 -w0 "$1.crt"), client-key-data: $(base64 -w0 "$1.key") } }]
	contexts: [{ name: test, context: { cluster: test, user: $1 } }]
	current-context: test
	EOT
	mv "$RUN/.$1" "$RUN/$1.kubeconfig"
}
key sa
key ca
openssl req -x509 -new -key ca.key -subj /CN=test-ca -days 30 -out ca.crt
cert apiserver /CN=apiserver "IP:$NODE_IP,IP:$API_SVC,IP:127.0.0.1,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:localhost"
cert apiserver-kubelet /CN=apiserver/O=system:masters
cert kubelet-server /CN=$NODE "IP:$NODE_IP,DNS:$NODE"
kubeconfig admin /O=system:masters/CN=admin "https://127.0.0.1:$(cat "$RUN/port")"
kubeconfig kcm /CN=system:kube-controller-manager
kubeconfig scheduler /CN=system:kube-scheduler
kubeconfig kubelet /O=system:nodes/CN=system:node:$NODE
kubeconfig kube-proxy /CN=system:kube-proxy
kubeconfig inside /O=system:masters/CN=inside

# Programs. $RUN/pid/NAME holds the number it has in here; $RUN/pid/NAME.hold keeps it down.
svc() {
	local name=$1
	shift
	(
		cd /
		while :; do
			[ ! -e "$RUN/pid/$name.hold" ] || { sleep 0.1; continue; }
			"$@" >>"$RUN/log/$name.log" 2>&1 </dev/null &
			echo $! >"$RUN/pid/$name"
			wait $! || true
			sleep 0.2
		done
	) &
}
svc forward forward --listen=unix:"$RUN/api.sock" --target=tcp:$NODE_IP:6443
svc etcd etcd --name=test --data-dir="$RUN/etcd" --listen-client-urls=http://127.0.0.1:2379 --advertise-client-urls=http://127.0.0.1:2379 \
	--listen-peer-urls=http://127.0.0.1:2380 --initial-advertise-peer-urls=http://127.0.0.1:2380 --initial-cluster=test=http://127.0.0.1:2380
svc kube-apiserver kube-apiserver --etcd-servers=http://127.0.0.1:2379 --advertise-address=$NODE_IP --bind-address=$NODE_IP --secure-port=6443 \
	--authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
	--client-ca-file="$RUN/pki/ca.crt" --tls-cert-file="$RUN/pki/apiserver.crt" --tls-private-key-file="$RUN/pki/apiserver.key" \
	--kubelet-certificate-authority="$RUN/pki/ca.crt" --kubelet-client-certificate="$RUN/pki/apiserver-kubelet.crt" --kubelet-client-key="$RUN/pki/apiserver-kubelet.key" \
	--service-account-issuer=https://kubernetes.default.svc --service-account-key-file="$RUN/pki/sa.key" --service-account-signing-key-file="$RUN/pki/sa.key" \
	--kubelet-preferred-address-types=InternalIP --service-cluster-ip-range=$SVC_CIDR --allow-privileged=false \
	--audit-policy-file="$RUN/config/audit.yaml" --audit-log-path="$RUN/log/audit.jsonl" --audit-log-maxsize=0 ${APISERVER_FLAGS:-}
if [ "$LEVEL" = node ]; then
	svc containerd containerd --config "$RUN/config/containerd.toml"
	# Images, into the kubelet's own namespace of containerd.
	until ctr version >/dev/null 2>&1; do sleep 0.05; done
	for i in "$BUILT"/images/*.tar; do ctr -n k8s.io images import "$i"; done
fi

# The rest, once the API server has made its roles (asked too early, they back off for seconds).
export KUBECONFIG=$RUN/inside.kubeconfig
until kubectl get --raw /readyz >/dev/null 2>&1; do sleep 0.05; done
svc kube-controller-manager kube-controller-manager --kubeconfig="$RUN/kcm.kubeconfig" --bind-address=127.0.0.1 --leader-elect=false \
	--kube-api-qps=500 --kube-api-burst=500 --use-service-account-credentials --root-ca-file="$RUN/pki/ca.crt" --service-account-private-key-file="$RUN/pki/sa.key" \
	--cluster-signing-cert-file="$RUN/pki/ca.crt" --cluster-signing-key-file="$RUN/pki/ca.key"
if [ "$LEVEL" = node ]; then
	svc kube-scheduler kube-scheduler --kubeconfig="$RUN/scheduler.kubeconfig" --bind-address=127.0.0.1 --leader-elect=false
	svc kubelet kubelet --config="$RUN/config/kubelet.yaml" --kubeconfig="$RUN/kubelet.kubeconfig" --hostname-override=$NODE --node-ip=$NODE_IP \
		--tls-cert-file="$RUN/pki/kubelet-server.crt" --tls-private-key-file="$RUN/pki/kubelet-server.key"
	svc kube-proxy kube-proxy --config="$RUN/config/kube-proxy.yaml"
	svc netpol netpol --kubeconfig="$RUN/inside.kubeconfig" --hostname-override=$NODE --service-cluster-ip-range=$SVC_CIDR --gate="$RUN/gate.sock"
	svc provisioner provisioner --kubeconfig="$RUN/inside.kubeconfig" --dir="$RUN/volumes" --node=$NODE
fi
wait
