"""The charts and config/, as values: what is rendered, and what holds it to the code."""

import json
import re
import subprocess
import unittest
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
MUTATING = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"
EVERYTHING = [
    "bot.tokenSecretRef.name=discord",
    "operator.replicas=2",
    "serviceMonitor.enabled=true",
    "prometheusRule.enabled=true",
    "dashboard.enabled=true",
    "flowSchema.enabled=true",
]
CASES = {
    "default": [],
    "everything": EVERYTHING,
    "two namespaces": [*EVERYTHING, "watchNamespaces={a,b}"],
    "a second release": ["admission.enabled=false", "clusterRoles.enabled=false", "watchNamespaces={c}"],
    "a private registry": ["imagePullSecrets[0].name=registry", "operator.image.repository=registry.example.com:5000/o"],
}


def helm(program, chart, values=(), apis=(MUTATING,), kubernetes="1.36.0"):
    command = [program, "template", "mooring", ROOT / "charts" / chart, "--namespace", "mooring-system"]
    command += ["--kube-version", kubernetes]
    for value in values:
        command += ["--set", value]
    for api in apis:
        command += ["--api-versions", api]
    return subprocess.run(command, capture_output=True, text=True)


def rendered(chart="mooring", values=(), program="helm", **more):
    answer = helm(program, chart, values, **more)
    assert answer.returncode == 0, answer.stderr
    return objects(answer.stdout)


def objects(text):
    """By kind, namespace and name."""
    found = {}
    for one in yaml.safe_load_all(text):
        if one:
            metadata = one["metadata"]
            key = (one["kind"], metadata.get("namespace", ""), metadata["name"])
            assert key not in found, f"{key} is there twice"
            found[key] = one
    return found


def hooks(found):
    return {key for key, one in found.items() if "helm.sh/hook" in one["metadata"].get("annotations", {})}


def like_kustomize(found):
    """Without hooks, which kustomize has none of, and with its name on what it made."""
    kept = {key: one for key, one in found.items() if key not in hooks(found)}
    text = json.dumps(list(kept.values())).replace(
        '"app.kubernetes.io/managed-by": "Helm"', '"app.kubernetes.io/managed-by": "kustomize"'
    )
    kept = {key: one for key, one in zip(kept, json.loads(text))}
    for one in kept.values():
        annotations = one["metadata"].get("annotations", {})
        annotations.pop("helm.sh/resource-policy", None)
        if not annotations:
            one["metadata"].pop("annotations", None)
    return kept


def kustomized(folder):
    command = ["kubectl", "kustomize", ROOT / "config" / folder]
    return objects(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def rules(found):
    """Rows of (kind, namespace, role, resource, name of the object, verb)."""
    rows = set()
    for (kind, namespace, role), one in found.items():
        if kind not in ("Role", "ClusterRole"):
            continue
        for rule in one["rules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    for name in rule.get("resourceNames", [""]):
                        rows |= {(kind, namespace, role, f"{group}/{resource}", name, verb) for verb in rule["verbs"]}
    return rows


class Rendering(unittest.TestCase):
    maxDiff = None

    def test_both_helms_render_the_same(self):
        for name, values in CASES.items():
            for apis in ((), (MUTATING,)):
                with self.subTest(name, apis=apis):
                    four = rendered(values=values, apis=apis)
                    self.assertEqual(four, rendered(values=values, apis=apis, program="helm3"))
        self.assertEqual(rendered("mooring-crds"), rendered("mooring-crds", program="helm3"))

    def test_every_supported_kubernetes_is_taken_and_no_older_one(self):
        for program in ("helm", "helm3"):
            for chart in ("mooring", "mooring-crds"):
                for version, good in (("1.32.9", False), ("1.33.0", True), ("1.33.1-gke.100", True), ("1.37.0", True)):
                    with self.subTest(program, chart=chart, version=version):
                        answer = helm(program, chart, kubernetes=version)
                        self.assertEqual(answer.returncode == 0, good, answer.stderr)

    def test_values_that_nobody_reads_or_that_cannot_be_are_refused(self):
        for value, said in {
            "operator.imagee=1": "imagee",
            "anything=1": "anything",
            "bot.token=secret": "token",
            "bot.tokenSecretRef.name=No_Name": "/bot/tokenSecretRef/name",
            "operator.image.digest=latest": "/operator/image/digest",
            "operator.image.repository=a:tag": "/operator/image/repository",
            "operator.replicas=-1": "/operator/replicas",
            "operator.resources.request.cpu=1": "request",
            "watchNamespaces={a,a}": "/watchNamespaces",
            "watchNamespaces={A}": "/watchNamespaces/0",
            "privateDestinations={10.0.0.1:443}": "/privateDestinations/0",
            "imagePullSecrets={registry}": "/imagePullSecrets/0",
            "networkPolicy.apiServerPorts={0}": "/networkPolicy/apiServerPorts/0",
            "serviceMonitor.enabled=maybe": "/serviceMonitor/enabled",
        }.items():
            for program in ("helm", "helm3"):
                with self.subTest(value, program=program):
                    answer = helm(program, "mooring", [value])
                    self.assertNotEqual(answer.returncode, 0)
                    path = said.replace("/", ".").lstrip(".")
                    self.assertTrue(said in answer.stderr or path in answer.stderr, answer.stderr)
        self.assertNotEqual(helm("helm", "mooring-crds", ["anything=1"]).returncode, 0)

    def test_a_digest_wins_over_a_tag_for_every_image(self):
        digest = "sha256:" + "0" * 64
        images = [f"{name}.image.digest={digest}" for name in ("operator", "bot", "harness", "sandbox")]
        text = json.dumps(list(rendered(values=[*EVERYTHING, *images]).values()))
        for name in ("operator", "bot", "harness", "sandbox"):
            self.assertIn(f"ghcr.io/mooring-dev/{name}@{digest}", text)
            self.assertNotIn(f"ghcr.io/mooring-dev/{name}:", text)

    def test_the_charts_have_the_version_of_the_programs(self):
        version = re.search(r'^version = "(.+)"', (ROOT / "Cargo.toml").read_text(), re.M)[1]
        for chart in ("mooring", "mooring-crds"):
            about = yaml.safe_load((ROOT / "charts" / chart / "Chart.yaml").read_text())
            self.assertEqual((about["version"], about["appVersion"]), (version, version))


class Config(unittest.TestCase):
    maxDiff = None

    def test_config_is_the_charts_with_default_values(self):
        charts = like_kustomize({**rendered("mooring-crds"), **rendered()})
        made = kustomized("default")
        namespace = made.pop(("Namespace", "", "mooring-system"))
        self.assertEqual(namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "restricted")
        self.assertEqual(made, charts)

    def test_config_before_1_36_is_what_the_chart_is_there(self):
        charts = like_kustomize({**rendered("mooring-crds"), **rendered(apis=(), kubernetes="1.35.0")})
        made = kustomized("before-1.36")
        made.pop(("Namespace", "", "mooring-system"))
        self.assertEqual(made, charts)

    def test_the_bot_of_config_is_what_the_chart_adds_for_it(self):
        without = rendered()
        added = {key: one for key, one in rendered(values=EVERYTHING[:1]).items() if key not in without}
        self.assertEqual(kustomized("bot"), like_kustomize(added))


class Permissions(unittest.TestCase):
    maxDiff = None

    def test_there_is_no_wildcard(self):
        for name, values in CASES.items():
            for row in rules(rendered(values=values)):
                with self.subTest(name, row=row):
                    self.assertFalse(any("*" in part for part in row))

    def test_named_namespaces_get_roles_and_nothing_is_allowed_elsewhere(self):
        found = rendered(values=CASES["two namespaces"])
        people = {"mooring-approver", "mooring-attach", "mooring-viewer", "mooring-editor"}
        self.assertEqual({name for kind, _, name in found if kind == "ClusterRole"}, people)
        self.assertFalse([key for key in found if key[0] == "ClusterRoleBinding"])
        everywhere = rules(rendered(values=EVERYTHING))
        for program in ("operator", "bot"):
            role = f"mooring-{program}-workspaces"
            cluster = {row[3:] for row in everywhere if row[2] == role}
            for namespace in ("a", "b"):
                self.assertEqual({row[3:] for row in rules(found) if row[1:3] == (namespace, role)}, cluster)
                subject = found["RoleBinding", namespace, role]["subjects"]
                self.assertEqual([(one["name"], one["namespace"]) for one in subject], [(f"mooring-{program}", "mooring-system")])
            container = found["Deployment", "mooring-system", f"mooring-{program}"]["spec"]["template"]["spec"]["containers"][0]
            self.assertIn({"name": "MOORING_WATCH_NAMESPACES", "value": "a,b"}, container["env"])

    def test_the_bot_has_the_permissions_that_its_code_needs_and_no_others(self):
        needed = (
            # what, name, verbs, where it is needed
            ("mooring.dev/workspaces", "", "get list watch", "cluster.rs", "watcher::watcher(api"),
            ("mooring.dev/workspaces/status", "", "patch", "cluster.rs", "patch_status"),
            ("coordination.k8s.io/leases", "", "create", "cluster.rs", "LeaderElection::new"),
            ("coordination.k8s.io/leases", "mooring-bot", "get update patch", "cluster.rs", 'LEASE: &str = "mooring-bot"'),
        )
        wanted = set()
        for resource, name, verbs, file, code in needed:
            self.assertIn(code, (ROOT / "bot/src" / file).read_text(), resource)
            wanted |= {(resource, name, verb) for verb in verbs.split()}
        found = rules(rendered(values=EVERYTHING))
        self.assertEqual({row[3:] for row in found if row[2].startswith("mooring-bot")}, wanted)

    def test_people_get_what_their_role_says(self):
        found = rendered()
        for role, label, permissions in (
            ("mooring-approver", None, {"mooring.dev/approvals": "get list watch patch approve"}),
            ("mooring-attach", None, {"/pods": "get", "/pods/portforward": "get create"}),
            ("mooring-viewer", "view", {f"mooring.dev/{kind}": "get list watch" for kind in ("workspaces", "approvals")}),
            ("mooring-editor", "edit", {"mooring.dev/workspaces": "create update patch delete deletecollection"}),
        ):
            with self.subTest(role):
                labels = found["ClusterRole", "", role]["metadata"]["labels"]
                aggregated = [key.rpartition("-")[2] for key in labels if key.startswith("rbac.")]
                self.assertEqual(aggregated, [label] if label else [])
                wanted = {(resource, verb) for resource, verbs in permissions.items() for verb in verbs.split()}
                self.assertEqual({(row[3], row[5]) for row in rules(found) if row[2] == role}, wanted)


class Watching(unittest.TestCase):
    def test_alerts_and_dashboard_ask_only_for_metrics_that_there_are(self):
        there = metrics()
        for file in ("templates/prometheus-rule.yaml", "files/dashboard.json"):
            asked = named_metrics((ROOT / "charts/mooring" / file).read_text())
            self.assertGreater(len(asked), 8, file)
            self.assertEqual(asked - there, set(), file)

    def test_the_docs_list_every_metric_and_no_other(self):
        docs = (ROOT / "docs/kubernetes.md").read_text()
        self.assertEqual(named_metrics(docs), metrics())

    def test_every_alert_says_what_it_means_and_what_to_look_at(self):
        rule = rendered(values=EVERYTHING)["PrometheusRule", "mooring-system", "mooring"]
        alerts = [alert for group in rule["spec"]["groups"] for alert in group["rules"]]
        self.assertEqual(len({alert["alert"] for alert in alerts}), len(alerts))
        docs = (ROOT / "docs/kubernetes.md").read_text()
        for alert in alerts:
            with self.subTest(alert["alert"]):
                self.assertEqual(set(alert["annotations"]), {"summary", "description"})
                self.assertIn(alert["labels"]["severity"], ("warning", "critical"))
                self.assertTrue(f"| `{alert['alert']}` |" in docs, "not in docs/kubernetes.md")

    def test_the_dashboard_is_one_that_grafana_reads(self):
        found = rendered(values=EVERYTHING)["ConfigMap", "mooring-system", "mooring-dashboard"]
        self.assertEqual(found["metadata"]["labels"]["grafana_dashboard"], "1")
        dashboard = json.loads(found["data"]["mooring.json"])
        panels = dashboard["panels"]
        self.assertEqual(len({panel["id"] for panel in panels}), len(panels))
        taken = set()
        for panel in panels:
            place = panel["gridPos"]
            cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
            self.assertFalse(cells & taken, panel["title"])
            taken |= cells
        self.assertEqual(max(x for x, _ in taken), 23)


class Docs(unittest.TestCase):
    def test_every_condition_and_reason_of_a_workspace_is_explained(self):
        docs = (ROOT / "docs/kubernetes.md").read_text()
        page = docs[docs.index("## What its status says") : docs.index("## Approvals")]
        operator = ROOT / "operator/src"
        code = {
            "condition": (ROOT / "crds/src/status.rs", r'pub const \w+: &str = "(\w+)"'),
            "error": (operator / "error.rs", r'Error::\w+(?: \{ \.\. \}|\(_\)) => "([A-Z]\w+)"'),
            "conclusion": (operator / "conclude.rs", r'"([A-Z][a-z]\w+)"'),
            "check of the bot": (ROOT / "bot/src/check.rs", r'"([A-Z][a-z]+[A-Z]\w+|Connected)"'),
            "word of the bot": (ROOT / "bot/src/bot.rs", r'reason: "(\w+)"'),
            "claim at the bot": (ROOT / "bot/src/workspace.rs", r'reason: "(\w+)"'),
        }
        for what, (file, pattern) in code.items():
            names = set(re.findall(pattern, file.read_text().split("#[cfg(test)]")[0]))
            self.assertGreater(len(names), 1, what)
            missing = {name for name in names if f"`{name}`" not in page}
            self.assertEqual(missing, set(), f"a {what} that docs/kubernetes.md does not explain")


def sources(crate):
    return "\n".join(file.read_text() for file in sorted((ROOT / crate / "src").rglob("*.rs")))


def named_metrics(text):
    names = {re.sub("_bucket$", "", name) for name in re.findall(r"\bmooring_[a-z_]+[a-z]\b", text)}
    return names


def metrics():
    """Of operator, harness and bot, by their code. The operator's passes are named
    by the crate k8s-controller; operator/src/metrics.rs has a test for them."""
    # Names of tables in the database begin alike.
    named = r'(?<!TABLE: &str = )"(mooring_[a-z_]+)"'
    names = set(re.findall(named, sources("operator") + sources("harness"))) - {"mooring_operator"}
    health = sources("bot")
    given = re.search(r"for \(name, value\) in \[(.*?)\] \{\s*let _ = writeln!\(text, \"mooring_bot_", health, re.S)[1]
    names |= {f"mooring_bot_{name}" for name in re.findall(r'\(\s*"([a-z_]+)"', given)}
    names |= {f"mooring_bot_{name}" for name in re.findall(r'\.count\(\s*"([a-z_]+)"', health)}
    passes = ("reconciliations_total", "reconciliation_duration_seconds")
    return names - {"mooring_operator_"} | {f"mooring_operator_{name}" for name in passes}


if __name__ == "__main__":
    unittest.main()
