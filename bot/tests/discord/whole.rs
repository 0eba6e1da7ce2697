//! The whole path: Discord, the bot, the real harness, its sandbox, and back.

use std::time::Duration;

use mooring_discord_standin::act::Draft;
use mooring_discord_standin::fault::{DispatchFaultKind, FaultKind};
use mooring_discord_standin::world::TEXT;
use serde_json::json;

use crate::office::Office;
use crate::stage::options;

#[tokio::test]
async fn f38_a_message_is_run_in_the_sandbox_and_its_answer_edited_into_the_anchor() {
    let office = Office::ready().await;
    let stage = &office.stage;
    let thread = stage.mention("run echo $((6*7)) | tee answer.txt");
    let answer = office.says(thread, "42").await;
    office.settled().await;
    assert_eq!(
        stage.own(thread).len(),
        1,
        "one anchor: {}",
        office.describe()
    );
    assert!(answer.content.contains("-# done"), "{}", answer.content);
    assert_eq!(office.project.read("answer.txt"), "42\n");
    // In the thread every message of a member is an input, with no mention.
    let next = stage.post(thread, "run echo again");
    let reply = office.says(thread, "`run echo again`: ok").await;
    assert_eq!(reply.reply_to, Some(next), "an anchor replies to its input");
    // Elsewhere nothing happens without a mention.
    stage.post(stage.channel, "run touch nobody-asked");
    let cursor = office
        .row(&format!(
            "SELECT cursor FROM mooring_thread WHERE thread_id = '{thread}'"
        ))
        .await;
    assert!(cursor.parse::<u64>().unwrap() >= thread);
    let anchor = office
        .row(&format!(
            "SELECT anchor FROM mooring_thread WHERE thread_id = '{thread}' AND anchor IS NOT NULL"
        ))
        .await;
    assert_eq!(anchor, reply.id.to_string());
    assert!(!office.project.path("nobody-asked").exists());
    office.check().await;
}

#[tokio::test]
async fn f41_f46_f47_a_card_outlives_both_processes_and_only_who_may_can_decide_it() {
    let mut office = Office::ready().await;
    let thread = office.stage.mention("run touch published-1");
    let card = office.says(thread, "**Approval needed**").await;
    assert!(
        card.content.contains("```\ntouch published-1\n```"),
        "{}",
        card.content
    );
    assert!(card.content.contains("Expires <t:"), "{}", card.content);
    office.stage.kill().await;
    office.kill_harness();
    office.project.start().await;
    office.stage.start().await;
    let stage = &office.stage;
    // Ada asked, and is no approver.
    let click = stage.click(&card, stage.ada, 0);
    let told = stage.followed(click).await;
    assert!(told.contains("needs the role Approver"), "{told}");
    let command = stage.command(thread, stage.ada, "pending", options(&[]));
    let id = stage.shown(command).await;
    let id = id.split('`').nth(1).unwrap().to_owned();
    let command = stage.command(thread, stage.ada, "approve", options(&[("id", &id)]));
    assert!(
        stage
            .shown(command)
            .await
            .contains("needs the role Approver")
    );
    assert!(!office.project.path("published-1").exists());
    let click = stage.click(&card, office.grace, 0);
    assert_eq!(stage.followed(click).await, "Approved: touch published-1");
    office.says(thread, "1 of 1 went well").await;
    office.settled().await;
    assert!(office.project.path("published-1").exists());
    let closed = stage
        .standin
        .look(|world| world.message(thread, card.id).cloned())
        .unwrap();
    assert!(
        closed.components.is_empty(),
        "a settled card has no buttons"
    );
    assert!(
        closed.content.contains("By discord:grace via discord <t:"),
        "{}",
        closed.content
    );
    // A second click is told who decided.
    let click = stage.click(&card, office.grace, 2);
    let told = stage.followed(click).await;
    assert!(
        told.starts_with("Already approved by discord:grace"),
        "{told}"
    );
    office.check().await;
}

#[tokio::test]
async fn a_step_approved_for_the_conversation_is_not_asked_for_again() {
    let office = Office::ready().await;
    let stage = &office.stage;
    let thread = stage.mention("run touch published-1");
    let card = office.says(thread, "**Approval needed**").await;
    let click = stage.click(&card, office.grace, 1);
    assert_eq!(stage.followed(click).await, "Approved: touch published-1");
    office.says(thread, "1 of 1 went well").await;
    stage.post(thread, "run touch published-1\nrun echo second");
    office.says(thread, "2 of 2 went well").await;
    assert_eq!(office.times(thread, "**Approval needed**"), 0);
    assert_eq!(office.times(thread, "**Approved**"), 1);
    office.check().await;
}

#[tokio::test]
async fn a_step_denied_from_the_terminal_closes_the_card_and_the_run_goes_on() {
    let office = Office::ready().await;
    let stage = &office.stage;
    let thread = stage.mention("run touch published-2\nrun echo afterwards");
    let card = office.says(thread, "**Approval needed**").await;
    let listed = office.project.mooring(&["approvals", "--output", "json"]);
    let approval: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    let id = approval["id"].as_str().unwrap().to_owned();
    let denied = office
        .project
        .mooring(&["deny", &id, "--reason", "not today"]);
    assert!(denied.status.success());
    let closed = office.says(thread, "**Denied**").await;
    assert_eq!(closed.id, card.id, "the same message");
    assert!(closed.content.contains("via terminal") && closed.content.contains("not today"));
    office.says(thread, "1 of 2 went well").await;
    assert!(!office.project.path("published-2").exists());
    office.check().await;
}

#[tokio::test]
async fn f04_f05_what_was_said_while_both_were_down_is_answered_oldest_first_and_once() {
    let mut office = Office::built(TEXT, "", "model: \"\"").await;
    office.stage.sweep = 1;
    office.stage.start().await;
    let thread = office.conversation().await;
    office.stage.kill().await;
    office.kill_harness();
    let last = (0..3)
        .map(|n| {
            office
                .stage
                .post(thread, &format!("run echo missed-{n} >> order.txt"))
        })
        .last()
        .unwrap();
    let opened = office.stage.mention("run echo opened-while-down");
    office.stage.launch().await;
    office.project.start().await;
    office.says(thread, "missed-2").await;
    office.says(opened, "opened-while-down").await;
    // F05: further sweeps find nothing that is not in the ledger.
    office
        .row(&format!(
            "SELECT cursor FROM mooring_thread WHERE thread_id = '{thread}'
             AND CAST(cursor AS INTEGER) >= {last}"
        ))
        .await;
    office.settled().await;
    assert_eq!(office.rows("SELECT count(*) FROM submission"), ["5"]);
    assert_eq!(
        office.project.read("order.txt"),
        "missed-0\nmissed-1\nmissed-2\n"
    );
    office.check().await;
}

#[tokio::test]
async fn f10_f14_a_message_whose_harness_dies_while_it_is_submitted_is_one_run() {
    let mut office = Office::ready().await;
    let thread = office.conversation().await;
    for n in 0..4 {
        let post = |office: &Office| {
            office
                .stage
                .post(thread, &format!("run echo line-{n} >> ran.txt"))
        };
        if n % 2 == 0 {
            // Twice on the wire, and the harness dies about when it arrives.
            office
                .stage
                .dispatch_fault("MESSAGE_CREATE", DispatchFaultKind::Duplicate);
            post(&office);
            office.kill_harness();
        } else {
            office.kill_harness();
            post(&office);
            office.stage.kill().await;
            office.stage.launch().await;
        }
        office.project.start().await;
        office.says(thread, &format!("line-{n}")).await;
    }
    office.settled().await;
    assert_eq!(
        office.project.read("ran.txt"),
        "line-0\nline-1\nline-2\nline-3\n"
    );
    assert_eq!(office.rows("SELECT count(*) FROM submission"), ["5"]);
    office.check().await;
}

#[tokio::test]
async fn f20_an_answer_that_the_harness_committed_while_the_bot_was_down_is_delivered() {
    let mut office = Office::ready().await;
    let thread = office
        .stage
        .mention("run while [ ! -e go ]; do sleep 0.05; done; echo meanwhile");
    office.says(thread, "-# ⏳ working").await;
    office.stage.kill().await;
    std::fs::write(office.project.path("go"), "").unwrap();
    office
        .row("SELECT id FROM submission WHERE state = 'done'")
        .await;
    office.stage.start().await;
    office.says(thread, "meanwhile\n```").await;
    office.settled().await;
    assert_eq!(
        office.stage.own(thread).len(),
        1,
        "the same anchor is edited"
    );
    office.check().await;
}

#[tokio::test]
async fn f22_f58_a_thread_keeps_its_conversation_when_both_start_anew_and_threads_do_not_mix() {
    let mut office = Office::ready().await;
    let first = office.conversation().await;
    let second = office.stage.mention("run echo another");
    office.says(second, "`run echo another`: ok").await;
    office.settled().await;
    office.stage.kill().await;
    office.kill_harness();
    office.project.start().await;
    office.stage.start().await;
    for thread in [first, second] {
        office.stage.post(thread, "run echo once-more");
        office.says(thread, "once-more").await;
    }
    office.settled().await;
    let of = |thread: u64| {
        office.rows(&format!(
            "SELECT DISTINCT conversation FROM submission
             WHERE json_extract(data, '$.discord.thread') = '{thread}'"
        ))
    };
    assert_eq!(of(first).len(), 1);
    assert_eq!(of(second).len(), 1);
    assert_ne!(of(first), of(second));
    office.check().await;
}

#[tokio::test]
async fn f25_while_the_harness_is_away_the_message_is_held_and_a_click_is_not_recorded() {
    let office = Office::ready().await;
    let stage = &office.stage;
    let thread = stage.mention("run touch published-3");
    let card = office.says(thread, "**Approval needed**").await;
    office.settled_rows().await;
    office.kill_harness();
    let click = stage.click(&card, office.grace, 0);
    let told = stage.followed(click).await;
    assert!(told.starts_with("Not recorded"), "{told}");
    let message = stage.post(thread, "run echo are-you-there");
    let waking = |world: &mooring_discord_standin::world::World| {
        Some(world.message(thread, message)?.reactions.contains_key("⏳"))
    };
    stage
        .until("the waking sign", |world| waking(world)?.then_some(()))
        .await;
    office.project.start().await;
    stage
        .until("the sign is taken away", |world| {
            (!waking(world)?).then_some(())
        })
        .await;
    let click = stage.click(&card, office.grace, 0);
    assert_eq!(stage.followed(click).await, "Approved: touch published-3");
    office.says(thread, "are-you-there").await;
    office.check().await;
}

#[tokio::test]
async fn f16_f17_what_became_of_a_send_is_found_out_also_after_both_were_killed() {
    for (fault, what) in [
        (FaultKind::CommitThenCut, "sent"),
        (FaultKind::CutBefore, "lost"),
    ] {
        let mut office = Office::ready().await;
        let thread = office.conversation().await;
        let path = format!("/channels/{thread}/messages");
        // Whatever is tried after it fails too, until the bot is dead.
        office.stage.fault("POST", &path, 1, fault);
        for method in ["GET", "POST"] {
            let kind = FaultKind::Status {
                status: 500,
                body: json!({}),
            };
            office.stage.fault(method, &path, 1_000, kind);
        }
        office.stage.post(thread, "run echo next");
        office
            .stage
            .until("the fault was met", |world| {
                let met = world.ledger.writes.iter().any(|write| {
                    write.path == path
                        && matches!(
                            write.fault.as_deref(),
                            Some("commit-then-cut" | "cut-before")
                        )
                });
                met.then_some(())
            })
            .await;
        office.stage.kill().await;
        office.kill_harness();
        office.stage.standin.act(|world| {
            world.clear_faults();
            // Discord has forgotten the nonce.
            world.advance(10 * 60_000);
        });
        office.project.start().await;
        office.stage.start().await;
        office.says(thread, "`run echo next`: ok").await;
        office.settled().await;
        assert_eq!(
            office.stage.own(thread).len(),
            2,
            "{what}: {}",
            office.describe()
        );
        office.check().await;
    }
}

#[tokio::test]
async fn f13_a_paste_that_discord_split_is_one_input_and_moves_the_cursor_over_both() {
    let mut office = Office::built(TEXT, "", "model: \"\"").await;
    office.stage.sweep = 1;
    office.stage.start().await;
    let thread = office.conversation().await;
    let long = format!("run echo {}", "a".repeat(1_950));
    let first = office.stage.post(thread, &long);
    let second = office.stage.post(thread, "run echo the-rest");
    office.says(thread, "2 of 2 went well").await;
    office
        .row(&format!(
            "SELECT cursor FROM mooring_thread WHERE thread_id = '{thread}'
             AND CAST(cursor AS INTEGER) >= {second}"
        ))
        .await;
    let ids = office.rows("SELECT request_id FROM submission ORDER BY id");
    assert_eq!(ids, [thread.to_string(), first.to_string()]);
    office.check().await;
}

#[tokio::test]
async fn a_message_that_was_refused_while_busy_stays_refused() {
    let mut office = Office::built(TEXT, ", whenBusy: Reject", "model: \"\"").await;
    office.stage.sweep = 1;
    office.stage.start().await;
    let stage = &office.stage;
    let thread = stage.mention("run while [ ! -e go ]; do sleep 0.05; done");
    office.says(thread, "-# ⏳ working").await;
    let refused = stage.post(thread, "run touch refused");
    stage
        .until("the sign", |world| {
            world
                .message(thread, refused)?
                .reactions
                .contains_key("✋")
                .then_some(())
        })
        .await;
    std::fs::write(office.project.path("go"), "").unwrap();
    office.settled().await;
    // Sweeps of the history find it again, and it is not answered later.
    office
        .row(&format!(
            "SELECT cursor FROM mooring_thread WHERE thread_id = '{thread}'
             AND CAST(cursor AS INTEGER) >= {refused}"
        ))
        .await;
    stage.post(thread, "run echo and-now");
    office.says(thread, "and-now").await;
    assert!(!office.project.path("refused").exists());
    office.check().await;
}

#[tokio::test]
async fn f50_f53_a_stranger_is_told_once_and_nothing_of_theirs_runs() {
    let office = Office::ready().await;
    let stage = &office.stage;
    let thread = office.conversation().await;
    let (bot, eve) = stage.standin.act(|world| {
        let bot = world.add_user("another bot", true);
        let eve = world.add_user("eve", false);
        for user in [bot, eve] {
            world.add_member(stage.guild, user, &[]);
        }
        (bot, eve)
    });
    stage.post_as(thread, bot, &format!("<@{}> run touch by-bot", stage.me));
    let first = stage.post_as(thread, eve, "run touch by-eve");
    let has_sign = |message: u64| {
        stage.standin.look(|world| {
            world
                .message(thread, message)
                .unwrap()
                .reactions
                .contains_key("🔒")
        })
    };
    stage
        .until("the sign", |world| {
            world
                .message(thread, first)?
                .reactions
                .contains_key("🔒")
                .then_some(())
        })
        .await;
    let second = stage.post_as(thread, eve, "run touch by-eve-again");
    stage.post(thread, "run echo and-i");
    office.says(thread, "and-i").await;
    assert!(!has_sign(second), "told once a day");
    // Neither may they stop another's run.
    let command = stage.command(thread, eve, "stop", options(&[]));
    let told = stage.shown(command).await;
    assert!(told.contains("is no member"), "{told}");
    for name in ["by-bot", "by-eve", "by-eve-again"] {
        assert!(!office.project.path(name).exists(), "{name}");
    }
    office.check().await;
}

#[tokio::test]
async fn f40_a_very_long_answer_of_the_harness_is_five_messages_and_a_file() {
    let lines: String = (0..4_700).map(|n| format!("let a{n} = 1;\n")).collect();
    let answer = format!("```rust\n{lines}```");
    let turns = json!({"announce": false, "turns": [{"text": answer}]});
    let office = Office::scripted(&turns.to_string()).await;
    let thread = office.stage.mention("tell me all");
    office.says(thread, "The whole answer is in the file").await;
    office.settled().await;
    let own = office.stage.own(thread);
    assert_eq!(own.len(), 5, "{}", office.describe());
    assert_eq!(own[4].attachments[0].data, answer);
    office.check().await;
}

#[tokio::test]
async fn f52_whatever_the_agent_says_or_is_refused_notifies_nobody() {
    let mut office = Office::ready().await;
    let stage = &office.stage;
    let role = stage.standin.act(|world| {
        // The bot may: then only `allowed_mentions` keeps it quiet.
        let roles = &mut world.guilds.get_mut(&stage.guild).unwrap().roles;
        roles.get_mut(&stage.guild).unwrap().permissions |= 1 << 17;
        world.add_role(stage.guild, "all hands", 0)
    });
    let owner = stage.standin.look(|world| world.guilds[&stage.guild].owner);
    let loud = format!("@everyone @here <@&{role}> <@{owner}>");
    // In an answer, in a card, in a denial, in a file's name, in an error.
    let thread = stage.mention(&format!("run echo '{loud}'"));
    office.says(thread, "1 of 1 went well").await;
    stage.post(thread, &format!("run touch published '{loud}'"));
    let card = office.says(thread, "**Approval needed**").await;
    let command = stage.command(thread, office.grace, "pending", options(&[]));
    let id = stage
        .shown(command)
        .await
        .split('`')
        .nth(1)
        .unwrap()
        .to_owned();
    let denial = options(&[("id", &id), ("reason", &loud)]);
    let command = stage.command(thread, office.grace, "deny", denial);
    assert!(stage.shown(command).await.starts_with("Denied"));
    let closed = office.says(thread, "**Denied**").await;
    assert_eq!(closed.id, card.id);
    let draft = Draft {
        content: "look".into(),
        attachments: vec![(format!("{loud}.bin"), vec![0u8; 20 << 20].into())],
        ..Draft::default()
    };
    stage
        .standin
        .act(|world| world.write(thread, stage.ada, draft));
    office.says(thread, "-# Not taken").await;
    let command = stage.command(stage.channel, stage.ada, "new", options(&[("text", &loud)]));
    assert!(stage.shown(command).await.starts_with("Started in"));
    office.settled().await;
    office.stage.kill().await;
    office.stage.start().await;
    office.settled().await;
    office.stage.standin.look(|world| {
        for message in world
            .channels
            .values()
            .flat_map(|channel| channel.messages.values())
            .filter(|message| message.author == office.stage.me)
        {
            assert_eq!(message.pings, Default::default(), "{message:?}");
        }
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
    office.check().await;
}

#[tokio::test]
async fn a_long_run_makes_few_edits_and_its_end_is_the_last_word() {
    let steps: String = (0..12)
        .map(|n| format!("run sleep 0.2; echo step-{n}\n"))
        .collect();
    let office = Office::ready().await;
    let begun = std::time::Instant::now();
    let thread = office.stage.mention(&steps);
    let anchor = office.says(thread, "12 of 12 went well").await;
    office.settled().await;
    let edits = office
        .stage
        .standin
        .look(|world| world.message(thread, anchor.id).unwrap().edits);
    // Two dozen changes, and at least a second and a half between two edits.
    let most = begun.elapsed().as_millis() / 1_500 + 2;
    assert!(
        u128::from(edits) <= most,
        "{edits} edits of one anchor, {most} at most: {}",
        office.describe()
    );
    // Nothing that was on its way comes after the end.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(office.times(thread, "12 of 12 went well"), 1);
    office.check().await;
}

#[tokio::test]
async fn f34_a_file_of_a_message_is_in_the_sandbox_under_a_harmless_name() {
    let office = Office::ready().await;
    let stage = &office.stage;
    let thread = office.conversation().await;
    let files = vec![
        ("data.bin".to_owned(), vec![7u8; 600_000].into()),
        (".bashrc".to_owned(), vec![1u8, 0, 255].into()),
    ];
    let draft = Draft {
        content: "run find ~/attachments -type f -printf '%f has %s\\n'".into(),
        attachments: files,
        ..Draft::default()
    };
    let message = stage
        .standin
        .act(|world| world.write(thread, stage.ada, draft));
    let answer = office.says(thread, "data.bin has 600000\n").await;
    assert!(
        answer.content.contains("\nbashrc has 3\n"),
        "{}",
        answer.content
    );
    let told = office
        .rows("SELECT message FROM entry WHERE kind = 'pi.user' ORDER BY id DESC LIMIT 1")
        .concat();
    assert!(
        told.contains("Attached file data.bin (600000 bytes) is in the sandbox:")
            && told.contains(&format!("/attachments/{message}/data.bin")),
        "{told}"
    );
    office.check().await;
}
