use super::*;
use crate::terminal::act::When;
use mooring_wire::harness::watch_frame::Frame;
use mooring_wire::harness::{Approval, Call, Change, Child, Chunk, Run, Submission, WatchFrame};

fn session(width: u16) -> Session {
    Session::new(7, Vec::new(), width, 24)
}

fn change(session: &mut Session, change: Change, now_ms: i64) {
    let change = Change {
        conversation: 7,
        ..change
    };
    let frame = WatchFrame {
        sequence: 1,
        session: "s".into(),
        frame: Some(Frame::Change(change)),
    };
    let events = session.view.apply(frame);
    session.events(events, now_ms);
}

fn type_in(session: &mut Session, text: &str) -> Vec<Want> {
    text.chars()
        .flat_map(|c| session.key(Key::Char(c), 10_000))
        .collect()
}

fn enter(session: &mut Session, text: &str) -> Vec<Want> {
    let mut wants = type_in(session, text);
    wants.extend(session.key(Key::Enter, 10_000));
    wants
}

fn texts(lines: &[Line]) -> Vec<String> {
    lines.iter().map(Line::text).collect()
}

fn run(state: &str) -> Option<Run> {
    Some(Run {
        id: 1,
        state: state.into(),
        turns: 1,
        started_ms: 1_000,
        ..Run::default()
    })
}

fn asked() -> Approval {
    Approval {
        id: "ap-1".into(),
        tool: "bash".into(),
        summary: "rm -rf build".into(),
        state: "pending".into(),
        ..Approval::default()
    }
}

#[test]
fn what_is_typed_is_sent_and_commands_are_obeyed() {
    let submit = |text: &str, when| {
        vec![Want::Act(Act::Submit {
            conversation: 7,
            text: text.into(),
            when,
        })]
    };
    for (typed, wants) in [
        ("hello", submit("hello", When::InTurn)),
        ("/steer left", submit("left", When::Now)),
        ("", vec![]),
        ("/new", vec![Want::Go(0)]),
        ("/resume 3", vec![Want::Go(3)]),
        ("/quit", vec![Want::Leave]),
        ("/threads", vec![Want::Act(Act::Threads)]),
        ("yes, do it", submit("yes, do it", When::InTurn)),
    ] {
        assert_eq!(enter(&mut session(80), typed), wants, "{typed}");
    }
}

#[test]
fn ctrl_c_stops_the_run_and_a_second_one_leaves() {
    let mut session = session(80);
    change(
        &mut session,
        Change {
            run: run("tools"),
            ..Change::default()
        },
        0,
    );
    type_in(&mut session, "half a thought");
    assert_eq!(session.key(Key::Interrupt, 0), [Want::Act(Act::Stop(7))]);
    assert_eq!(
        session.editor.submit(),
        "half a thought",
        "what is typed stays"
    );
    assert_eq!(session.key(Key::Interrupt, 0), [Want::Leave]);
}

#[test]
fn without_a_run_ctrl_c_clears_the_input_and_then_asks_again() {
    let mut session = session(80);
    type_in(&mut session, "x");
    assert_eq!(session.key(Key::Interrupt, 0), []);
    assert!(session.editor.is_empty());
    assert_eq!(session.key(Key::Interrupt, 0), []);
    assert!(texts(&session.live(0).0)[0].contains("Ctrl-C again leaves"));
    type_in(&mut session, "x");
    session.key(Key::Delete(To::Left), 0);
    assert_eq!(
        session.key(Key::Interrupt, 0),
        [],
        "another key in between counts"
    );
    assert_eq!(session.key(Key::Interrupt, 0), [Want::Leave]);
    assert_eq!(session.key(Key::End, 0), [Want::Leave]);
}

#[test]
fn y_c_and_n_decide_where_nothing_is_typed() {
    let decide = |decision| {
        vec![Want::Act(Act::Decide {
            id: "ap-1".into(),
            decision,
        })]
    };
    for (key, wants) in [
        ('y', decide(Decision::Approve(slash::Scope::Once))),
        ('c', decide(Decision::Approve(slash::Scope::Conversation))),
        ('n', decide(Decision::Deny(String::new()))),
        ('x', vec![]),
    ] {
        let mut session = session(80);
        change(
            &mut session,
            Change {
                run: run("waiting"),
                approvals: vec![asked()],
                ..Change::default()
            },
            1_000,
        );
        assert_eq!(session.key(Key::Char(key), 1_200), [], "not at once: {key}");
        session.editor.take();
        assert_eq!(session.key(Key::Char(key), 2_000), wants, "{key}");
    }
    let mut session = session(80);
    change(
        &mut session,
        Change {
            run: run("waiting"),
            approvals: vec![asked()],
            ..Change::default()
        },
        0,
    );
    assert_eq!(type_in(&mut session, "why"), [], "a message is a message");
    assert_eq!(
        session.key(Key::Paste("y".into()), 10_000),
        [],
        "a paste never decides"
    );
}

#[test]
fn a_run_is_seen_from_input_to_card() {
    let mut session = session(40);
    let entry = |id, kind: &str, text: &str| Entry {
        id,
        kind: kind.into(),
        text: text.into(),
        ..Entry::default()
    };
    let chunk = |offset, text: &str| {
        use mooring_wire::harness::chunk::Of;
        Chunk {
            of: Of::Answer.into(),
            task: 2,
            offset,
            text: text.into(),
        }
    };
    change(
        &mut session,
        Change {
            run: run("requesting"),
            entries: vec![entry(1, "pi.user", "tidy up")],
            ..Change::default()
        },
        2_000,
    );
    change(
        &mut session,
        Change {
            chunks: vec![chunk(0, "I will remove ")],
            ..Change::default()
        },
        2_000,
    );
    assert_eq!(texts(&session.take_scrolled()), ["› tidy up"]);
    assert_eq!(
        texts(&session.live(3_000).0),
        [
            "I will remove ",
            "◐ thinking · 1 turn · 2.0 s · Ctrl-C s…",
            "› "
        ]
    );

    let call = Call {
        task: 3,
        tool: "bash".into(),
        summary: "rm -rf build".into(),
        state: "waiting-approval".into(),
        ..Call::default()
    };
    change(
        &mut session,
        Change {
            run: run("waiting"),
            entries: vec![entry(2, "pi.assistant", "I will remove it.")],
            calls: vec![call.clone()],
            approvals: vec![asked()],
            ..Change::default()
        },
        3_000,
    );
    assert_eq!(
        texts(&session.take_scrolled()),
        [
            "I will remove it.",
            "? approval ap-1  bash",
            "  │ rm -rf build"
        ]
    );
    assert_eq!(
        texts(&session.live(4_000).0),
        [
            "? bash rm -rf build  waits for approval",
            "? waiting for you · 1 turn · 3.0 s · C…",
            "y once · n no · c in this conversation…",
            "› ",
        ]
    );

    let approved = Approval {
        state: "approved".into(),
        decided_by: "local:ann".into(),
        ..asked()
    };
    change(
        &mut session,
        Change {
            calls: vec![Call {
                state: "done".into(),
                ..call
            }],
            approvals: vec![approved],
            ..Change::default()
        },
        5_000,
    );
    let done = Submission {
        id: 1,
        state: "done".into(),
        ..Submission::default()
    };
    change(
        &mut session,
        Change {
            run: Some(Run {
                state: "idle".into(),
                ..Run::default()
            }),
            entries: vec![entry(4, "pi.assistant", "Done.")],
            submissions: vec![done],
            ..Change::default()
        },
        6_000,
    );
    assert_eq!(
        texts(&session.take_scrolled()),
        [
            "✓ bash rm -rf build",
            "ap-1 approved by local:ann",
            "Done.",
            "[done] 1 turn · 5.0 s",
            ""
        ]
    );
    assert_eq!(texts(&session.live(7_000).0), ["› "]);
}

#[test]
fn nothing_is_wider_or_higher_than_the_screen() {
    for (width, height) in [(1, 1), (10, 4), (20, 6), (41, 12), (200, 50)] {
        let mut session = Session::new(7, Vec::new(), width, height);
        session.key(Key::Paste("many words in 漢字 and rows\n".repeat(30)), 0);
        let calls = (1..20)
            .map(|task| Call {
                task,
                tool: "bash".into(),
                summary: "x ".repeat(90),
                state: "running".into(),
                ..Call::default()
            })
            .collect();
        let inbox = (1..9)
            .map(|id| Submission {
                id,
                state: "queued".into(),
                text: "later ".repeat(30),
                ..Submission::default()
            })
            .collect();
        change(
            &mut session,
            Change {
                run: run("tools"),
                calls,
                submissions: inbox,
                approvals: vec![asked()],
                ..Change::default()
            },
            0,
        );
        session.say(Line::new(Style::Bad, "a long line of its own ".repeat(20)));
        let screen = usize::from(width).max(5);
        let (live, cursor) = session.live(0);
        assert!(
            live.len() <= usize::from(height).max(4),
            "{} rows on {height}",
            live.len()
        );
        assert!(
            cursor.row < live.len() && cursor.column < screen,
            "{cursor:?} on {width}x{height}"
        );
        for line in live.iter().chain(&session.take_scrolled()) {
            assert!(
                line.width() < screen.max(14),
                "{:?} on {width}",
                line.text()
            );
        }
    }
}

#[test]
fn output_of_a_running_command_cannot_steer_the_terminal() {
    use mooring_wire::harness::chunk::Of;
    let mut session = session(80);
    let call = Call {
        task: 3,
        tool: "bash".into(),
        summary: "x".into(),
        state: "running".into(),
        ..Call::default()
    };
    let chunk = Chunk {
        of: Of::Output.into(),
        task: 3,
        offset: 0,
        text: "one\n\u{1b}[2Jtwo\u{7}\nthree\nfour\n".into(),
    };
    change(
        &mut session,
        Change {
            run: run("tools"),
            calls: vec![call],
            chunks: vec![chunk],
            ..Change::default()
        },
        0,
    );
    let live = texts(&session.live(0).0);
    assert_eq!(live[1..4], ["  two", "  three", "  four"]);
}

#[test]
fn a_conversation_that_is_gone_on_with_shows_its_past() {
    use mooring_wire::harness::ConversationView;
    let entry = |id, kind: &str, text: &str| Entry {
        id,
        kind: kind.into(),
        text: text.into(),
        ..Entry::default()
    };
    let mut session = session(80);
    let view = ConversationView {
        conversation: 7,
        entries: vec![
            entry(1, "pi.system", "be good"),
            entry(2, "pi.user", "list"),
            entry(3, "pi.tool-result", "a.txt\nb.txt\n"),
            entry(4, "pi.assistant", "Two files."),
        ],
        approvals: vec![asked()],
        ..ConversationView::default()
    };
    let frame = WatchFrame {
        sequence: 1,
        session: "s".into(),
        frame: Some(Frame::Snapshot(view)),
    };
    let events = session.view.apply(frame);
    session.events(events, 0);
    assert_eq!(
        texts(&session.take_scrolled()),
        [
            "› list",
            "  ↳ a.txt b.txt",
            "Two files.",
            "? approval ap-1  bash",
            "  │ rm -rf build"
        ]
    );
    change(
        &mut session,
        Change {
            entries: vec![entry(5, "pi.tool-result", "more")],
            ..Change::default()
        },
        0,
    );
    assert_eq!(texts(&session.take_scrolled()), Vec::<String>::new());
}

#[test]
fn how_far_a_subagent_is_stands_below_its_call_and_at_the_end_below_the_run() {
    let mut session = session(100);
    let call = |state: &str| Call {
        task: 3,
        tool: "subagent".into(),
        summary: "look for A".into(),
        state: state.into(),
        ..Call::default()
    };
    let child = |state: &str, doing: &str| Child {
        conversation: 9,
        call_task: 3,
        title: "look for A".into(),
        state: state.into(),
        tool_calls: 2,
        tokens: 1_500,
        doing: doing.into(),
        ..Child::default()
    };
    let step = |session: &mut Session, state: &str, calls: &str, child: Child| {
        let moved = Change {
            run: run(state),
            calls: vec![call(calls)],
            children: vec![child],
            ..Change::default()
        };
        change(session, moved, 2_000);
    };
    step(
        &mut session,
        "tools",
        "delegated",
        child("tools", "bash ls"),
    );
    let live = texts(&session.live(2_000).0);
    let at = live.iter().position(|line| line.contains("subagent"));
    let below = &live[at.expect("the call") + 1];
    assert!(
        below.contains("↳ look for A") && below.contains("bash ls"),
        "{live:#?}"
    );
    assert!(below.contains("2 tools · 1.5k tokens"), "{live:#?}");
    session.take_scrolled();
    step(&mut session, "idle", "done", child("done", ""));
    let printed = texts(&session.take_scrolled());
    let card = printed.iter().position(|line| line.starts_with("[done]"));
    let below = &printed[card.expect("the card") + 1];
    assert!(
        below.contains("↳ look for A") && below.contains("done · 2 tools"),
        "{printed:#?}"
    );
}
