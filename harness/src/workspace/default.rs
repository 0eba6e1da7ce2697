//! The Workspace that holds where a project has none of its own.

use mooring_crds::{
    Approvals, ModelSpec, Policy, Provider, SandboxSpec, Verdict, Workspace, WorkspaceSpec,
};

/// A sane Workspace for a project on one machine, whose only person is at the
/// terminal: commands run at once, because the sandbox has neither network nor
/// keys, and what would undo or publish work asks first.
///
/// `name` becomes `metadata.name`; `keys` tells which environment variables hold
/// a key (Anthropic is preferred to OpenAI; with neither the rehearsal provider
/// serves).
pub fn default_workspace(name: &str, keys: impl Fn(&str) -> bool) -> Workspace {
    let rule = |pattern: &str, verdict| (pattern.to_owned(), verdict);
    let spec = WorkspaceSpec {
        models: vec![default_model(keys)],
        policy: Policy {
            tool: [rule("*", Verdict::Allow)].into(),
            bash: [
                rule("*", Verdict::Allow),
                rule("git reset --hard*", Verdict::Ask),
                rule("git clean*", Verdict::Ask),
                rule("git branch -D *", Verdict::Ask),
                rule("rm -rf *", Verdict::Ask),
                rule("rm -fr *", Verdict::Ask),
                rule("rm -r *", Verdict::Ask),
                rule("npm publish*", Verdict::Ask),
                rule("cargo publish*", Verdict::Ask),
                // Options that write or run are covered only by rules that name them.
                // What `find` runs is decided on its own.
                rule("sed -i*", Verdict::Allow),
                rule("sed * -i*", Verdict::Allow),
                rule("find * -exec *", Verdict::Allow),
                rule("find * -delete*", Verdict::Allow),
                rule("dd *of=*", Verdict::Allow),
            ]
            .into(),
            path: [
                rule("*", Verdict::Allow),
                rule("*.env", Verdict::Ask),
                rule("*.pem", Verdict::Ask),
                rule("*/.ssh/*", Verdict::Deny),
            ]
            .into(),
            // A push leaves the sandbox only through the harness, where this decides
            // it; asked about here too, people would be asked twice.
            git: [
                rule("push refs/heads/mooring/*", Verdict::Allow),
                rule("*", Verdict::Ask),
            ]
            .into(),
            external_directory: Some(Verdict::Allow),
            ..Policy::default()
        },
        approvals: Approvals {
            timeout: "never".into(),
            requester_may_approve: true,
        },
        sandbox: SandboxSpec::default(),
        ..WorkspaceSpec::default()
    };
    Workspace::new(&object_name(name), spec)
}

fn default_model(keys: impl Fn(&str) -> bool) -> ModelSpec {
    let (name, provider, model) = if keys("ANTHROPIC_API_KEY") {
        ("claude", Provider::Anthropic, "claude-sonnet-4-5")
    } else if keys("OPENAI_API_KEY") {
        ("gpt", Provider::OpenAI, "gpt-5")
    } else {
        ("rehearsal", Provider::Rehearsal, "")
    };
    ModelSpec {
        name: name.into(),
        provider,
        model: model.into(),
        endpoint: None,
        api_key_env: None,
        api_key_secret_ref: None,
        thinking: None,
        context_window: None,
        max_output: None,
        price: None,
    }
}

/// `name` as Kubernetes allows it: lower case, digits and dashes, at most 40.
fn object_name(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        match c.to_ascii_lowercase() {
            c @ ('a'..='z' | '0'..='9') => out.push(c),
            _ if !out.is_empty() && !out.ends_with('-') => out.push('-'),
            _ => {}
        }
        if out.len() == 40 {
            break;
        }
    }
    let out = out.trim_end_matches('-');
    if out.is_empty() {
        "project".into()
    } else {
        out.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_names_that_kubernetes_takes() {
        for (given, expected) in [
            ("Mooring", "mooring"),
            ("my_project.rs", "my-project-rs"),
            ("--x--", "x"),
            ("ü", "project"),
            (&"a".repeat(60), &"a".repeat(40)),
        ] {
            assert_eq!(object_name(given), expected);
        }
    }

    /// Scripts as agents write them, divided by lines with `%` alone.
    fn scripts(text: &'static str) -> impl Iterator<Item = &'static str> {
        text.trim_end().split("\n%\n")
    }

    fn verdict(script: &str) -> Verdict {
        let workspace = default_workspace("x", |_| false);
        let call = mooring_policy::Call {
            tool: "bash",
            action: mooring_policy::Action::Bash {
                text: script,
                cwd: "",
            },
        };
        let rules = mooring_policy::Rules::new(&workspace.spec.policy);
        let facts = mooring_policy::read(&call);
        mooring_policy::decide(&rules, &facts, &mooring_policy::NoEnvironment::default()).verdict
    }

    fn otherwise<'a>(scripts: &[&'a str], wanted: Verdict) -> Vec<(&'a str, Verdict)> {
        let decided = scripts.iter().map(|script| (*script, verdict(script)));
        decided.filter(|(_, verdict)| *verdict != wanted).collect()
    }

    #[test]
    fn ordinary_work_runs_without_a_question() {
        let allowed: Vec<&str> = scripts(include_str!("scripts/allowed.txt")).collect();
        assert!(allowed.len() >= 240, "{}", allowed.len());
        assert_eq!(otherwise(&allowed, Verdict::Allow), []);
    }

    /// What the policy's contract asks about by itself: code that is not bash, words
    /// that come from elsewhere, variables that change what a command does.
    #[test]
    fn what_is_asked_about_is_known() {
        let asked: Vec<&str> = scripts(include_str!("scripts/asked.txt")).collect();
        assert_eq!(otherwise(&asked, Verdict::Ask), []);
    }

    #[test]
    fn the_default_workspace_is_valid_and_reads_back_the_same() {
        let made = default_workspace("x", |_| false);
        let text = serde_saphyr::to_string(&made).expect("a Workspace is always YAML");
        let read = mooring_crds::read_workspace(&text, "default").expect("valid");
        assert_eq!(read.spec, made.spec);
    }
}
