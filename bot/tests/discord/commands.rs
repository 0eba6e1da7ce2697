//! Slash commands against the real harness.

use mooring_discord_standin::act::Act;
use mooring_discord_standin::world::TEXT;
use serde_json::json;

use crate::office::Office;
use crate::stage::options;

#[tokio::test]
async fn every_command_is_answered_by_the_harness() {
    let mut office = Office::built(TEXT, ", whenBusy: Queue", "model: \"\"").await;
    office.stage.start().await;
    let stage = &office.stage;
    let thread = stage.mention("run touch published-4");
    let card = office.says(thread, "**Approval needed**").await;
    stage.post(thread, "run echo and-then");
    let waits = office
        .row("SELECT id FROM submission WHERE state = 'queued'")
        .await;
    let shows = async |name: &str, given: serde_json::Value| {
        let command = stage.command(thread, stage.ada, name, given);
        stage.shown(command).await
    };
    let listed = shows("pending", options(&[])).await;
    assert!(listed.contains("bash `touch published-4`"), "{listed}");
    let id = listed.split('`').nth(1).unwrap().to_owned();
    let act = Act::Complete {
        name: "approve".into(),
        options: json!([{"name": "id", "type": 3, "value": "PUBLISH", "focused": true}]),
    };
    let typed = stage
        .standin
        .act(|world| world.interact(stage.me, thread, stage.ada, act));
    let choices = stage
        .until("the choices", |world| {
            let callback = world.interactions[&typed].callback.as_ref()?;
            Some(callback["data"]["choices"].clone())
        })
        .await;
    assert_eq!(choices[0]["value"], id, "{choices}");
    for (name, given, expected) in [
        ("help", options(&[]), "`/stop`".to_owned()),
        ("status", options(&[]), "1 in the queue".into()),
        ("usage", options(&[]), "This conversation:".into()),
        ("queue", options(&[]), format!("{waits}. run echo and-then")),
        (
            "queue",
            options(&[("withdraw", &waits)]),
            "Withdrawn.".into(),
        ),
        ("queue", options(&[]), "Nothing waits.".into()),
        (
            "deny",
            options(&[("id", "nonsense")]),
            "there is no approval".into(),
        ),
        ("stop", options(&[]), "Stopped.".into()),
        ("stop", options(&[]), "Nothing is running here.".into()),
    ] {
        let shown = shows(name, given).await;
        assert!(shown.contains(&expected), "/{name}: {shown}");
    }
    // The card of a run that was stopped is closed.
    stage
        .until("the card is closed", |world| {
            let card = world.message(thread, card.id)?;
            card.components.is_empty().then_some(())
        })
        .await;
    let command = stage.command(
        stage.channel,
        stage.ada,
        "new",
        options(&[("text", "run echo start-here")]),
    );
    let shown = stage.shown(command).await;
    let opened: u64 = shown
        .trim_start_matches("Started in <#")
        .trim_end_matches(">.")
        .parse()
        .unwrap();
    office.says(opened, "start-here\n```").await;
    office.check().await;
}

#[tokio::test]
async fn a_fork_a_side_chat_and_a_resumed_conversation_have_threads_of_their_own() {
    let office = Office::ready().await;
    let stage = &office.stage;
    let thread = office.conversation().await;
    let run = async |channel: u64, user: u64, name: &str, given: serde_json::Value| {
        let command = stage.command(channel, user, name, given);
        stage.shown(command).await
    };
    let opened = |shown: &str| -> u64 {
        let id = shown.split("<#").nth(1).unwrap().split('>').next().unwrap();
        id.parse().unwrap()
    };
    // What it answers stays in its own thread.
    let shown = run(
        thread,
        stage.ada,
        "fork",
        options(&[("title", "try another way")]),
    )
    .await;
    let fork = opened(&shown);
    assert!(shown.starts_with("Conversation 2 is in"), "{shown}");
    stage.post(fork, "run echo in-the-fork");
    office.says(fork, "`run echo in-the-fork`: ok").await;
    let shown = run(
        thread,
        stage.ada,
        "btw",
        options(&[("text", "run echo aside")]),
    )
    .await;
    office.says(opened(&shown), "`run echo aside`: ok").await;
    stage.post(thread, "run echo in-the-first");
    office.says(thread, "`run echo in-the-first`: ok").await;
    assert_eq!(
        office.times(thread, "aside") + office.times(thread, "in-the-fork"),
        0
    );
    // Maintainers move conversations; the old thread says where to.
    let denied = run(stage.channel, stage.ada, "resume", options(&[("id", "1")])).await;
    assert!(denied.contains("needs the role Maintainer"), "{denied}");
    let taken = run(fork, office.grace, "resume", options(&[("id", "1")])).await;
    assert!(taken.contains("This thread has conversation 2"), "{taken}");
    let shown = run(
        stage.channel,
        office.grace,
        "resume",
        options(&[("id", "1")]),
    )
    .await;
    let moved = opened(&shown);
    office.says(thread, &format!("goes on in <#{moved}>")).await;
    office.says(moved, "Conversation 1 goes on here").await;
    stage.post(moved, "run echo moved-along");
    office.says(moved, "`run echo moved-along`: ok").await;
    let of = |thread: u64| {
        office.rows(&format!(
            "SELECT DISTINCT conversation FROM submission
             WHERE json_extract(data, '$.discord.thread') = '{thread}'"
        ))
    };
    assert_eq!(
        (of(thread), of(moved)),
        (vec!["1".to_owned()], vec!["1".to_owned()])
    );
    // A deleted thread's conversation comes back by its number.
    stage.standin.act(|world| world.remove_channel(moved));
    office
        .row(&format!(
            "SELECT 1 FROM mooring_thread WHERE thread_id = '{moved}' AND deleted = 1"
        ))
        .await;
    let again = stage.standin.act(|world| {
        world.open_thread(
            stage.channel,
            None,
            stage.ada,
            "a thread of people",
            11,
            10_080,
        )
    });
    let shown = run(again, office.grace, "resume", options(&[("id", "1")])).await;
    assert_eq!(shown, format!("Conversation 1 goes on in <#{again}>."));
    stage.post(again, "run echo back-again");
    office.says(again, "`run echo back-again`: ok").await;
    office.check().await;
}

#[tokio::test]
async fn a_reset_by_a_maintainer_lets_the_conversation_begin_anew() {
    let office = Office::ready().await;
    let stage = &office.stage;
    let thread = office.conversation().await;
    let run = async |user: u64| {
        let given = options(&[("brief", "the tests are green")]);
        stage
            .shown(stage.command(thread, user, "reset", given))
            .await
    };
    let denied = run(stage.ada).await;
    assert!(denied.contains("needs the role Maintainer"), "{denied}");
    let done = run(office.grace).await;
    assert!(done.contains("begins anew"), "{done}");
    office
        .row("SELECT 1 FROM entry WHERE kind = 'pi.reset'")
        .await;
    stage.post(thread, "run echo afterwards");
    office.says(thread, "`run echo afterwards`: ok").await;
    office.check().await;
}

#[tokio::test]
async fn what_a_conversation_changed_is_shown_as_a_diff_and_a_long_one_as_a_file() {
    let lines: String = (0..400).map(|n| format!("line {n}\n")).collect();
    let write = |path: &str, content: &str| json!({"tool": "write", "arguments": {"path": path, "content": content}});
    let script = json!({"announce": false, "turns": [
        {"calls": [write("notes.txt", "remember\n")]}, {"text": "Noted."},
        {"calls": [write("long.txt", &lines)]}, {"text": "Written."},
    ]});
    let office = Office::scripted(&script.to_string()).await;
    let stage = &office.stage;
    let thread = stage.mention("note it");
    office.says(thread, "Noted.").await;
    let shown = stage
        .shown(stage.command(thread, stage.ada, "diff", options(&[])))
        .await;
    assert!(
        shown.starts_with("1 file differs.\n```diff\n") && shown.contains("\n+remember\n```"),
        "{shown}"
    );
    stage.post(thread, "write it");
    office.says(thread, "Written.").await;
    let command = stage.command(thread, stage.ada, "diff", options(&[]));
    let shown = stage.shown(command).await;
    assert_eq!(shown, "2 files differ; the diff is in the file.");
    let file = stage.standin.look(|world| {
        world.interactions[&command].shown.clone().unwrap()["attachments"][0].clone()
    });
    assert_eq!(file["filename"], "diff.patch");
    let text = file["text"].as_str().unwrap();
    assert!(
        text.contains("+line 399\n") && text.contains("+remember\n"),
        "{text}"
    );
    // Who is no member sees nothing of it, whatever they look at.
    let eve = stage.standin.act(|world| {
        let eve = world.add_user("eve", false);
        world.add_member(stage.guild, eve, &[]);
        eve
    });
    for name in [
        "diff", "status", "usage", "queue", "pending", "policy", "model",
    ] {
        let given = options(&[("call", "ls")]);
        let shown = stage.shown(stage.command(thread, eve, name, given)).await;
        assert!(
            shown.contains("is no member of this workspace"),
            "/{name}: {shown}"
        );
    }
    office.check().await;
}

#[tokio::test]
async fn the_model_is_changed_by_a_maintainer_and_a_call_is_explained_to_every_member() {
    let models = "model: \"\"}, {name: second, provider: rehearsal, model: \"\"";
    let mut office = Office::built(TEXT, "", models).await;
    office.stage.start().await;
    let stage = &office.stage;
    let thread = office.conversation().await;
    let run = async |user: u64, name: &str, given: &[(&str, &str)]| {
        let command = stage.command(thread, user, name, options(given));
        stage.shown(command).await
    };
    let (ada, grace) = (stage.ada, office.grace);
    for (user, name, given, expected) in [
        (
            ada,
            "model",
            &[][..],
            "has the model **main**. The workspace has: main, second.",
        ),
        (
            ada,
            "model",
            &[("name", "second")],
            "needs the role Maintainer",
        ),
        (
            grace,
            "model",
            &[("name", "third")],
            "the Workspace has no model \"third\"",
        ),
        (grace, "model", &[("name", "second")], "goes to **second**"),
        (ada, "compact", &[], "needs the role Maintainer"),
        (
            grace,
            "compact",
            &[("instructions", "briefly")],
            "A summary is being written",
        ),
        (ada, "policy", &[("call", "echo hi")], "**It would run.**"),
        (
            ada,
            "policy",
            &[("call", "touch published-1")],
            "**Somebody would be asked.**",
        ),
        (
            ada,
            "policy",
            &[("call", "src/a.rs"), ("tool", "edit")],
            "`edit`\n```\nsrc/a.rs",
        ),
        (
            ada,
            "policy",
            &[("call", "x"), ("tool", "todo")],
            "are no JSON",
        ),
    ] {
        let shown = run(user, name, given).await;
        assert!(shown.contains(expected), "/{name} {given:?}: {shown}");
    }
    stage.post(thread, "run echo with-the-second");
    office.says(thread, "`run echo with-the-second`: ok").await;
    let used = "SELECT DISTINCT model FROM attempt ORDER BY started_at DESC LIMIT 1";
    assert_eq!(office.rows(used), ["second"]);
    // A grant that covers a call is told.
    stage.post(thread, "run touch published-1");
    let card = office.says(thread, "**Approval needed**").await;
    let told = stage.followed(stage.click(&card, grace, 1)).await;
    assert_eq!(told, "Approved: touch published-1");
    office.says(thread, "`run touch published-1`: ok").await;
    let shown = run(ada, "policy", &[("call", "touch published-1")]).await;
    assert!(shown.contains("somebody has granted it"), "{shown}");
    office.check().await;
}

#[tokio::test]
async fn a_conversation_is_exported_as_a_file_for_a_maintainer_and_the_way_out_is_told_of_a_large_one()
 {
    let office = Office::ready().await;
    let stage = &office.stage;
    let thread = office.conversation().await;
    let run = async |channel: u64, user: u64| {
        let command = stage.command(channel, user, "export", options(&[]));
        (command, stage.shown(command).await)
    };
    let (_, denied) = run(thread, stage.ada).await;
    assert!(denied.contains("needs the role Maintainer"), "{denied}");
    let (_, nowhere) = run(stage.channel, office.grace).await;
    assert!(nowhere.contains("no conversation here"), "{nowhere}");
    let before = stage.own(thread).len();
    let (command, told) = run(thread, office.grace).await;
    assert!(
        told.contains("mooring import conversation-1.jsonl"),
        "{told}"
    );
    let shown = stage
        .standin
        .look(|world| world.interactions[&command].shown.clone().unwrap());
    let file = &shown["attachments"][0];
    assert_eq!(file["filename"], "conversation-1.jsonl");
    // Only who asked sees it.
    assert_eq!(shown["flags"], 64, "{shown}");
    assert_eq!(stage.own(thread).len(), before);
    // What was given out is whole: its last line tells how many came before.
    let text = file["text"].as_str().unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let end: serde_json::Value = serde_json::from_str(lines.last().unwrap()).unwrap();
    assert_eq!(end["row"]["lines"], lines.len() - 1, "{text}");
    assert!(text.contains("run echo"), "{text}");
    // A run that is going keeps it where it is.
    stage.post(thread, "run touch published-1");
    office.says(thread, "**Approval needed**").await;
    let (_, busy) = run(thread, office.grace).await;
    assert!(busy.contains("`/stop` ends that"), "{busy}");
    let command = stage.command(thread, office.grace, "stop", options(&[]));
    assert_eq!(stage.shown(command).await, "Stopped.");
    office.settled().await;
    stage
        .standin
        .act(|world| world.settings.upload_bytes = 1_000);
    let (command, told) = run(thread, office.grace).await;
    assert!(
        told.contains("larger than the 1000 bytes")
            && told.contains("`mooring export 1 -o conversation-1.jsonl`"),
        "{told}"
    );
    let shown = stage
        .standin
        .look(|world| world.interactions[&command].shown.clone().unwrap());
    assert_eq!(shown["attachments"], json!([]));
    office.check().await;
}
