//! The CRDs: their rules and messages, their size, and that the files in the
//! repository are those of the types.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use kube::core::cel::Validator;
use mooring_crds::{APPROVAL_RULES, WORKSPACE_RULES, approval_crd, generated_files, workspace_crd};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Case {
    name: String,
    kind: String,
    before: Option<Value>,
    change: Value,
    message: String,
}

fn cases() -> Vec<Case> {
    serde_saphyr::from_str(include_str!("rules.yaml")).unwrap()
}

fn good() -> BTreeMap<String, Value> {
    serde_saphyr::from_str(include_str!("good.yaml")).unwrap()
}

fn schema(kind: &str) -> Value {
    let crd = match kind {
        "Workspace" => workspace_crd(),
        "Approval" => approval_crd(),
        other => panic!("no kind {other}"),
    };
    let crd = serde_json::to_value(crd).unwrap();
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

/// JSON merge patch (RFC 7396).
fn merge(into: &mut Value, change: &Value) {
    let Value::Object(change) = change else {
        *into = change.clone();
        return;
    };
    if !into.is_object() {
        *into = Value::Object(Default::default());
    }
    let object = into.as_object_mut().unwrap();
    for (key, value) in change {
        if value.is_null() {
            object.remove(key);
        } else {
            merge(object.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

#[test]
fn the_good_objects_break_no_rule() {
    for (kind, object) in good() {
        Validator::new()
            .validate(&schema(&kind), &object, None)
            .unwrap();
        Validator::new()
            .validate(&schema(&kind), &object, Some(&object))
            .unwrap();
    }
}

#[test]
fn every_rule_refuses_what_it_is_for_and_says_what_would_be_right() {
    let good = good();
    for case in cases() {
        let old = case.before.as_ref().map(|before| {
            let mut old = good[&case.kind].clone();
            merge(&mut old, before);
            old
        });
        let mut object = old.clone().unwrap_or_else(|| good[&case.kind].clone());
        merge(&mut object, &case.change);
        let errors = Validator::new()
            .validate(&schema(&case.kind), &object, old.as_ref())
            .expect_err(&case.name);
        let messages: Vec<_> = errors.iter().map(|error| error.message.as_str()).collect();
        assert_eq!(messages, [case.message.as_str()], "{}", case.name);
    }
}

#[test]
fn no_rule_is_without_a_case() {
    let shown: BTreeSet<(String, String)> = cases()
        .into_iter()
        .map(|case| (case.kind, case.message))
        .collect();
    for (kind, rules) in [("Workspace", WORKSPACE_RULES), ("Approval", APPROVAL_RULES)] {
        for rule in rules {
            assert!(
                shown.contains(&(kind.into(), rule.message.into())),
                "{kind}: {}",
                rule.message
            );
        }
    }
}

#[test]
fn the_files_are_those_of_the_types() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for file in generated_files() {
        let found = std::fs::read_to_string(root.join(file.path)).unwrap_or_default();
        assert!(
            found == file.text,
            "{} differs: run `cargo run -p mooring-crds`",
            file.path
        );
    }
}

#[test]
fn every_file_is_under_256_kib() {
    for file in generated_files() {
        assert!(
            file.text.len() < 256 * 1024,
            "{} has {} bytes",
            file.path,
            file.text.len()
        );
        assert!(
            !file.text.contains("{{"),
            "{} would be read as a template",
            file.path
        );
    }
}

#[test]
fn the_types_read_the_good_objects_and_refuse_unknown_fields() {
    let good = good();
    let workspace: mooring_crds::Workspace =
        serde_json::from_value(good["Workspace"].clone()).unwrap();
    assert_eq!(mooring_crds::validate(&workspace.spec), []);
    let _: mooring_crds::Approval = serde_json::from_value(good["Approval"].clone()).unwrap();

    let mut unknown = good["Workspace"].clone();
    unknown["spec"]["buget"] = serde_json::json!({});
    let error = serde_json::from_value::<mooring_crds::Workspace>(unknown).unwrap_err();
    assert!(
        error.to_string().contains("unknown field `buget`"),
        "{error}"
    );
}
