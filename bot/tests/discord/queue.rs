//! Messages that wait for a run: edited and deleted, heard of or not.

use mooring_discord_standin::clock::Id;
use mooring_discord_standin::fault::DispatchFaultKind;
use mooring_discord_standin::world::TEXT;
use mooring_tests::project::met;

use crate::office::Office;

/// A conversation whose run goes on until the file `go` is there.
async fn busy(sweep: u64) -> (Office, Id) {
    let mut office = Office::built(TEXT, ", whenBusy: Queue", "model: \"\"").await;
    office.stage.sweep = sweep;
    office.stage.start().await;
    let thread = office
        .stage
        .mention("run while [ ! -e go ]; do sleep 0.05; done");
    office.says(thread, "-# ⏳ working").await;
    (office, thread)
}

/// Waits until all of them wait in the queue.
async fn waiting(office: &Office, thread: Id, messages: &[Id]) {
    let signs = |world: &mooring_discord_standin::world::World| {
        messages
            .iter()
            .all(|id| {
                world
                    .message(thread, *id)
                    .is_some_and(|message| message.reactions.contains_key("📥"))
            })
            .then_some(())
    };
    office.stage.until("the signs", signs).await;
}

/// Lets the run end; what the others have said, sorted.
async fn said(office: &Office, lines: usize) -> Vec<String> {
    std::fs::write(office.project.path("go"), "").unwrap();
    met(|| office.project.read("said.txt").lines().count() >= lines).await;
    office.settled().await;
    let text = office.project.read("said.txt");
    let mut said: Vec<String> = text.lines().map(str::to_owned).collect();
    said.sort();
    said
}

async fn is_withdrawn(office: &Office, message: Id) {
    let state = format!(
        "SELECT id FROM submission WHERE request_id = '{message}' AND state = 'unanswered'"
    );
    office.row(&state).await;
}

async fn is_replaced(office: &Office, message: Id) {
    let newer = format!("SELECT id FROM submission WHERE request_id LIKE '{message}@%'");
    office.row(&newer).await;
}

#[tokio::test]
async fn f61_an_edit_changes_a_queued_input_a_preview_does_not_and_a_deletion_withdraws_it() {
    let (office, thread) = busy(300).await;
    let stage = &office.stage;
    let edited = stage.post(thread, "run echo tpyo >> said.txt");
    let deleted = stage.post(thread, "run echo deleted >> said.txt");
    let kept = stage.post(thread, "run echo kept >> said.txt # https://example.com/");
    waiting(&office, thread, &[edited, deleted, kept]).await;
    stage.standin.act(|world| {
        world.unfurl(thread, kept);
        world.edit(thread, edited, "run echo typo >> said.txt");
        world.remove_message(thread, deleted);
    });
    is_replaced(&office, edited).await;
    is_withdrawn(&office, deleted).await;
    // Taken back and taken anew in one commit: a crash leaves the one or the other.
    let together = format!(
        "SELECT count(*) FROM submission old JOIN submission new
         ON old.settled_commit = new.created_commit
         WHERE old.request_id = '{edited}' AND new.request_id LIKE '{edited}@%'"
    );
    assert_eq!(office.rows(&together), ["1"]);
    // A preview of the edited message is the same edit once more.
    stage.standin.act(|world| world.unfurl(thread, edited));
    assert_eq!(said(&office, 2).await, ["kept", "typo"]);
    office.check().await;
}

#[tokio::test]
async fn f61_an_edit_and_a_deletion_while_the_bot_was_down_are_applied_after_its_start_and_once() {
    let (mut office, thread) = busy(1).await;
    let stage = &office.stage;
    let edited = stage.post(thread, "run echo tpyo >> said.txt");
    let deleted = stage.post(thread, "run echo deleted >> said.txt");
    let kept = stage.post(thread, "run echo kept >> said.txt # https://example.com/");
    waiting(&office, thread, &[edited, deleted, kept]).await;
    office.stage.kill().await;
    office.stage.standin.act(|world| {
        world.unfurl(thread, kept);
        world.edit(thread, edited, "run echo typo >> said.txt");
        world.remove_message(thread, deleted);
    });
    office.stage.start().await;
    is_replaced(&office, edited).await;
    is_withdrawn(&office, deleted).await;
    // The sweep of another start does nothing again.
    office.stage.kill().await;
    office.stage.start().await;
    assert_eq!(office.rows("SELECT count(*) FROM submission"), ["5"]);
    assert_eq!(said(&office, 2).await, ["kept", "typo"]);
    office.check().await;
}

#[tokio::test]
async fn f11_f61_what_the_gateway_never_told_of_a_queued_message_is_found_by_the_sweep() {
    let (office, thread) = busy(1).await;
    let stage = &office.stage;
    let edited = stage.post(thread, "run echo tpyo >> said.txt");
    let deleted = stage.post(thread, "run echo deleted >> said.txt");
    waiting(&office, thread, &[edited, deleted]).await;
    stage.dispatch_fault("MESSAGE_UPDATE", DispatchFaultKind::Drop);
    stage.dispatch_fault("MESSAGE_DELETE", DispatchFaultKind::Drop);
    stage.standin.act(|world| {
        world.edit(thread, edited, "run echo typo >> said.txt");
        world.remove_message(thread, deleted);
    });
    is_replaced(&office, edited).await;
    is_withdrawn(&office, deleted).await;
    assert_eq!(said(&office, 1).await, ["typo"]);
    office.check().await;
}

#[tokio::test]
async fn f10_f61_a_message_that_was_deleted_while_the_harness_was_away_is_withdrawn() {
    let (office, thread) = busy(300).await;
    let stage = &office.stage;
    let deleted = stage.post(thread, "run echo deleted >> said.txt");
    let kept = stage.post(thread, "run echo kept >> said.txt");
    waiting(&office, thread, &[deleted, kept]).await;
    office.kill_harness();
    stage
        .standin
        .act(|world| world.remove_message(thread, deleted));
    office.project.start().await;
    is_withdrawn(&office, deleted).await;
    assert_eq!(said(&office, 1).await, ["kept"]);
    office.check().await;
}

#[tokio::test]
async fn f13_f61_a_queued_paste_keeps_the_pieces_that_were_neither_edited_nor_deleted() {
    let (office, thread) = busy(300).await;
    let stage = &office.stage;
    let long = |word: &str| format!("run echo {word} >> said.txt # {}", "x".repeat(1_900));
    let first = stage.post(thread, &long("first"));
    let second = stage.post(thread, "run echo secnod >> said.txt");
    let gone = stage.post(thread, &long("third"));
    let fourth = stage.post(thread, "run echo fourth >> said.txt");
    waiting(&office, thread, &[first, gone]).await;
    stage.standin.act(|world| {
        world.edit(thread, second, "run echo second >> said.txt");
        world.remove_message(thread, gone);
    });
    is_replaced(&office, first).await;
    is_replaced(&office, gone).await;
    // With its last piece an input goes.
    stage
        .standin
        .act(|world| world.remove_message(thread, fourth));
    let withdrawn = format!(
        "SELECT id FROM submission WHERE request_id LIKE '{gone}@%' AND state = 'unanswered'"
    );
    office.row(&withdrawn).await;
    assert_eq!(said(&office, 2).await, ["first", "second"]);
    office.check().await;
}
