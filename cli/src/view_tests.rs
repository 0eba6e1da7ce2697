#![allow(clippy::unwrap_used)]

use super::*;

fn change(sequence: u64, change: Change) -> WatchFrame {
    WatchFrame {
        sequence,
        session: "s".into(),
        frame: Some(Frame::Change(change)),
    }
}

fn snapshot(sequence: u64, view: ConversationView) -> WatchFrame {
    WatchFrame {
        sequence,
        session: "s".into(),
        frame: Some(Frame::Snapshot(view)),
    }
}

fn run(state: &str) -> Run {
    Run {
        id: 1,
        state: state.into(),
        turns: 2,
        ..Run::default()
    }
}

fn chunk(of: Of, task: i64, offset: u64, text: &str) -> Chunk {
    Chunk {
        of: of.into(),
        task,
        offset,
        text: text.into(),
    }
}

fn answers(events: &[Event]) -> Vec<&str> {
    events
        .iter()
        .filter_map(|event| match event {
            Event::Answer(text) => Some(text.as_str()),
            Event::AnswerVoid => Some("(void)"),
            _ => None,
        })
        .collect()
}

fn chunks(view: &mut View, chunks: Vec<Chunk>) -> Vec<Event> {
    view.apply(change(
        1,
        Change {
            conversation: 7,
            chunks,
            ..Change::default()
        },
    ))
}

#[test]
fn chunks_that_come_twice_are_shown_once_and_other_attempts_are_told() {
    for (name, given, expected) in [
        (
            "in order",
            vec![(1, 0, "ab"), (1, 2, "cd")],
            vec!["ab", "cd"],
        ),
        (
            "again from the start",
            vec![(1, 0, "ab"), (1, 0, "abcd")],
            vec!["ab", "cd"],
        ),
        (
            "again a part",
            vec![(1, 0, "abcd"), (1, 2, "cd")],
            vec!["abcd"],
        ),
        (
            "another attempt",
            vec![(1, 0, "ab"), (1, 0, "xy")],
            vec!["ab", "(void)", "xy"],
        ),
        (
            "another task",
            vec![(1, 0, "ab"), (2, 0, "ab")],
            vec!["ab", "(void)", "ab"],
        ),
        ("a gap", vec![(1, 0, "ab"), (1, 9, "z")], vec!["ab", "z"]),
        (
            "many bytes a character",
            vec![(1, 0, "ä"), (1, 0, "äö"), (1, 4, "ü")],
            vec!["ä", "ö", "ü"],
        ),
    ] {
        let mut view = View::new(7);
        let mut seen = Vec::new();
        for (task, offset, text) in given {
            let events = chunks(&mut view, vec![chunk(Of::Answer, task, offset, text)]);
            seen.extend(answers(&events).into_iter().map(String::from));
        }
        assert_eq!(seen, expected, "{name}");
    }
}

#[test]
fn a_snapshot_after_a_loss_brings_only_what_is_new() {
    let entry = |id, kind: &str| Entry {
        id,
        kind: kind.into(),
        ..Entry::default()
    };
    let mut view = View::new(7);
    let first = ConversationView {
        conversation: 7,
        entries: vec![entry(1, "pi.user")],
        run: Some(run("requesting")),
        chunks: vec![chunk(Of::Answer, 5, 0, "hel")],
        ..ConversationView::default()
    };
    let events = view.apply(snapshot(3, first.clone()));
    assert_eq!(events.len(), 3, "{events:?}");

    let mut again = first;
    again.chunks = vec![chunk(Of::Answer, 5, 0, "hello")];
    assert_eq!(
        view.apply(snapshot(4, again.clone())),
        [Event::Answer("lo".into())]
    );

    again.chunks.clear();
    again.entries.push(entry(2, "pi.assistant"));
    again.run = Some(run("idle"));
    let events = view.apply(snapshot(9, again));
    assert_eq!(
        events,
        [
            Event::Entry(entry(2, "pi.assistant")),
            Event::RunEnded(run("requesting"))
        ]
    );
    assert_eq!((view.sequence, view.session.as_str()), (9, "s"));
}

#[test]
fn other_conversations_are_not_shown() {
    let mut view = View::new(7);
    let other = Change {
        conversation: 8,
        run: Some(run("tools")),
        ..Change::default()
    };
    assert_eq!(view.apply(change(1, other)), []);
    assert!(!view.is_busy());
}

#[test]
fn a_run_that_begins_and_ends_in_one_change_is_seen_whole() {
    let mut view = View::new(7);
    let begin = Change {
        conversation: 7,
        run: Some(run("requesting")),
        ..Change::default()
    };
    assert_eq!(
        view.apply(change(1, begin)),
        [Event::RunBegan(run("requesting"))]
    );
    let next = Run {
        id: 2,
        ..run("requesting")
    };
    let turn = Change {
        conversation: 7,
        run: Some(next.clone()),
        ..Change::default()
    };
    let events = view.apply(change(2, turn));
    assert_eq!(
        events,
        [Event::RunEnded(run("requesting")), Event::RunBegan(next)]
    );
}

#[test]
fn a_run_waits_for_people_when_nothing_else_is_at_work() {
    let call = |task, state: &str| Call {
        task,
        state: state.into(),
        ..Call::default()
    };
    let asked = Approval {
        id: "a".into(),
        state: "pending".into(),
        ..Approval::default()
    };
    for (run_state, calls, approvals, waits) in [
        (
            "waiting",
            vec![call(1, "waiting-approval")],
            vec![asked.clone()],
            true,
        ),
        (
            "tools",
            vec![call(1, "waiting-approval"), call(2, "done")],
            vec![asked.clone()],
            true,
        ),
        (
            "tools",
            vec![call(1, "waiting-approval"), call(2, "running")],
            vec![asked.clone()],
            false,
        ),
        ("waiting", vec![], vec![], false),
        ("requesting", vec![], vec![asked.clone()], false),
    ] {
        let mut view = View::new(7);
        view.apply(change(
            1,
            Change {
                conversation: 7,
                run: Some(run(run_state)),
                calls: calls.clone(),
                approvals,
                ..Change::default()
            },
        ));
        assert_eq!(view.waits_for_people(), waits, "{run_state} {calls:?}");
    }
}

#[test]
fn an_approval_is_asked_once_and_decided_once() {
    let approval = |state: &str| Approval {
        id: "a".into(),
        state: state.into(),
        ..Approval::default()
    };
    let mut view = View::new(7);
    let mut apply = |state: &str| {
        let approvals = vec![approval(state)];
        view.apply(change(
            1,
            Change {
                conversation: 7,
                approvals,
                ..Change::default()
            },
        ))
    };
    assert_eq!(apply("pending"), [Event::Asked(approval("pending"))]);
    assert_eq!(apply("pending"), []);
    assert_eq!(apply("approved"), [Event::Decided(approval("approved"))]);
    assert_eq!(apply("approved"), []);
}

#[test]
fn output_is_followed_in_bounded_memory() {
    let mut view = View::new(7);
    let mut offset = 0;
    for _ in 0..1000 {
        let text = "0123456789äöü\n".repeat(10);
        let length = text.len() as u64;
        chunks(&mut view, vec![chunk(Of::Output, 3, offset, &text)]);
        offset += length;
        assert!(view.output(3).0.len() <= OUTPUT_TAIL);
    }
    let (tail, before) = view.output(3);
    assert!(tail.ends_with("0123456789äöü\n"));
    assert_eq!(before + tail.len() as u64, offset);
}

#[test]
fn settled_inputs_leave_the_inbox() {
    let mut view = View::new(7);
    let mut apply = |state: &str| {
        let submission = Submission {
            id: 4,
            state: state.into(),
            ..Submission::default()
        };
        view.apply(change(
            1,
            Change {
                conversation: 7,
                submissions: vec![submission],
                ..Change::default()
            },
        ));
        (view.queued().count(), view.inbox.len())
    };
    assert_eq!(apply("queued"), (1, 1));
    assert_eq!(apply("placed"), (0, 1));
    assert_eq!(apply("done"), (0, 0));
}

#[test]
fn a_run_that_follows_another_in_one_commit_comes_after_its_end() {
    let entry = |id, kind: &str| Entry {
        id,
        kind: kind.into(),
        ..Entry::default()
    };
    let submission = |id, state: &str| Submission {
        id,
        state: state.into(),
        ..Submission::default()
    };
    let mut view = View::new(7);
    let begin = Change {
        conversation: 7,
        run: Some(run("requesting")),
        ..Change::default()
    };
    view.apply(change(1, begin));
    let next = Run {
        id: 2,
        turns: 0,
        ..run("preparing")
    };
    let last = Run {
        turns: 5,
        ..run("ending")
    };
    let events = view.apply(change(
        2,
        Change {
            conversation: 7,
            entries: vec![entry(1, "pi.assistant"), entry(2, "pi.user")],
            submissions: vec![submission(1, "done"), submission(2, "placed")],
            run: Some(next.clone()),
            ended: Some(last.clone()),
            ..Change::default()
        },
    ));
    assert_eq!(
        events,
        [
            Event::Entry(entry(1, "pi.assistant")),
            Event::Submission(submission(1, "done")),
            Event::RunEnded(last),
            Event::RunBegan(next),
            Event::Entry(entry(2, "pi.user")),
            Event::Submission(submission(2, "placed")),
        ]
    );
}

#[test]
fn what_works_for_a_run_is_shown_with_it_and_in_the_background_after_it() {
    let mut view = View::new(7);
    let child = |conversation, call_task, depth, state: &str| Child {
        conversation,
        call_task,
        depth,
        state: state.into(),
        ..Child::default()
    };
    let mut step = |run: Run, children: Vec<Child>| {
        let moved = Change {
            conversation: 7,
            run: Some(run),
            children,
            ..Change::default()
        };
        let frame = change(1, moved);
        let events = view.apply(frame);
        let worked = events.iter().filter_map(|event| match event {
            Event::Worked(child) => Some(child.conversation),
            _ => None,
        });
        let worked: Vec<_> = worked.collect();
        let of = view.children_of(3);
        let of: Vec<_> = of.iter().map(|child| child.conversation).collect();
        (worked, of)
    };
    let both = vec![
        child(9, 3, 1, "tools"),
        child(12, 3, 0, "tools"),
        child(8, 4, 0, "tools"),
    ];
    assert_eq!(step(run("tools"), both), (vec![], vec![12, 9]));
    let ended = vec![child(9, 3, 1, "done"), child(12, 3, 0, "unanswered")];
    assert_eq!(step(run("tools"), ended), (vec![], vec![12, 9]));
    assert_eq!(step(run("idle"), vec![]), (vec![8, 9, 12], vec![]));
    assert_eq!(view.children_of(4).len(), 1, "it works in the background");
}
