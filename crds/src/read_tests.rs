#![allow(clippy::unwrap_used)]

use super::*;

const GOOD: &str = "\
apiVersion: mooring.dev/v1alpha1
kind: Workspace
metadata:
  name: demo
spec:
  models:
  - name: main
    provider: anthropic
    model: m
  policy:
    tool: {\"*\": allow}
    bash: {\"git push*\": ask}
  approvals:
    timeout: 4h
";

fn error(text: &str) -> String {
    read_workspace(text, "w.yaml").unwrap_err().to_string()
}

#[test]
fn a_right_file_is_read() {
    let workspace = read_workspace(GOOD, "w.yaml").unwrap();
    assert_eq!(workspace.metadata.name.as_deref(), Some("demo"));
    assert_eq!(workspace.spec.models[0].name, "main");
}

#[test]
fn errors_tell_line_column_field_and_what_is_meant() {
    for (right, wrong, told) in [
        (
            "models:",
            "modles:",
            vec![
                "w.yaml:6:3: spec.modles: ",
                "unknown field `modles`",
                "did you mean `models`?",
            ],
        ),
        (
            "timeout: 4h",
            "timout: 4h",
            vec![
                "w.yaml:14:5: spec.approvals.timout: ",
                "did you mean `timeout`?",
            ],
        ),
        (
            "provider: anthropic",
            "provider: antropic",
            vec![
                "w.yaml:8:15: spec.models[0].provider: ",
                "did you mean `anthropic`?",
            ],
        ),
        (
            "git push*\": ask",
            "git push*\": maybe",
            vec!["w.yaml:12:25: spec.policy.bash.git push*: ", "maybe"],
        ),
        (
            "timeout: 4h",
            "timeout: soon",
            vec!["w.yaml:14:14: spec.approvals.timeout: ", "is no duration"],
        ),
        (
            "model: m",
            "model: \"\"",
            vec!["w.yaml:9:12: spec.models[0].model: ", "is needed"],
        ),
        (
            "kind: Workspace",
            "kind: Pod",
            vec!["w.yaml:2:7: kind: ", "has to be Workspace"],
        ),
        (
            "v1alpha1",
            "v9",
            vec![
                "w.yaml:1:13: apiVersion: ",
                "has to be mooring.dev/v1alpha1",
            ],
        ),
        (
            "name: demo",
            "name: ''",
            vec!["w.yaml:4:9: metadata.name: ", "is needed"],
        ),
        ("  models:", "\tmodels:", vec!["w.yaml:6:"]),
        ("timeout: 4h", "timeout: [", vec!["w.yaml:1"]),
        (
            "    model: m\n",
            "    model: m\n    model: n\n",
            vec!["w.yaml:10:5: ", "model"],
        ),
    ] {
        assert!(GOOD.contains(right), "{right}");
        let text = GOOD.replacen(right, wrong, 1);
        let error = error(&text);
        for part in told {
            assert!(error.contains(part), "{wrong}: {error:?} lacks {part:?}");
        }
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn several_problems_are_a_line_each() {
    let text = GOOD.replace("model: m", "model: ''").replace("4h", "x");
    let error = error(&text);
    assert_eq!(error.lines().count(), 2, "{error}");
}

#[test]
fn what_is_no_workspace_at_all_is_refused_with_a_reason() {
    for text in [
        "",
        "just text",
        "[1, 2]",
        "{",
        "a: &a [*a, *a]",
        "\u{0}",
        "spec: {}",
    ] {
        let error = error(text);
        assert!(
            error.starts_with("w.yaml:") && error.len() > 12,
            "{text:?}: {error}"
        );
    }
    let long = format!("# {}\n{GOOD}", "x".repeat(FILE_MAX));
    assert!(error(&long).contains("a Workspace has at most"));
}

#[test]
fn aliases_that_unfold_without_end_are_refused() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let before = format!("*a{}", level - 1);
        text.push_str(&format!(
            "a{level}: &a{level} [{}]\n",
            [before.as_str(); 10].join(", ")
        ));
    }
    assert!(error(&text).starts_with("w.yaml:"));
}

#[test]
fn the_nearest_known_name_is_proposed_only_where_it_is_near() {
    for (message, meant) in [
        (
            "unknown field `modles`, expected one of repo, models",
            Some("models"),
        ),
        (
            "unknown field `Model`, expected one of `name`, `model`",
            Some("model"),
        ),
        ("unknown field `zzz`, expected one of repo, models", None),
        ("missing field `models`", None),
    ] {
        assert_eq!(nearest_field(message), meant, "{message}");
    }
}
