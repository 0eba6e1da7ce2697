//! Outbox rows to messages: each once, whole, and notifying nobody by accident.

use std::time::Duration;

use mooring_discord_standin::fault::FaultKind;
use mooring_discord_standin::world::TEXT;
use serde_json::json;

use crate::stage::Stage;

/// A thread with a run that waits for its answer.
async fn running(stage: &Stage) -> (u64, i64) {
    stage.double.act(|state| state.answers_itself = false);
    let thread = stage.mention("work");
    let input = stage
        .double
        .until("the run", |state| {
            state.input(&thread.to_string()).map(|i| i.id)
        })
        .await;
    stage.answered(thread, "-# ⏳ working").await;
    stage.settled().await;
    (thread, input)
}

#[tokio::test]
async fn f16_a_send_whose_answer_was_cut_is_one_message_with_one_nonce() {
    let stage = Stage::ready().await;
    let thread = stage.conversation().await;
    stage.settled().await;
    stage.fault(
        "POST",
        format!("/channels/{thread}/messages"),
        1,
        FaultKind::CommitThenCut,
    );
    stage.fault(
        "POST",
        format!("/channels/{thread}/messages"),
        1,
        FaultKind::CutBefore,
    );
    stage.post(thread, "next");
    stage.answered(thread, "answer to next").await;
    stage.settled().await;
    assert_eq!(stage.own(thread).len(), 2, "{}", stage.describe());
    stage.check().await;
}

#[tokio::test]
async fn f17_after_a_crash_and_the_nonce_window_a_sent_message_is_found_and_a_lost_one_sent() {
    for (fault, what) in [
        (FaultKind::CommitThenCut, "sent"),
        (FaultKind::CutBefore, "lost"),
    ] {
        let mut stage = Stage::ready().await;
        let thread = stage.conversation().await;
        stage.settled().await;
        let path = format!("/channels/{thread}/messages");
        // Whatever is tried after it fails too, until the bot is dead.
        stage.fault("POST", &path, 1, fault);
        stage.fault(
            "GET",
            &path,
            1_000,
            FaultKind::Status {
                status: 500,
                body: json!({}),
            },
        );
        stage.fault(
            "POST",
            &path,
            1_000,
            FaultKind::Status {
                status: 500,
                body: json!({}),
            },
        );
        stage.post(thread, "next");
        stage
            .until("the fault was met", |world| {
                world
                    .ledger
                    .writes
                    .iter()
                    .any(|write| {
                        write.path == path
                            && matches!(
                                write.fault.as_deref(),
                                Some("commit-then-cut" | "cut-before")
                            )
                    })
                    .then_some(())
            })
            .await;
        stage.kill().await;
        stage.standin.act(|world| {
            world.clear_faults();
            // Discord has forgotten the nonce.
            world.advance(10 * 60_000);
        });
        stage.start().await;
        stage.answered(thread, "answer to next").await;
        stage.settled().await;
        assert_eq!(stage.own(thread).len(), 2, "{what}: {}", stage.describe());
        stage.check().await;
    }
}

#[tokio::test]
async fn f19_f26_a_row_that_is_offered_again_while_it_is_sent_is_sent_once() {
    let stage = Stage::ready().await;
    let thread = stage.conversation().await;
    stage.settled().await;
    stage.fault(
        "POST",
        format!("/channels/{thread}/messages"),
        1,
        FaultKind::Delay { ms: 1_500 },
    );
    stage.post(thread, "slowly");
    stage
        .double
        .until("the row is offered", |state| {
            state
                .rows
                .iter()
                .any(|row| row.kind == "anchor" && row.attempts == 1 && row.closed.is_none())
                .then_some(())
        })
        .await;
    // F26: the stream ends normally and the bot reads it anew.
    stage.double.break_streams();
    stage
        .double
        .until("offered again", |state| {
            state.rows.iter().any(|row| row.attempts >= 2).then_some(())
        })
        .await;
    stage.answered(thread, "answer to slowly").await;
    stage.settled().await;
    assert_eq!(stage.own(thread).len(), 2);
    stage.check().await;
}

#[tokio::test]
async fn f28_the_visible_answer_is_the_stored_answer() {
    let stage = Stage::ready().await;
    let (thread, input) = running(&stage).await;
    let answer = "word ".repeat(212);
    stage.fault(
        "PATCH",
        format!("/channels/{thread}/messages"),
        1,
        FaultKind::Truncate { chars: 241 },
    );
    stage.double.answer(input, Ok(answer.trim()), 5);
    stage
        .until("the whole answer", |world| {
            world
                .messages(thread)
                .any(|m| m.author == stage.me && m.content.starts_with(answer.trim()))
                .then_some(())
        })
        .await;
    stage.check().await;
}

#[tokio::test]
async fn f29_an_anchor_that_takes_no_edit_makes_the_answer_a_message_of_its_own() {
    for (what, status, code) in [
        ("old edits", 429, 30046),
        ("archived", 400, 50083),
        ("deleted", 404, 10008),
        ("form", 400, 50035),
    ] {
        let stage = Stage::ready().await;
        let (thread, input) = running(&stage).await;
        match what {
            "old edits" => stage.standin.act(|world| {
                world.settings.old_edits = 0;
                world.clock.advance(2 * 3_600_000);
            }),
            "archived" => stage
                .standin
                .act(|world| world.set_archived(thread, true, false)),
            "deleted" => {
                let anchor = stage.own(thread)[0].id;
                stage
                    .standin
                    .act(|world| world.remove_message(thread, anchor));
            }
            _ => {
                let body = json!({"code": 50035, "message": "Invalid Form Body"});
                stage.fault(
                    "PATCH",
                    format!("/channels/{thread}/"),
                    1,
                    FaultKind::Status { status: 400, body },
                );
            }
        }
        stage.double.answer(input, Ok("the answer itself"), 5);
        let sent = stage.answered(thread, "the answer itself").await;
        assert_eq!(sent.edits, 0, "{what}: a new message");
        assert_eq!(
            sent.pings.users,
            [stage.ada],
            "{what}: it notifies the asker, and nobody else"
        );
        let refused = stage.standin.look(|world| {
            world.ledger.writes.iter().any(|w| {
                w.method == "PATCH"
                    && w.status == status
                    && (w.code == Some(code) || what == "form")
            })
        });
        assert!(refused, "{what}: {}", stage.describe());
        stage.check().await;
    }
}

#[tokio::test]
async fn a_file_that_is_too_large_is_left_out_and_that_is_said() {
    let stage = Stage::ready().await;
    stage
        .standin
        .act(|world| world.settings.upload_bytes = 20_000);
    let (thread, input) = running(&stage).await;
    let words: String = (0..9_000).map(|n| format!("word{n} ")).collect();
    stage.double.answer(input, Ok(words.trim()), 5);
    stage.settled().await;
    let own = stage.own(thread);
    assert_eq!(own.len(), 5);
    assert!(
        own[4].attachments.is_empty() && own[4].content.contains("too large"),
        "{}",
        own[4].content
    );
    stage.check().await;
}

#[tokio::test]
async fn f52_content_that_names_everybody_notifies_nobody() {
    let stage = Stage::ready().await;
    let role = stage
        .standin
        .act(|world| world.add_role(stage.guild, "all hands", 0));
    // The bot may: then only `allowed_mentions` keeps it quiet.
    stage.standin.act(|world| {
        let roles = &mut world.guilds.get_mut(&stage.guild).unwrap().roles;
        roles.get_mut(&stage.guild).unwrap().permissions |= 1 << 17;
    });
    let (thread, input) = running(&stage).await;
    let owner = stage.standin.look(|world| world.guilds[&stage.guild].owner);
    let loud = format!("@everyone @here <@&{role}> <@{owner}> <@!{owner}>");
    stage.double.ask("abc-1", input, &loud);
    stage.answered(thread, "**Approval needed**").await;
    stage.double.decide("abc-1", true, &loud, "kubernetes");
    stage.answered(thread, "**Approved**").await;
    let long: String = (0..900).map(|n| format!("\nline {n}")).collect();
    stage.double.answer(input, Ok(&(loud.clone() + &long)), 5);
    stage.answered(thread, "@everyone @here").await;
    let next = stage.post(thread, "again");
    let input = stage
        .double
        .until("the run", |state| {
            state.input(&next.to_string()).map(|i| i.id)
        })
        .await;
    stage
        .double
        .answer(input, Err(&format!("error: {loud}")), 5);
    stage.answered(thread, "No answer: error").await;
    stage.settled().await;
    stage.standin.look(|world| {
        for message in world
            .channels
            .values()
            .flat_map(|channel| channel.messages.values())
        {
            if message.author == stage.me {
                assert_eq!(message.pings, Default::default(), "{message:?}");
            }
        }
        // Every create and every edit says whom it may notify.
        for write in &world.ledger.writes {
            if matches!(write.method.as_str(), "POST" | "PATCH")
                && write.body.get("content").is_some()
            {
                assert!(
                    write.body["allowed_mentions"]["parse"] == json!([]),
                    "{write:?}"
                );
            }
        }
    });
    stage.check().await;
}

#[tokio::test]
async fn the_end_of_a_long_run_notifies_the_asker_once() {
    let stage = Stage::ready().await;
    let (thread, input) = running(&stage).await;
    stage.double.answer(input, Ok("finally"), 180_000);
    stage.answered(thread, "finally").await;
    let note = stage.answered(thread, "-# <@").await;
    assert_eq!(note.pings.users, [stage.ada]);
    stage.settled().await;
    let next = stage.post(thread, "again");
    let input = stage
        .double
        .until("the run", |state| {
            state.input(&next.to_string()).map(|i| i.id)
        })
        .await;
    stage.double.answer(input, Ok("quick"), 5_000);
    stage.answered(thread, "quick").await;
    stage.settled().await;
    assert_eq!(stage.own(thread).len(), 3, "a short run adds no message");
    stage.check().await;
}

#[tokio::test]
async fn an_answer_may_be_a_message_of_its_own_by_setting() {
    let mut stage = Stage::set(TEXT, ", answer: Post").await;
    stage.start().await;
    let thread = stage.mention("hello");
    let answer = stage.answered(thread, "answer to hello").await;
    assert_eq!(answer.edits, 0);
    stage.settled().await;
    let own = stage.own(thread);
    assert_eq!(own.len(), 2);
    assert!(own[0].content.starts_with("-# done"), "{}", own[0].content);
    stage.check().await;
}

#[tokio::test]
async fn with_discords_limits_on_the_bot_waits_and_everything_arrives() {
    let stage = Stage::ready().await;
    stage.standin.act(|world| world.settings.limits = true);
    let thread = stage.conversation().await;
    for n in 0..8 {
        stage.post(thread, &format!("number {n}"));
    }
    for n in 0..8 {
        stage
            .answered(thread, &format!("answer to number {n}"))
            .await;
    }
    // The headers are obeyed before a limit is hit; another bot with the same token
    // may make it happen all the same, and then the answer is obeyed.
    let limited = stage.standin.look(|world| world.ledger.limited());
    assert!(limited <= 2, "{limited} answers of 429");
    stage.check().await;
}

#[tokio::test]
async fn a_429_is_obeyed_and_nothing_is_sent_twice() {
    let stage = Stage::ready().await;
    let thread = stage.conversation().await;
    stage.settled().await;
    let body =
        json!({"message": "You are being rate limited.", "retry_after": 1.2, "global": true});
    stage.fault(
        "POST",
        format!("/channels/{thread}/messages"),
        1,
        FaultKind::Status { status: 429, body },
    );
    let before = std::time::Instant::now();
    stage.post(thread, "next");
    stage.answered(thread, "answer to next").await;
    assert!(before.elapsed() >= Duration::from_millis(1_200));
    stage.check().await;
}

#[tokio::test]
async fn a_thread_that_was_deleted_ends_its_rows_and_the_others_go_on() {
    let stage = Stage::ready().await;
    let (thread, input) = running(&stage).await;
    stage.standin.act(|world| world.remove_channel(thread));
    stage
        .double
        .until("the row says so", |state| {
            state.threads[&thread.to_string()].deleted.then_some(())
        })
        .await;
    stage.double.answer(input, Ok("too late"), 5);
    stage
        .double
        .until("it is undeliverable", |state| {
            let row = state
                .rows
                .iter()
                .find(|row| row.key.ends_with("anchor-end"))?;
            row.closed
                .as_ref()
                .filter(|why| why.contains("gone"))
                .cloned()
        })
        .await;
    stage.double.act(|state| state.answers_itself = true);
    stage.conversation().await;
    stage.check().await;
}
