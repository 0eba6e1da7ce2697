//! A conversation in plain lines: each line of standard input is an input or a
//! command, and what comes of it is printed as it comes.

use std::io::{BufRead, Read};

use tokio::sync::mpsc;

use super::act::{self, Act, Decision, When};
use crate::connection::Connection;
use crate::error::Error;
use crate::exit::Exit;
use crate::printer::{Inputs, Printer};
use crate::slash::{self, Typed};
use crate::style::{Line, Style};
use crate::text::one_line;
use crate::view::{Event, View};
use crate::watching::{Watch, Watched, lost};

/// Bytes of one line; a longer one is cut there.
const LINE_MAX: u64 = 1 << 20;

/// Talks until the input ends and nothing is going on any more.
pub async fn talk(
    connection: Connection,
    conversation: i64,
    greeting: Vec<Line>,
) -> Result<Exit, Error> {
    let screen = super::stdout();
    let mut out = Printer::new(
        std::io::stdout(),
        screen.colours,
        Inputs::Hidden,
        screen.width,
    );
    greeting.iter().try_for_each(|line| out.line(line))?;
    let mut talk = Talk {
        watch: Watch::new(connection.clone(), conversation),
        view: View::new(conversation),
        connection,
        out,
        width: screen.width,
        sent: 0,
        decided: String::new(),
        last: Exit::Done,
    };
    talk.begin().await?;
    let mut input = stdin_lines();
    let mut open = true;
    loop {
        if !open && talk.is_over() {
            return Ok(talk.exit());
        }
        tokio::select! {
            line = input.recv(), if open => match line {
                Some(line) => if !talk.typed(&line?).await? { return Ok(talk.exit()) },
                None => open = false,
            },
            watched = talk.watch.next() => talk.watched(watched)?,
        }
    }
}

struct Talk<W> {
    connection: Connection,
    watch: Watch,
    view: View,
    out: Printer<W>,
    width: usize,
    /// Inputs that were sent and have not ended.
    sent: usize,
    /// The approval that was decided here, until the watch tells so.
    decided: String,
    last: Exit,
}

impl<W: std::io::Write> Talk<W> {
    /// Waits for the beginning of the watch; what was before is not printed, but
    /// for what waits.
    async fn begin(&mut self) -> Result<(), Error> {
        loop {
            match self.watch.next().await {
                Some(Watched::Begun) if self.view.conversation == 0 => return Ok(()),
                Some(Watched::Frame(frame)) => {
                    let events = self.view.apply(*frame);
                    let open = |event: &Event| matches!(event, Event::Asked(_));
                    let open: Vec<Event> = events.into_iter().filter(open).collect();
                    self.out.events(&open)?;
                    self.sent = self.view.inbox.len();
                    return Ok(());
                }
                Some(Watched::Failed(error)) => return Err(error),
                Some(Watched::Begun | Watched::Lost { .. } | Watched::Back) => {}
                None => return Err(Error::Broken("the watch ended".into())),
            }
        }
    }

    fn is_over(&self) -> bool {
        if self.view.approvals.contains_key(&self.decided) {
            return false;
        }
        self.view.waits_for_people() || (self.sent == 0 && !self.view.is_busy())
    }

    fn exit(&self) -> Exit {
        if self.view.waits_for_people() {
            Exit::Waiting
        } else {
            self.last
        }
    }

    /// Takes a line of input; `false` at the end.
    async fn typed(&mut self, line: &str) -> Result<bool, Error> {
        let oldest = self
            .view
            .oldest_approval()
            .map(|approval| approval.id.clone());
        let decision = oldest.as_ref().and_then(|_| match line.trim() {
            "y" | "yes" => Some(Decision::Approve(slash::Scope::Once)),
            "n" | "no" => Some(Decision::Deny(String::new())),
            _ => None,
        });
        let act = match (decision, oldest) {
            (Some(decision), Some(id)) => Some(Act::Decide { id, decision }),
            (_, oldest) => {
                let typed = slash::parse(line);
                match typed {
                    Typed::Quit => return Ok(false),
                    Typed::Help => self.help()?,
                    Typed::Queue => self.queue()?,
                    Typed::New => self.go(0).await?,
                    Typed::Resume(id) => self.go(id).await?,
                    _ => {}
                }
                match act::of_typed(
                    typed,
                    self.view.conversation,
                    oldest.as_deref(),
                    self.view.question(),
                ) {
                    Ok(act) => act,
                    Err(text) => {
                        self.out.line(&Line::new(Style::Notice, text))?;
                        None
                    }
                }
            }
        };
        let Some(act) = act else { return Ok(true) };
        let is_input = matches!(act, Act::Submit { .. });
        let decided = match &act {
            Act::Decide { id, .. } => id.clone(),
            _ => String::new(),
        };
        match act::perform(&self.connection, act, self.width).await {
            Ok(done) => {
                self.sent += usize::from(is_input);
                if !decided.is_empty() {
                    self.decided = decided;
                }
                if let Some(conversation) = done.conversation {
                    self.view.conversation = conversation;
                    self.watch.focus(conversation);
                }
                done.lines.iter().try_for_each(|line| self.out.line(line))?;
                if let Some((conversation, text)) = done.go {
                    self.go(conversation).await?;
                    if let Some(text) = text {
                        let act = Act::Submit {
                            conversation,
                            text,
                            when: When::InTurn,
                        };
                        act::perform(&self.connection, act, self.width).await?;
                        self.sent += 1;
                    }
                }
            }
            Err(error @ Error::Refused { .. }) => {
                self.last = Exit::Refused;
                act::error_lines(&error)
                    .iter()
                    .try_for_each(|line| self.out.line(line))?;
            }
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Goes on in another conversation.
    async fn go(&mut self, conversation: i64) -> Result<(), Error> {
        // A mistyped id leaves people where they are.
        if let Err(error) = self.connection.check_conversation(conversation).await {
            return self
                .out
                .line(&Line::new(Style::Notice, error.to_string()))
                .map_err(Error::from);
        }
        self.watch = Watch::new(self.connection.clone(), conversation);
        self.view = View::new(conversation);
        self.sent = 0;
        self.begin().await?;
        let text = match conversation {
            0 => "a new conversation".into(),
            id => format!("conversation {id} {}", one_line(&self.view.title, 80)),
        };
        self.out
            .line(&Line::new(Style::Dim, text))
            .map_err(Error::from)
    }

    fn help(&mut self) -> Result<(), Error> {
        for (usage, meaning) in slash::offered(self.connection.is_attached()) {
            self.out
                .line(&Line::plain(format!("{usage:<18} {meaning}")))?;
        }
        Ok(())
    }

    fn queue(&mut self) -> Result<(), Error> {
        let lines: Vec<Line> = self
            .view
            .queued()
            .map(|s| Line::plain(format!("{:>4}  {}", s.id, one_line(&s.text, 200))))
            .collect();
        if lines.is_empty() {
            self.out.line(&Line::new(Style::Dim, "nothing is queued"))?;
        }
        Ok(lines.iter().try_for_each(|line| self.out.line(line))?)
    }

    fn watched(&mut self, watched: Option<Watched>) -> Result<(), Error> {
        match watched {
            Some(Watched::Frame(frame)) => {
                let events = self.view.apply(*frame);
                for event in &events {
                    if let Event::Submission(submission) = event
                        && crate::view::is_settled(&submission.state)
                    {
                        self.sent = self.sent.saturating_sub(1);
                        self.last = Exit::of_submission(&submission.state);
                    }
                }
                // What ended while the harness was away ended without a word.
                let ended = events
                    .iter()
                    .any(|event| matches!(event, Event::RunEnded(_)));
                if ended && self.view.inbox.is_empty() {
                    self.sent = 0;
                }
                Ok(self.out.events(&events)?)
            }
            Some(Watched::Lost { pause }) => {
                let line = Line::new(Style::Dim, format!("({})", lost(pause)));
                Ok(self.out.line(&line)?)
            }
            Some(Watched::Begun | Watched::Back) => Ok(()),
            Some(Watched::Failed(error)) => Err(error),
            None => Err(Error::Broken("the watch ended".into())),
        }
    }
}

/// Lines of standard input, read by a thread: a terminal cannot be read without
/// waiting.
fn stdin_lines() -> mpsc::Receiver<std::io::Result<String>> {
    let (send, receive) = mpsc::channel(1);
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        loop {
            let mut bytes = Vec::new();
            let line = match input.by_ref().take(LINE_MAX).read_until(b'\n', &mut bytes) {
                Ok(0) => return,
                Ok(_) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
                Err(error) => Err(error),
            };
            if send.blocking_send(line).is_err() {
                return;
            }
        }
    });
    receive
}
