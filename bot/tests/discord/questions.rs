//! Questions of the agent, and the conversations that work for a run, in Discord against
//! the real harness.

use mooring_discord_standin::act::{Act, Draft};
use mooring_discord_standin::clock::Id;
use mooring_discord_standin::world::{Message, TEXT};
use serde_json::json;

use crate::office::Office;

/// Another member who may talk, and no more.
fn bob(office: &Office) -> Id {
    let stage = &office.stage;
    stage.standin.act(|world| {
        let roles = world.guilds[&stage.guild].members[&stage.ada].roles.clone();
        let bob = world.add_user("bob", false);
        world.add_member(stage.guild, bob, &roles);
        bob
    })
}

/// A message that replies to another.
fn reply(office: &Office, to: &Message, author: Id, text: &str) -> Id {
    let draft = Draft {
        content: text.into(),
        reply_to: Some(to.id),
        ..Draft::default()
    };
    office
        .stage
        .standin
        .act(|world| world.write(to.channel, author, draft))
}

fn asks(arguments: serde_json::Value) -> String {
    let turns = json!([
        {"calls": [{"tool": "ask_user", "arguments": arguments}]},
        {"text": "On it."},
        {"text": "Also that."},
    ]);
    json!({"announce": false, "turns": turns}).to_string()
}

#[tokio::test]
async fn a_question_outlives_both_processes_and_its_first_answer_wins() {
    let question = json!({"question": "Which branch?", "choices": ["main", "next"]});
    let mut office = Office::scripted(&asks(question)).await;
    let bob = bob(&office);
    let thread = office.stage.mention("go");
    let card = office.says(thread, "**Question**\nWhich branch?").await;
    assert!(
        card.content
            .contains("Who may answer: approvers, discord:ada"),
        "{}",
        card.content
    );
    office.stage.kill().await;
    office.kill_harness();
    office.project.start().await;
    office.stage.start().await;
    let stage = &office.stage;
    // Bob may talk here, but it is not his question.
    let told = stage.followed(stage.click(&card, bob, 0)).await;
    assert!(told.contains("needs the role Approver"), "{told}");
    let told = stage.followed(stage.click(&card, stage.ada, 1)).await;
    assert_eq!(told, "Answered: next");
    let closed = office.says(thread, "**discord:ada:** next").await;
    assert_eq!((closed.id, closed.components.len()), (card.id, 0));
    let told = stage.followed(stage.click(&card, office.grace, 0)).await;
    assert_eq!(told, "Already answered by discord:ada: next");
    office.says(thread, "On it.").await;
    let results = office.rows("SELECT message FROM entry WHERE kind = 'pi.tool-result'");
    assert!(
        results.concat().contains("discord:ada answered: next"),
        "{results:?}"
    );
    // A question of another file that has the same number is not answered.
    let act = Act::Click {
        message: card.id,
        custom_id: "answer:another-file-3:1".into(),
    };
    stage.standin.act(|world| {
        let channel = world.channels.get_mut(&thread).unwrap();
        channel.messages.get_mut(&card.id).unwrap().components = card.components.clone();
    });
    let click = stage
        .standin
        .act(|world| world.interact(stage.me, thread, stage.ada, act));
    let told = stage.followed(click).await;
    assert!(
        told.contains("there is no question another-file-3"),
        "{told}"
    );
    office.check().await;
}

#[tokio::test]
async fn a_reply_to_the_card_answers_in_ones_own_words_and_is_no_input() {
    let long = "Which of these is meant? ".repeat(100);
    let mut office = Office::built(TEXT, "", "model: script.yaml").await;
    let script = asks(json!({"question": long}));
    std::fs::write(office.project.path("script.yaml"), script).unwrap();
    office.stage.sweep = 1;
    office.stage.start().await;
    let bob = bob(&office);
    let thread = office.stage.mention("go");
    let card = office.says(thread, "**Question**").await;
    office.settled_rows().await;
    assert_eq!(card.attachments[0].name, "question.md");
    assert_eq!(card.attachments[0].data, long.trim());
    assert!(card.components.is_empty(), "nothing to choose from");
    let theirs = reply(&office, &card, bob, "that one");
    // Found again by sweeps, once the question is answered too, it is no input.
    let refused = office.says(thread, "This is not taken as an answer").await;
    assert_eq!(refused.reply_to, Some(theirs));
    assert!(refused.content.contains("needs the role Approver"));
    let answer = reply(&office, &card, office.grace, "the second of them");
    let closed = office
        .says(thread, "**discord:grace:** the second of them")
        .await;
    assert_eq!(closed.id, card.id);
    office.says(thread, "On it.").await;
    // Sweeps of the history find the messages again: an answer stays an answer.
    let read = format!(
        "SELECT 1 FROM mooring_thread WHERE thread_id = '{thread}'
         AND CAST(cursor AS INTEGER) >= {answer}"
    );
    office.row(&read).await;
    assert_eq!(office.rows("SELECT count(*) FROM submission"), ["1"]);
    assert_eq!(office.times(thread, "This is not taken as an answer"), 1);
    // Nobody asks any more: what is said to the card now is said to the agent.
    reply(&office, &card, office.stage.ada, "and do that too");
    office.says(thread, "Also that.").await;
    assert_eq!(office.rows("SELECT count(*) FROM submission"), ["2"]);
    office.check().await;
}

#[tokio::test]
async fn what_a_subagent_asks_is_shown_in_the_thread_that_it_works_for() {
    let script = json!({
        "announce": false,
        "conversations": [{"match": "look around", "turns": [
            {"calls": [{"tool": "ask_user", "arguments": {"question": "May I?", "choices": ["yes"]}}]},
            {"calls": [{"tool": "bash", "arguments": {"command": "touch published-9"}}]},
            {"text": "Seen it."},
        ]}],
        "turns": [
            {"calls": [{"tool": "subagent", "arguments": {"task": "look around"}}]},
            {"text": "All done."},
        ],
    });
    let office = Office::scripted(&script.to_string()).await;
    let stage = &office.stage;
    let thread = stage.mention("go");
    let card = office
        .says(thread, "**Question** · for ↳ look around\nMay I?")
        .await;
    // The one who asked for the run may answer.
    let told = stage.followed(stage.click(&card, stage.ada, 0)).await;
    assert_eq!(told, "Answered: yes");
    let closed = office
        .says(thread, "**Answered** · for ↳ look around")
        .await;
    assert_eq!(closed.id, card.id);
    let card = office
        .says(thread, "**Approval needed** · `bash` · for ↳ look around")
        .await;
    let anchor = office
        .says(thread, "↳ look around · waiting · 2 tool calls")
        .await;
    let told = stage.followed(stage.click(&card, office.grace, 0)).await;
    assert_eq!(told, "Approved: touch published-9");
    let closed = office
        .says(thread, "**Approved** · `bash` · for ↳ look around")
        .await;
    assert_eq!(closed.id, card.id);
    let ended = office.says(thread, "All done.").await;
    assert_eq!(ended.id, anchor.id, "the parent's one anchor");
    assert!(office.project.path("published-9").exists());
    office.settled().await;
    let children = office.rows("SELECT name, state, tool_calls FROM mooring_child");
    assert_eq!(children, ["look around|answered|2"]);
    let own = stage.own(thread);
    assert_eq!(
        own.len(),
        3,
        "an anchor and two cards: {}",
        office.describe()
    );
    office.check().await;
}

#[tokio::test]
async fn the_plan_is_shown_in_the_anchor_while_the_run_goes_on() {
    let wait = "while [ ! -e go ]; do sleep 0.05; done";
    let plan = json!({"items": [
        {"text": "read it", "state": "done"}, {"text": "write it", "state": "doing"},
    ]});
    let script = json!({"announce": false, "turns": [
        {"calls": [{"tool": "todo", "arguments": plan}]},
        {"calls": [{"tool": "bash", "arguments": {"command": wait}}]},
        {"text": "Written."},
    ]});
    let office = Office::scripted(&script.to_string()).await;
    let thread = office.stage.mention("go");
    office.says(thread, "-# ☑ read it\n-# ▸ write it").await;
    std::fs::write(office.project.path("go"), "").unwrap();
    let ended = office.says(thread, "Written.").await;
    assert!(!ended.content.contains("write it"), "{}", ended.content);
    office.check().await;
}
