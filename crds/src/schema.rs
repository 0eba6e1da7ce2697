//! The CRDs: the schemas that the types derive, completed by what a type cannot
//! say: rules with messages, bounds, and how lists merge.
//!
//! A path names a place in the schema: `spec.models[]` is each item of a list,
//! `spec.sandbox.env{}` each value of a map, and the empty path the object itself.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::{Map, Value, json};

use crate::{Approval, Workspace};

/// A rule in CEL at one place of a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Where it stands.
    pub path: &'static str,
    /// The expression over `self` and, for changes, `oldSelf`.
    pub rule: &'static str,
    /// What whoever broke it is told: what would be right.
    pub message: &'static str,
}

const fn rule(path: &'static str, rule: &'static str, message: &'static str) -> Rule {
    Rule {
        path,
        rule,
        message,
    }
}

/// One or more numbers with their units, as in `1h30m`.
const DURATION: &str = "self.matches('^([1-9][0-9]{0,5}(s|m|h|d))+$')";
/// Kubernetes' own notion of a size, whole and above nothing.
const SIZE: &str = "isQuantity(self) && quantity(self).isGreaterThan(quantity('0'))";
/// A size may be said for the first time or grow.
const GROWS: &str =
    "!isQuantity(self) || !isQuantity(oldSelf) || quantity(self).compareTo(quantity(oldSelf)) >= 0";

/// The rules of a Workspace.
pub const WORKSPACE_RULES: &[Rule] = &[
    rule(
        "",
        "size(self.metadata.name) <= 40",
        "a Workspace's name has at most 40 characters, since the names of its pods and Secrets are made from it",
    ),
    rule(
        "spec",
        "!has(oldSelf.repo) || !has(oldSelf.repo.url) || (has(self.repo) && has(self.repo.url) && self.repo.url == oldSelf.repo.url)",
        "spec.repo.url cannot change, since the volumes hold that repository; make a new Workspace",
    ),
    rule(
        "spec.repo",
        "!has(self.url) || self.url.matches('^https?://[^@/ ]+/[^ ]+$')",
        "url has to be an https address without a user name, also for a repository that people reach by ssh; credentials are never part of it",
    ),
    rule(
        "spec.repo.alsoFetch[]",
        "self.matches('^https?://[^@/ ]+/[^ ]+$')",
        "alsoFetch holds https addresses without a user name",
    ),
    rule(
        "spec.discord.attachments.maxBytes",
        "self.matches('^[1-9][0-9]{0,8}(Ki|Mi)?$')",
        "maxBytes has to be a number of bytes such as 10Mi or 512Ki",
    ),
    rule(
        "spec.models[]",
        "self.provider == 'rehearsal' || (has(self.model) && size(self.model) > 0)",
        "model is needed: the provider's name of it",
    ),
    rule(
        "spec.models[].endpoint",
        "self.matches('^https?://[^ ]+$')",
        "endpoint has to be an http or https address",
    ),
    rule(
        "spec.members[]",
        "has(self.discordUserId) != has(self.discordRoleId)",
        "a member is either a discordUserId or a discordRoleId",
    ),
    rule(
        "spec.members[]",
        "!has(self.kubernetesUser) || has(self.discordUserId)",
        "kubernetesUser names one person, so it stands beside a discordUserId",
    ),
    rule(
        "spec.policy.egress",
        "self.all(k, k == '*' || (size(k) <= 260 && k.matches('^[a-z0-9._*-]*[a-z*-][a-z0-9_*-]*:[1-9][0-9]{0,4}$')))",
        "an egress entry is host:port with a name in lower case, such as crates.io:443, or * for every host at port 443",
    ),
    rule(
        "spec.policy.tests[]",
        "[has(self.tool), has(self.bash), has(self.path), has(self.git), has(self.egress)].filter(x, x).size() == 1",
        "a policy test has exactly one of tool, bash, path, git and egress",
    ),
    rule(
        "spec.mcp[]",
        "has(self.url) != has(self.command)",
        "a server has either a url or a command",
    ),
    rule(
        "spec.mcp[]",
        "!(has(self.headersSecretRef) || has(self.headersEnv)) || has(self.url)",
        "headers are for a server with a url",
    ),
    rule(
        "spec.mcp[].name",
        "self.matches('^[a-z]([a-z0-9]|-[a-z0-9])*$')",
        "name has to be small letters, digits and single dashes, and begin with a letter",
    ),
    rule(
        "spec.mcp[].url",
        "self.matches('^https?://[^ ]+$')",
        "url has to be an http or https address",
    ),
    rule(
        "spec.approvals.timeout",
        "self == 'never' || self.matches('^([1-9][0-9]{0,5}(s|m|h|d))+$')",
        "timeout has to be a duration such as 4h or 30m, or never",
    ),
    rule(
        "spec.budgets.perRun.costUsd",
        "self.matches('^[0-9]{1,9}([.][0-9]{1,6})?$')",
        "costUsd has to be a decimal number in quotes, such as \"2.50\"",
    ),
    rule(
        "spec.budgets.perRun.wallTime",
        DURATION,
        "wallTime has to be a duration such as 30m or 2h",
    ),
    rule(
        "spec.sandbox.egressLimits.bytesDaily",
        "self.matches('^[0-9]{1,12}(Ki|Mi|Gi)?$')",
        "bytesDaily has to be a number of bytes such as 5Gi or 512Mi",
    ),
    rule(
        "spec.sandbox.egressLimits.time",
        DURATION,
        "time has to be a duration such as 1h or 30m",
    ),
    rule(
        "spec.sandbox.caBundle",
        "self.contains('-----BEGIN CERTIFICATE-----') && !self.contains('PRIVATE KEY-----')",
        "caBundle has to be certificates in PEM, without a private key",
    ),
    rule(
        "spec.retention.transcripts",
        DURATION,
        "transcripts has to be a duration such as 90d",
    ),
    rule(
        "spec.retention.audit",
        DURATION,
        "audit has to be a duration such as 365d",
    ),
    rule(
        "spec.sandbox.storage.size",
        SIZE,
        "size has to be a quantity such as 10Gi",
    ),
    rule("spec.sandbox.storage.size", GROWS, "a volume can only grow"),
    rule(
        "spec.sandbox.storage",
        "has(self.storageClassName) == has(oldSelf.storageClassName) && (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)",
        "storageClassName cannot change, since the volume exists",
    ),
    rule(
        "spec.sandbox.storage",
        "has(self.accessMode) == has(oldSelf.accessMode) && (!has(self.accessMode) || self.accessMode == oldSelf.accessMode)",
        "accessMode cannot change, since the volume exists",
    ),
    rule(
        "spec.harness.storage.size",
        SIZE,
        "size has to be a quantity such as 2Gi",
    ),
    rule("spec.harness.storage.size", GROWS, "a volume can only grow"),
    rule(
        "spec.harness.storage",
        "has(self.storageClassName) == has(oldSelf.storageClassName) && (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)",
        "storageClassName cannot change, since the volume exists",
    ),
    rule(
        "spec.harness.storage",
        "has(self.accessMode) == has(oldSelf.accessMode) && (!has(self.accessMode) || self.accessMode == oldSelf.accessMode)",
        "accessMode cannot change, since the volume exists",
    ),
    rule(
        "spec.sandbox.resources.requests{}",
        "isQuantity(self)",
        "a request has to be a quantity such as 500m or 1Gi",
    ),
    rule(
        "spec.sandbox.resources.limits{}",
        "isQuantity(self)",
        "a limit has to be a quantity such as 500m or 1Gi",
    ),
    rule(
        "spec.harness.resources.requests{}",
        "isQuantity(self)",
        "a request has to be a quantity such as 500m or 1Gi",
    ),
    rule(
        "spec.harness.resources.limits{}",
        "isQuantity(self)",
        "a limit has to be a quantity such as 500m or 1Gi",
    ),
];

/// The rules of an Approval.
pub const APPROVAL_RULES: &[Rule] = &[
    rule(
        "spec.request",
        "self == oldSelf",
        "a request cannot change: it is what people decide about",
    ),
    rule(
        "spec",
        "!has(oldSelf.decision) || (has(self.decision) && self.decision == oldSelf.decision)",
        "this approval was decided already; a decision is written once",
    ),
    rule(
        "status",
        "!has(oldSelf.phase) || oldSelf.phase == 'Pending' || (has(self.phase) && self.phase == oldSelf.phase)",
        "the phase is final",
    ),
];

/// Bounds and merge keys of a Workspace's schema.
fn workspace_bounds() -> Vec<(&'static str, Value)> {
    let map_by = |key: &str, max: u32| json!({"maxItems": max, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]});
    let table = json!({"maxProperties": 500});
    vec![
        ("spec", json!({"required": ["models"]})),
        ("spec.repo.url", json!({"maxLength": 2048})),
        ("spec.repo.ref", json!({"maxLength": 255})),
        (
            "spec.repo.credentialsSecretRef.name",
            json!({"minLength": 1, "maxLength": 253}),
        ),
        (
            "spec.repo.alsoFetch",
            json!({"maxItems": 50, "x-kubernetes-list-type": "set"}),
        ),
        ("spec.repo.alsoFetch[]", json!({"maxLength": 2048})),
        (
            "spec.discord.guildId",
            json!({"pattern": "^[0-9]{1,20}$", "maxLength": 20}),
        ),
        (
            "spec.discord.channelId",
            json!({"pattern": "^[0-9]{1,20}$", "maxLength": 20}),
        ),
        (
            "spec.discord.attachments.maxBytes",
            json!({"maxLength": 16}),
        ),
        ("spec.discord.attachments.maxCount", json!({"maximum": 10})),
        ("spec.models", {
            let mut models = map_by("name", 32);
            models["minItems"] = json!(1);
            models
        }),
        (
            "spec.models[].name",
            json!({"minLength": 1, "maxLength": 64}),
        ),
        ("spec.models[].model", json!({"maxLength": 256})),
        ("spec.models[].endpoint", json!({"maxLength": 2048})),
        ("spec.models[].apiKeyEnv", json!({"maxLength": 128})),
        (
            "spec.models[].apiKeySecretRef.name",
            json!({"minLength": 1, "maxLength": 253}),
        ),
        (
            "spec.models[].apiKeySecretRef.key",
            json!({"minLength": 1, "maxLength": 253}),
        ),
        ("spec.instructions", json!({"maxLength": 65536})),
        (
            "spec.members",
            json!({"maxItems": 500, "x-kubernetes-list-type": "atomic"}),
        ),
        (
            "spec.members[].discordRoleId",
            json!({"pattern": "^[0-9]{1,20}$"}),
        ),
        (
            "spec.members[].discordUserId",
            json!({"pattern": "^[0-9]{1,20}$"}),
        ),
        (
            "spec.members[].kubernetesUser",
            json!({"minLength": 1, "maxLength": 256}),
        ),
        ("spec.policy.tool", table.clone()),
        ("spec.policy.bash", table.clone()),
        ("spec.policy.path", table.clone()),
        ("spec.policy.mcp", table.clone()),
        ("spec.policy.git", table),
        ("spec.policy.egress", json!({"maxProperties": 200})),
        (
            "spec.policy.tests",
            json!({"maxItems": 500, "x-kubernetes-list-type": "atomic"}),
        ),
        ("spec.policy.tests[].tool", json!({"maxLength": 256})),
        ("spec.policy.tests[].bash", json!({"maxLength": 16384})),
        ("spec.policy.tests[].path", json!({"maxLength": 4096})),
        ("spec.policy.tests[].git", json!({"maxLength": 4096})),
        ("spec.mcp", map_by("name", 16)),
        ("spec.mcp[].name", json!({"minLength": 1, "maxLength": 24})),
        ("spec.mcp[].url", json!({"maxLength": 2048})),
        (
            "spec.mcp[].headersSecretRef.name",
            json!({"minLength": 1, "maxLength": 253}),
        ),
        ("spec.mcp[].headersEnv", json!({"maxProperties": 32})),
        (
            "spec.mcp[].headersEnv{}",
            json!({"minLength": 1, "maxLength": 128}),
        ),
        (
            "spec.mcp[].command",
            json!({"minItems": 1, "maxItems": 64, "x-kubernetes-list-type": "atomic"}),
        ),
        ("spec.mcp[].command[]", json!({"maxLength": 4096})),
        ("spec.policy.tests[].egress", json!({"maxLength": 300})),
        ("spec.approvals.timeout", json!({"maxLength": 32})),
        ("spec.budgets.perRun.costUsd", json!({"maxLength": 32})),
        ("spec.budgets.perRun.wallTime", json!({"maxLength": 32})),
        ("spec.retention.transcripts", json!({"maxLength": 32})),
        ("spec.retention.audit", json!({"maxLength": 32})),
        ("spec.sandbox.env", json!({"maxProperties": 200})),
        ("spec.sandbox.env{}", json!({"maxLength": 32768})),
        (
            "spec.sandbox.readOnly",
            json!({"maxItems": 100, "x-kubernetes-list-type": "atomic"}),
        ),
        ("spec.sandbox.caBundle", json!({"maxLength": 262144})),
        (
            "spec.sandbox.egressLimits.bytesDaily",
            json!({"maxLength": 16}),
        ),
        ("spec.sandbox.egressLimits.time", json!({"maxLength": 32})),
        (
            "spec.sandbox.image",
            json!({"minLength": 1, "maxLength": 1024}),
        ),
        (
            "spec.sandbox.runtimeClassName",
            json!({"minLength": 1, "maxLength": 253}),
        ),
        ("spec.sandbox.storage.size", json!({"maxLength": 32})),
        (
            "spec.sandbox.storage.storageClassName",
            json!({"maxLength": 253}),
        ),
        (
            "spec.sandbox.resources.requests",
            json!({"maxProperties": 10}),
        ),
        (
            "spec.sandbox.resources.requests{}",
            json!({"maxLength": 32}),
        ),
        (
            "spec.sandbox.resources.limits",
            json!({"maxProperties": 10}),
        ),
        ("spec.sandbox.resources.limits{}", json!({"maxLength": 32})),
        ("spec.harness.storage.size", json!({"maxLength": 32})),
        (
            "spec.harness.storage.storageClassName",
            json!({"maxLength": 253}),
        ),
        (
            "spec.harness.resources.requests",
            json!({"maxProperties": 10}),
        ),
        (
            "spec.harness.resources.requests{}",
            json!({"maxLength": 32}),
        ),
        (
            "spec.harness.resources.limits",
            json!({"maxProperties": 10}),
        ),
        ("spec.harness.resources.limits{}", json!({"maxLength": 32})),
    ]
}

/// Bounds and merge keys of an Approval's schema.
fn approval_bounds() -> Vec<(&'static str, Value)> {
    let digest = json!({"pattern": "^[0-9a-f]{64}$", "maxLength": 64});
    vec![
        (
            "spec.request.workspaceRef.name",
            json!({"minLength": 1, "maxLength": 40}),
        ),
        (
            "spec.request.tool",
            json!({"minLength": 1, "maxLength": 256}),
        ),
        ("spec.request.summary", json!({"maxLength": 4096})),
        ("spec.request.arguments", json!({"maxLength": 65536})),
        ("spec.request.argumentsSha256", digest.clone()),
        ("spec.request.policyDigest", digest),
        ("spec.request.rule", json!({"maxLength": 4096})),
        (
            "spec.request.requesters",
            json!({"maxItems": 100, "x-kubernetes-list-type": "atomic"}),
        ),
        ("spec.request.requesters[].name", json!({"maxLength": 256})),
        (
            "spec.request.requesters[].discordUserId",
            json!({"pattern": "^[0-9]{1,20}$", "maxLength": 20}),
        ),
        (
            "spec.request.requesters[].kubernetesUser",
            json!({"minLength": 1, "maxLength": 256}),
        ),
        ("spec.request.expiresAt", json!({"format": "date-time"})),
        ("spec.decision.reason", json!({"maxLength": 4096})),
        ("spec.decision.decidedBy", json!({"maxLength": 256})),
        ("status.via", json!({"maxLength": 64})),
        ("status.decidedAt", json!({"format": "date-time"})),
        ("status.decidedBy.name", json!({"maxLength": 256})),
        ("status.decidedBy.id", json!({"maxLength": 256})),
    ]
}

/// The CRD of `Workspace`.
pub fn workspace_crd() -> CustomResourceDefinition {
    complete(Workspace::crd(), &workspace_bounds(), WORKSPACE_RULES)
}

/// The CRD of `Approval`.
pub fn approval_crd() -> CustomResourceDefinition {
    complete(Approval::crd(), &approval_bounds(), APPROVAL_RULES)
}

fn complete(
    crd: CustomResourceDefinition,
    bounds: &[(&str, Value)],
    rules: &[Rule],
) -> CustomResourceDefinition {
    let mut crd = serde_json::to_value(crd).expect("a CRD is JSON");
    let schema = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    tidy(schema);
    for (path, bound) in bounds {
        let place = at(schema, path)
            .as_object_mut()
            .expect("a schema is an object");
        place.extend(bound.as_object().expect("a bound is an object").clone());
    }
    for rule in rules {
        let place = at(schema, rule.path)
            .as_object_mut()
            .expect("a schema is an object");
        place
            .entry("x-kubernetes-validations")
            .or_insert_with(|| json!([]))
            .as_array_mut()
            .expect("validations are a list")
            .push(json!({"rule": rule.rule, "message": rule.message}));
    }
    serde_json::from_value(crd).expect("a completed CRD is a CRD")
}

/// Takes out what only adds noise or a second writer: defaults (an absent field
/// means what the type says, and stays absent) and formats that Kubernetes does not know.
fn tidy(schema: &mut Value) {
    if let Some(place) = schema.as_object_mut() {
        place.remove("default");
        place.remove("nullable");
        if let Some(Value::String(format)) = place.get("format")
            && !matches!(format.as_str(), "int32" | "int64" | "double" | "date-time")
        {
            place.remove("format");
        }
        for (key, child) in place.iter_mut() {
            match key.as_str() {
                "properties" => {
                    child
                        .as_object_mut()
                        .into_iter()
                        .flat_map(Map::values_mut)
                        .for_each(tidy);
                }
                "items" | "additionalProperties" => tidy(child),
                _ => {}
            }
        }
    }
}

/// The place in `schema` that `path` names.
///
/// # Panics
/// Where there is none: a path names a field that was renamed or removed.
fn at<'a>(schema: &'a mut Value, path: &str) -> &'a mut Value {
    let mut place = schema;
    for step in path.split('.').filter(|step| !step.is_empty()) {
        let name = step.trim_end_matches("[]").trim_end_matches("{}");
        place = place["properties"]
            .get_mut(name)
            .unwrap_or_else(|| panic!("the schema has no `{name}` at `{path}`"));
        if step.ends_with("[]") {
            place = &mut place["items"];
        } else if step.ends_with("{}") {
            place = &mut place["additionalProperties"];
        }
        assert!(place.is_object(), "the schema has nothing at `{path}`");
    }
    place
}
