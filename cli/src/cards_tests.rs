#![allow(clippy::unwrap_used)]

use super::*;

fn texts(lines: &[Line]) -> Vec<String> {
    lines.iter().map(Line::text).collect()
}

#[test]
fn a_call_is_one_line_in_each_state() {
    for (state, started, ended, note, text) in [
        ("proposed", 0, 0, "", "• bash cargo test --offline"),
        (
            "running",
            1_000,
            0,
            "",
            "• bash cargo test --offline  3.0 s",
        ),
        ("done", 1_000, 1_050, "", "✓ bash cargo test --offline"),
        (
            "done",
            1_000,
            3_500,
            "exit 0",
            "✓ bash cargo test --offline  2.5 s, exit 0",
        ),
        (
            "error",
            1_000,
            3_500,
            "exit 101",
            "✗ bash cargo test --offline  error, 2.5 s, exit 101",
        ),
        (
            "denied",
            0,
            0,
            "by \"rm *\"",
            "✗ bash cargo test --offline  denied, by \"rm *\"",
        ),
        (
            "waiting-approval",
            0,
            0,
            "",
            "? bash cargo test --offline  waits for approval",
        ),
    ] {
        let call = Call {
            tool: "bash".into(),
            summary: "cargo test\n--offline".into(),
            state: state.into(),
            started_ms: started,
            ended_ms: ended,
            note: note.into(),
            ..Call::default()
        };
        assert_eq!(call_line(&call, 4_000, 100).text(), text, "{state}");
        for width in 1..60 {
            assert!(
                call_line(&call, 4_000, width).width() <= width,
                "{state} at {width}"
            );
        }
    }
}

#[test]
fn a_run_card_tells_turns_tools_time_tokens_and_cost() {
    let run = Run {
        turns: 3,
        tool_calls: 1,
        started_ms: 1_000,
        ended_ms: 13_345,
        input_tokens: 4_200,
        output_tokens: 812,
        cost_micros: 12_300,
        cost_known: true,
        model: "claude".into(),
        ..Run::default()
    };
    assert_eq!(
        run_card(&run, "done", 0).text(),
        "[done] 3 turns · 1 tool · 12 s · 4.2k in, 812 out · $0.0123 · claude"
    );
    let bare = Run {
        turns: 1,
        started_ms: 1_000,
        ..Run::default()
    };
    assert_eq!(
        run_card(&bare, "unanswered", 3_000).text(),
        "[unanswered] 1 turn · 2.0 s"
    );
}

#[test]
fn an_approval_card_shows_the_exact_command_and_who_asked() {
    let approval = Approval {
        id: "ap-7".into(),
        tool: "bash".into(),
        summary: "rm -rf build && echo \u{1b}[2Jdone".into(),
        rule: "bash \"rm -rf *\"".into(),
        expires_ms: 3_600_000,
        grade: "confined".into(),
        ..Approval::default()
    };
    assert_eq!(
        texts(&approval_card(&approval, 0, &TimeZone::UTC, 60)),
        [
            "? approval ap-7  bash",
            "  │ rm -rf build && echo done",
            "  asked by bash \"rm -rf *\"",
            "  the sandbox is confined",
            "  open until 01:00",
        ]
    );
}

#[test]
fn a_card_is_never_wider_than_the_terminal_and_never_loses_a_character() {
    let command =
        "for f in $(git ls-files '*.rs'); do sed -i s/漢字/kanji/ \"$f\"; done; ".repeat(20);
    let approval = Approval {
        summary: command.clone(),
        ..Approval::default()
    };
    for width in [20, 33, 80, 200] {
        let lines = approval_card(&approval, 0, &TimeZone::UTC, width);
        let mut shown = String::new();
        for line in &lines[1..] {
            assert!(line.width() <= width, "{:?} at {width}", line.text());
            shown.push_str(&line.text().replace("  │ ", ""));
        }
        let solid = |text: &str| {
            text.chars()
                .filter(|c| !c.is_whitespace())
                .collect::<String>()
        };
        assert_eq!(solid(&shown), solid(&command), "at {width}");
    }
}

#[test]
fn a_decision_names_who_where_how_far_and_why() {
    for (state, scope, reason, text) in [
        (
            "approved",
            "once",
            "",
            "ap-7 approved by local:ann in the terminal",
        ),
        (
            "approved",
            "conversation",
            "",
            "ap-7 approved by local:ann in the terminal for the conversation",
        ),
        (
            "denied",
            "",
            "not now",
            "ap-7 denied by local:ann in the terminal: not now",
        ),
    ] {
        let approval = Approval {
            id: "ap-7".into(),
            state: state.into(),
            decided_by: "local:ann".into(),
            decided_via: "terminal".into(),
            scope: scope.into(),
            decision_reason: reason.into(),
            ..Approval::default()
        };
        assert_eq!(decision_line(&approval, 100).text(), text);
    }
}

#[test]
fn unanswered_inputs_say_why() {
    for (reason, detail, text) in [
        (
            "budget",
            "0 of 10 turns are left",
            "unanswered: a budget is used up: 0 of 10 turns are left",
        ),
        ("aborted", "", "unanswered: the run was stopped"),
        ("something_new", "", "unanswered: something_new"),
    ] {
        let submission = Submission {
            reason: reason.into(),
            detail: detail.into(),
            ..Submission::default()
        };
        assert_eq!(unanswered(&submission), text);
    }
}

#[test]
fn the_first_line_tells_project_model_sandbox_policy_and_help() {
    let sandbox = Sandbox {
        reachable: true,
        grade: "isolated".into(),
        ..Sandbox::default()
    };
    let mut status = StatusResponse {
        model: "rehearsal".into(),
        policy_digest: "0123456789abcdef".into(),
        sandbox: Some(sandbox),
        ..StatusResponse::default()
    };
    assert_eq!(
        banner(&status, "demo", true).text(),
        "demo · rehearsal (no language model; set ANTHROPIC_API_KEY for one) · \
         sandbox isolated · policy 01234567 · /help"
    );
    status.model = "claude".into();
    status.sandbox = Some(Sandbox {
        reachable: true,
        grade: "confined".into(),
        missing: vec!["namespaces".into()],
        ..Sandbox::default()
    });
    assert_eq!(
        banner(&status, "demo", false).text(),
        "demo · claude · sandbox confined (without namespaces) · policy 01234567 · /help"
    );
    status.sandbox = None;
    assert!(
        banner(&status, "demo", false)
            .text()
            .contains("sandbox starting")
    );
}
