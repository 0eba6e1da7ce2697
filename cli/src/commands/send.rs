//! `mooring send`: one input, its run and its answer, for scripts.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use mooring_wire::harness::{
    EntriesRequest, Part, StatusRequest, SubmitRequest, SubmitResponse, WhenBusy,
};

use super::{last_conversation, new_request_id, say};
use crate::args::SendArgs;
use crate::connection::Connection;
use crate::error::Error;
use crate::exit::Exit;
use crate::printer::{Inputs, Printer};
use crate::setup::{self, Asks};
use crate::style::{Colours, Line, Style};
use crate::text::one_line;
use crate::view::{Event, View, is_settled};
use crate::watching::{Watch, Watched};
use crate::{cards, format, keys, watching};

/// Bytes of an input; the model's context is far smaller.
const INPUT_MAX: u64 = 16 << 20;

/// How long it is quiet before the harness is asked why.
const QUIET: Duration = Duration::from_secs(3);

/// Sends the input and prints what comes of it.
pub async fn run(project: Option<&Path>, args: SendArgs) -> Result<Exit, Error> {
    let text = text(&args.text)?;
    let plan = setup::plan(project, args.workspace.as_deref(), &args.start).await?;
    let mut connection = Connection::open(plan).await?;
    // The first prompt tells the model what the sandbox is like.
    connection.wait_for_sandbox().await?;
    setup::agree_to_keys(&mut connection, &args.start, Asks::Never).await?;
    let status = &connection.status;
    if !status.missing_keys.is_empty() {
        let keys = keys::labels(&status.missing_keys);
        eprintln!("mooring: {keys} is missing: the run waits for it; set it and run this again");
    }
    if !status.pending_workspace.is_empty() {
        eprintln!(
            "mooring: the changed Workspace file permits more and is not in use: it waits for \
             a yes in `mooring dev`"
        );
    }
    let conversation = match (args.conversation, args.new) {
        (Some(id), _) => id,
        (None, true) => 0,
        (None, false) if !args.extensions.is_empty() => 0,
        (None, false) => last_conversation(&connection)
            .await?
            .map_or(0, |last| last.id),
    };
    // A watch of a conversation begins with all of it; of a new one there is
    // nothing before the input, and its changes are among those of all.
    let mut watch = Watch::new(connection.clone(), conversation);
    let mut view = View::new(conversation);
    begin(&mut watch, &mut view).await?;
    let request = SubmitRequest {
        conversation,
        request_id: args.request_id.clone().unwrap_or_else(new_request_id),
        content: vec![Part::text(text)],
        when_busy: if args.steer {
            WhenBusy::Steer
        } else {
            WhenBusy::Unspecified
        }
        .into(),
        autonomous: args.autonomous,
        model: args.model.clone().unwrap_or_default(),
        extensions: args.extensions.clone(),
        ..SubmitRequest::default()
    };
    let submit = || {
        let request = request.clone();
        connection.call(move |mut client| {
            let request = request.clone();
            async move { client.submit(request).await }
        })
    };
    let response = submit().await?;
    watch.focus(response.conversation);
    view.conversation = response.conversation;
    let mut sent = Sent {
        out: output(&args),
        quiet: args.quiet,
        wait: args.wait,
        submission: response.submission,
        settled: None,
        answers: Vec::new(),
    };
    if is_settled(&response.state) {
        return sent.told_before(&connection, &response).await;
    }
    // A repeated request finds an input that has been waiting since.
    if let Some(exit) = sent.take(&view, Vec::new())? {
        return Ok(exit);
    }
    let mut told_full = false;
    loop {
        // Where nothing comes for a while, the disk may be full.
        let next = match tokio::time::timeout(QUIET, watch.next()).await {
            Ok(next) => next,
            Err(_) => {
                if let Ok(status) = connection.client().status(StatusRequest {}).await
                    && let Some(text) = cards::full_disk(&status.into_inner(), format::now_ms())
                    && !std::mem::replace(&mut told_full, true)
                {
                    eprintln!("mooring: {text}");
                }
                continue;
            }
        };
        match next {
            Some(Watched::Frame(frame)) => {
                told_full = false;
                let events = view.apply(*frame);
                if let Some(exit) = sent.take(&view, events)? {
                    return Ok(exit);
                }
            }
            Some(Watched::Back) => {
                // The end may have come while nobody listened: the same request
                // id finds the same input.
                let response = submit().await?;
                if is_settled(&response.state) {
                    return sent.told_before(&connection, &response).await;
                }
            }
            Some(Watched::Begun) => {}
            Some(Watched::Lost { pause }) => {
                if let Some(text) = watching::waits(pause) {
                    eprintln!("mooring: {text}");
                }
            }
            Some(Watched::Failed(error)) => return Err(error),
            None => return Err(Error::Broken("the watch ended".into())),
        }
    }
}

/// Waits until the watch has begun, and takes in the past of a known
/// conversation, which is not printed.
async fn begin(watch: &mut Watch, view: &mut View) -> Result<(), Error> {
    loop {
        match watch.next().await {
            Some(Watched::Begun) if view.conversation == 0 => return Ok(()),
            Some(Watched::Frame(frame)) => {
                view.apply(*frame);
                return Ok(());
            }
            Some(Watched::Begun | Watched::Lost { .. } | Watched::Back) => {}
            Some(Watched::Failed(error)) => return Err(error),
            None => return Err(Error::Broken("the watch ended".into())),
        }
    }
}

/// The text of the input: the words, or standard input for `-`.
fn text(words: &[String]) -> Result<String, Error> {
    let text = if words == ["-"] {
        let mut bytes = Vec::new();
        std::io::stdin()
            .lock()
            .take(INPUT_MAX + 1)
            .read_to_end(&mut bytes)?;
        if bytes.len() as u64 > INPUT_MAX {
            return Err(Error::Usage("the input is longer than 16 MiB".into()));
        }
        String::from_utf8(bytes)
            .map_err(|_| Error::Usage("standard input is no UTF-8 text".into()))?
    } else {
        words.join(" ")
    };
    if text.trim().is_empty() {
        return Err(Error::Usage("the message is empty".into()));
    }
    Ok(text)
}

fn output(args: &SendArgs) -> Printer<std::io::Stdout> {
    let screen = crate::terminal::stdout();
    let colours = if args.quiet {
        Colours::Off
    } else {
        screen.colours
    };
    Printer::new(std::io::stdout(), colours, Inputs::Hidden, screen.width)
}

/// An input that was sent, and what has been printed of it.
struct Sent<W> {
    out: Printer<W>,
    quiet: bool,
    wait: bool,
    submission: i64,
    /// Its end, once told.
    settled: Option<Exit>,
    answers: Vec<Event>,
}

impl<W: std::io::Write> Sent<W> {
    /// Prints events; the exit once the input has ended or waits for a person.
    fn take(&mut self, view: &View, events: Vec<Event>) -> Result<Option<Exit>, Error> {
        for event in &events {
            if let Event::Submission(submission) = event
                && submission.id == self.submission
                && is_settled(&submission.state)
            {
                self.settled = Some(Exit::of_submission(&submission.state));
            }
        }
        if self.quiet {
            self.answers.extend(events.into_iter().filter(|event| {
                matches!(event, Event::Entry(entry) if entry.kind == "pi.assistant")
                    || matches!(event, Event::Submission(s) if s.state == "unanswered")
            }));
            // Only the last one is the answer; what was said between tools is not.
            let keep = self.answers.len().saturating_sub(2);
            self.answers.drain(..keep);
        } else {
            self.out.events(&events)?;
        }
        if let Some(exit) = self.settled {
            if let (true, Some(last)) = (self.quiet, self.answers.last()) {
                self.out.events(std::slice::from_ref(last))?;
            }
            // The card of a run follows its inputs' ends in the same commit.
            return Ok(Some(exit));
        }
        if !self.wait && view.waits_for_people() {
            self.waits(view)?;
            return Ok(Some(Exit::Waiting));
        }
        Ok(None)
    }

    /// Prints what waits for whom, and how it is answered; quietly, the ids of approvals
    /// and the commands that answer questions.
    fn waits(&mut self, view: &View) -> Result<(), Error> {
        let ids: Vec<&str> = view.approvals.keys().map(String::as_str).collect();
        let mut lines = match (ids.as_slice(), self.quiet) {
            ([], _) => Vec::new(),
            (ids, true) => ids.iter().map(ToString::to_string).collect(),
            ([id], false) => vec![format!("waiting for an approval: mooring approve {id}")],
            (ids, false) => vec![format!(
                "waiting for approvals: mooring approve {}",
                ids.join(", ")
            )],
        };
        for question in view.questions.values() {
            let answer = format!("mooring answer {} TEXT", question.id);
            lines.push(match self.quiet {
                true => answer,
                false => format!(
                    "waiting for an answer to \"{}\": {answer}",
                    one_line(&question.text, 200)
                ),
            });
        }
        if self.quiet {
            return say(lines.join("\n"));
        }
        for line in lines {
            self.out.line(&Line::new(Style::Notice, line))?;
        }
        Ok(())
    }

    /// The request id was used before and its input has ended: prints the answer
    /// that stands in the transcript.
    async fn told_before(
        mut self,
        connection: &Connection,
        response: &SubmitResponse,
    ) -> Result<Exit, Error> {
        let request = EntriesRequest {
            conversation: response.conversation,
            limit: 50,
            ..EntriesRequest::default()
        };
        let entries = connection
            .call(move |mut client| async move { client.entries(request).await })
            .await?
            .entries;
        let exit = Exit::of_submission(&response.state);
        match entries
            .into_iter()
            .rev()
            .find(|entry| entry.kind == "pi.assistant")
        {
            Some(entry) if exit == Exit::Done => self.out.events(&[Event::Entry(entry)])?,
            _ => self.out.line(&Line::new(
                Style::Notice,
                format!(
                    "it ended {}; `mooring entries {}` tells how",
                    response.state, response.conversation
                ),
            ))?,
        }
        Ok(exit)
    }
}
