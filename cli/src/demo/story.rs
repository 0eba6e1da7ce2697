//! What happens in the demonstration, step by step.

use std::time::{Duration, Instant};

use mooring_wire::harness::{
    CompactRequest, ConversationView, EntriesRequest, Entry, Part, SubmitRequest, ViewRequest,
    WhenBusy, chunk,
};

use super::evidence::{Evidence, Moment, search};
use super::stage::{PLACES, Stage};
use super::{Check, Teller};
use crate::commands::{new_request_id, tasks};
use crate::connection::Connection;
use crate::error::Error;
use crate::style::Style;
use crate::text::one_line;

/// How long one step may take on a machine that is busy with other things.
const BOUND: Duration = Duration::from_secs(30);
/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(15);
/// The search that is slow.
const SLOW: &str = PLACES[2];

const OPENING: &str = "What is in this repository?";
const TASK: &str = "Where is legacy_login used? I want to remove it.";
const TOLD: &str = "The names of the files are enough, no line numbers.";

/// Plays it all, and gives what was checked.
pub async fn play(stage: &Stage, tell: &Teller) -> Result<Vec<Check>, Error> {
    introduce(stage, tell).await?;
    let connection = Connection::open(stage.plan.clone()).await?;
    let mut scene = Scene {
        stage,
        tell,
        connection,
    };
    scene.up("The harness").await?;
    let parent = scene.ask(0, OPENING, WhenBusy::FollowUp).await?;
    scene.finished(parent, "an answer").await?;
    scene.ask(parent, TASK, WhenBusy::FollowUp).await?;
    let child = scene.child(parent).await?;
    scene.middle(child).await?;
    scene.ask_meanwhile(parent, child).await?;
    let before = scene.moment(child).await?;
    scene.kill(before.pid).await?;
    scene.connection = Connection::open(stage.plan.clone()).await?;
    scene.up("The harness is started again: it").await?;
    let again = scene.child(parent).await?;
    let after = scene.resumed(again).await?;
    scene.end(parent, again).await?;
    let ids = (parent, again);
    let (parent, child) = (scene.entries(parent).await?, scene.entries(again).await?);
    let evidence = Evidence {
        parent_request: scene.request(ids.0, &parent).await?,
        child_request: scene.request(ids.1, &child).await?,
        notes: PLACES
            .iter()
            .map(|place| (*place, stage.notes(place)))
            .collect(),
        before,
        after,
        parent,
        child,
        told: TOLD,
    };
    Ok(evidence.checks())
}

async fn introduce(stage: &Stage, tell: &Teller) -> Result<(), Error> {
    tell.prose(
        Style::Bold,
        "What becomes of an agent's work when the process that does it is killed?",
    )
    .await?;
    tell.prose(
        Style::Plain,
        &format!(
            "Harness, sandbox, database, commands and the kill are real. What answers is no \
             language model: the rehearsal provider plays a script, so that no key is needed. The project is a small \
             repository of its own:\n{}\n",
            stage.root().display()
        ),
    )
    .await
}

/// What is looked for in a conversation.
type Seen<'a, T> = &'a dyn Fn(&ConversationView) -> Option<T>;

struct Scene<'a> {
    stage: &'a Stage,
    tell: &'a Teller,
    connection: Connection,
}

impl Scene<'_> {
    /// Says that the harness is there, and what it is like.
    async fn up(&mut self, what: &str) -> Result<(), Error> {
        self.connection.wait_for_sandbox().await?;
        let status = &self.connection.status;
        let sandbox = status.sandbox.clone().unwrap_or_default();
        if !sandbox.error.is_empty() && !sandbox.reachable {
            return Err(Error::Broken(format!(
                "the sandbox does not work: {}",
                one_line(&sandbox.error, 400)
            )));
        }
        self.tell
            .event(
                "program",
                Style::Plain,
                &format!(
                    "{what} runs as process {}, the sandbox ({}) beside it.",
                    status.pid,
                    one_line(&sandbox.grade, 20)
                ),
            )
            .await
    }

    /// Says something to a conversation.
    async fn ask(&self, conversation: i64, text: &str, when_busy: WhenBusy) -> Result<i64, Error> {
        if when_busy != WhenBusy::Steer {
            self.tell.event("you", Style::Accent, text).await?;
        }
        let request = SubmitRequest {
            conversation,
            request_id: new_request_id(),
            content: vec![Part::text(text)],
            when_busy: when_busy.into(),
            ..SubmitRequest::default()
        };
        let response = self.connection.client().submit(request).await?;
        Ok(response.into_inner().conversation)
    }

    /// Waits until a conversation shows what is looked for.
    async fn until<T>(&self, conversation: i64, what: &str, seen: Seen<'_, T>) -> Result<T, Error> {
        let begun = Instant::now();
        let mut client = self.connection.client();
        loop {
            let request = ViewRequest {
                conversation,
                entries: 100,
                ..ViewRequest::default()
            };
            let view = client.view(request).await?.into_inner();
            if let Some(found) = seen(&view) {
                return Ok(found);
            }
            if begun.elapsed() > BOUND {
                let calls: Vec<_> = view
                    .calls
                    .iter()
                    .map(|call| {
                        format!(
                            "{} {}: {} {}",
                            call.tool, call.summary, call.state, call.note
                        )
                    })
                    .collect();
                return Err(Error::Broken(format!(
                    "conversation {conversation} did not come to {what} in {} s; its calls: {}",
                    BOUND.as_secs(),
                    one_line(&calls.join("; "), 600)
                )));
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Waits for the end of what goes on, and says the answer.
    async fn finished(&self, conversation: i64, what: &str) -> Result<(), Error> {
        let answer = self
            .until(conversation, what, &|view| {
                let busy = view.run.as_ref().is_some_and(|run| run.state != "idle");
                let last = view.entries.last()?;
                let ended = !busy && view.inbox.is_empty() && last.kind == "pi.assistant";
                ended.then(|| last.text.clone())
            })
            .await?;
        self.tell.event("agent", Style::Plain, &answer).await
    }

    /// The subagent's conversation, once there is one.
    async fn child(&self, parent: i64) -> Result<i64, Error> {
        let begun = Instant::now();
        loop {
            let (graph, _) = tasks(&self.connection, parent).await?;
            let owner = graph
                .iter()
                .find(|task| task.conversation == parent && task.owns != 0);
            if let Some(owner) = owner {
                return Ok(owner.owns);
            }
            if begun.elapsed() > BOUND {
                return Err(Error::Broken("there is no subagent".into()));
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Waits until two searches have finished and the third is in its middle.
    async fn middle(&self, child: i64) -> Result<(), Error> {
        self.tell.event(
            "agent",
            Style::Plain,
            &format!(
                "starts a subagent (conversation {child}), which starts three searches in parallel:"
            ),
        ).await?;
        let calls = self
            .until(child, "the middle of its searches", &|view| {
                let slow = search(&view.calls, SLOW)?;
                let halfway = view.chunks.iter().any(|chunk| {
                    chunk.task == slow.task
                        && chunk.of() == chunk::Of::Output
                        && chunk.text.contains("(half")
                });
                let done = view.calls.iter().filter(|call| call.state == "done");
                let ready = slow.state == "running" && halfway && done.count() == 2;
                ready.then(|| view.calls.clone())
            })
            .await?;
        for place in PLACES {
            let Some(call) = search(&calls, place) else {
                continue;
            };
            let stand = match call.state.as_str() {
                "done" => "✓ finished, its result is committed",
                _ => "• still runs: it is half done, and made to take long",
            };
            let style = match call.state.as_str() {
                "done" => Style::Good,
                _ => Style::Accent,
            };
            let text = format!("{:<18} {stand}", one_line(&call.summary, 18));
            self.tell.event("subagent", style, &text).await?;
        }
        Ok(())
    }

    /// Steers the subagent and compacts the conversation, while the search runs.
    async fn ask_meanwhile(&self, parent: i64, child: i64) -> Result<(), Error> {
        self.tell
            .event(
                "you",
                Style::Accent,
                &format!("to the subagent, while it works: {TOLD}"),
            )
            .await?;
        self.ask(child, TOLD, WhenBusy::Steer).await?;
        self.tell
            .event(
                "you",
                Style::Accent,
                "and let the conversation be compacted.",
            )
            .await?;
        let request = CompactRequest {
            conversation: parent,
            ..CompactRequest::default()
        };
        self.connection.client().compact(request).await?;
        self.until(parent, "its summary", &|view| {
            view.compaction.is_empty().then_some(())
        })
        .await?;
        self.tell
            .event(
                "program",
                Style::Plain,
                "Both are committed, and wait for the end of the searches.",
            )
            .await
    }

    /// How things stand.
    async fn moment(&self, child: i64) -> Result<Moment, Error> {
        let calls = self
            .until(child, "a view", &|view| Some(view.calls.clone()))
            .await?;
        Ok(Moment {
            pid: self.connection.status.pid,
            generation: self.connection.status.generation,
            child,
            calls,
        })
    }

    async fn kill(&self, pid: u32) -> Result<(), Error> {
        self.stage.kill(pid).await?;
        self.tell
            .event(
                "program",
                Style::Bad,
                &format!("kill -9 {pid}: the harness is gone in the middle of its work."),
            )
            .await?;
        let left = self.stage.processes().len();
        self.tell.event(
            "program",
            Style::Plain,
            &format!(
                "Nobody holds the conversation now. The sandbox lives on ({left} processes), and in it \
                 the unfinished search."
            ),
        ).await
    }

    /// Waits until the next harness holds the search that was not finished.
    async fn resumed(&self, child: i64) -> Result<Moment, Error> {
        self.until(child, "the search that it goes on with", &|view| {
            let slow = search(&view.calls, SLOW)?;
            (slow.state == "running").then_some(())
        })
        .await?;
        let moment = self.moment(child).await?;
        self.tell
            .event(
                "program",
                Style::Plain,
                "It has read its database and is attached to the unfinished search again.",
            )
            .await?;
        Ok(moment)
    }

    /// Lets the slow search end, and waits for all the rest.
    async fn end(&self, parent: i64, child: i64) -> Result<(), Error> {
        self.stage.let_go_on()?;
        let text = self
            .until(child, "its answer", &|view| {
                let last = view.entries.last()?;
                let answered = last.kind == "pi.assistant" && view.calls.is_empty();
                answered.then(|| last.text.clone())
            })
            .await?;
        self.tell.event("subagent", Style::Plain, &text).await?;
        self.finished(parent, "its answer").await
    }

    async fn entries(&self, conversation: i64) -> Result<Vec<Entry>, Error> {
        self.until(conversation, "a view", &|view| Some(view.entries.clone()))
            .await
    }

    /// The exact request of a transcript's last answer.
    async fn request(&self, conversation: i64, entries: &[Entry]) -> Result<String, Error> {
        let last = entries.iter().rfind(|entry| entry.kind == "pi.assistant");
        let request = EntriesRequest {
            conversation,
            request: last.map_or(0, |entry| entry.task),
            ..EntriesRequest::default()
        };
        let response = self.connection.client().entries(request).await?;
        Ok(response.into_inner().request_json)
    }
}
