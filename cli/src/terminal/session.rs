//! A conversation at the keyboard: keys and events in, wishes and lines out.

use jiff::tz::TimeZone;
use mooring_wire::harness::{Entry, Run};

use super::act::{self, Act, Decision};
use super::answer::Answer;
use super::editor::{Editor, To};
use super::keys::Key;
use super::screen::Cursor;
use crate::style::{Line, Style, paragraph};
use crate::text::{one_line, sanitize};
use crate::view::{Event, View};
use crate::{cards, slash};

/// For how long after its card appeared an approval takes no key: who is typing
/// at that moment means something else.
const ASKED_GRACE_MS: i64 = 500;
/// Rows of a running command's output that are shown.
const OUTPUT_ROWS: usize = 3;
/// Queued inputs that are shown.
const QUEUE_ROWS: usize = 3;
/// Subagents of a call that are shown.
const CHILD_ROWS: usize = 5;
const SPINNER: [&str; 4] = ["◐", "◓", "◑", "◒"];

/// What the person wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Want {
    /// Something of the harness.
    Act(Act),
    /// Another conversation; 0 for a new one.
    Go(i64),
    /// The screen painted anew.
    Redraw,
    /// To leave.
    Leave,
}

/// A conversation at the keyboard.
pub struct Session {
    /// The conversation.
    pub view: View,
    editor: Editor,
    answer: Answer,
    scrolled: Vec<Line>,
    width: usize,
    height: usize,
    outcome: &'static str,
    asked_ms: i64,
    /// What the next Ctrl-C does.
    interrupt: Interrupt,
    notice: String,
    /// What is told while the harness is gone.
    lost: Option<String>,
    /// Whether what comes next is what the conversation held before.
    past: bool,
    /// Whether the harness is in a cluster.
    pub attached: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Interrupt {
    Stops,
    Leaves,
}

impl Session {
    /// With the inputs of earlier sessions, on a screen of this size.
    pub fn new(conversation: i64, history: Vec<String>, width: u16, height: u16) -> Self {
        let mut session = Session {
            view: View::new(conversation),
            editor: Editor::new(history),
            answer: Answer::default(),
            scrolled: Vec::new(),
            width: 0,
            height: 0,
            outcome: "done",
            asked_ms: 0,
            interrupt: Interrupt::Stops,
            notice: String::new(),
            lost: None,
            past: conversation != 0,
            attached: false,
        };
        session.resize(width, height);
        session
    }

    fn resize(&mut self, width: u16, height: u16) {
        // The last column stays free: a terminal that stands in it has wrapped or
        // has not, as it likes.
        self.width = usize::from(width).saturating_sub(1).max(4);
        self.height = usize::from(height).max(4);
    }

    /// Columns for lines.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Prints a line.
    pub fn say(&mut self, line: Line) {
        let lines = paragraphs(line, self.width);
        self.scrolled.extend(lines);
    }

    /// The lines to be printed for good.
    pub fn take_scrolled(&mut self) -> Vec<Line> {
        std::mem::take(&mut self.scrolled)
    }

    /// Goes on in another conversation.
    pub fn go(&mut self, conversation: i64) {
        self.view = View::new(conversation);
        self.answer = Answer::default();
        self.interrupt = Interrupt::Stops;
        self.past = conversation != 0;
        let text = match conversation {
            0 => "— a new conversation —".into(),
            id => format!("— conversation {id} —"),
        };
        self.say(Line::new(Style::Dim, text));
    }

    /// Whether the screen changes by time alone.
    pub fn is_animated(&self) -> bool {
        self.view.is_busy() || self.lost.is_some()
    }

    /// The harness is gone, or back.
    pub fn set_lost(&mut self, lost: Option<String>) {
        self.lost = lost;
    }

    /// Takes a key.
    pub fn key(&mut self, key: Key, now_ms: i64) -> Vec<Want> {
        if !matches!(key, Key::Interrupt | Key::Resize { .. }) {
            self.interrupt = Interrupt::Stops;
            self.notice.clear();
        }
        match key {
            Key::Char(c) => return self.char(c, now_ms),
            Key::Paste(text) => self.editor.insert(&text),
            Key::Enter => {
                if self.editor.enter() {
                    return self.submit();
                }
            }
            Key::NewRow => self.editor.insert("\n"),
            Key::Go(to) => self.editor.go(to),
            Key::Delete(to) => self.editor.delete(to),
            Key::Kill(to) => self.editor.kill(to),
            Key::Yank => self.editor.yank(),
            Key::Up => self.editor.up(),
            Key::Down => self.editor.down(),
            Key::Interrupt => return self.interrupted(),
            Key::End if self.editor.is_empty() => return vec![Want::Leave],
            Key::End => self.editor.delete(To::Right),
            Key::Redraw => return vec![Want::Redraw],
            Key::Resize { width, height } => self.resize(width, height),
        }
        Vec::new()
    }

    /// `y`, `c` and `n` decide the open approval where nothing is typed yet.
    fn char(&mut self, c: char, now_ms: i64) -> Vec<Want> {
        let decision = match c {
            'y' | 'Y' => Some(Decision::Approve(slash::Scope::Once)),
            'c' | 'C' => Some(Decision::Approve(slash::Scope::Conversation)),
            'n' | 'N' => Some(Decision::Deny(String::new())),
            _ => None,
        };
        let open = self
            .view
            .oldest_approval()
            .map(|approval| approval.id.clone());
        if let (true, Some(decision), Some(id)) = (self.editor.is_empty(), decision, open) {
            if now_ms - self.asked_ms < ASKED_GRACE_MS {
                self.notice = "this approval has only just come up; look, then press again".into();
                return Vec::new();
            }
            return vec![Want::Act(Act::Decide { id, decision })];
        }
        self.editor.insert(c.encode_utf8(&mut [0; 4]));
        Vec::new()
    }

    fn interrupted(&mut self) -> Vec<Want> {
        if self.interrupt == Interrupt::Leaves {
            return vec![Want::Leave];
        }
        if self.view.is_busy() {
            self.interrupt = Interrupt::Leaves;
            self.notice = "stopping; Ctrl-C again leaves".into();
            return vec![Want::Act(Act::Stop(self.view.conversation))];
        }
        if self.editor.is_empty() {
            self.interrupt = Interrupt::Leaves;
            self.notice = "Ctrl-C again leaves".into();
        } else {
            self.editor.take();
        }
        Vec::new()
    }

    fn submit(&mut self) -> Vec<Want> {
        let typed = slash::parse(&self.editor.submit());
        match &typed {
            slash::Typed::Quit => return vec![Want::Leave],
            slash::Typed::New => return vec![Want::Go(0)],
            slash::Typed::Resume(id) => return vec![Want::Go(*id)],
            slash::Typed::Help => self.help(),
            slash::Typed::Queue => self.queue(),
            _ => {}
        }
        let oldest = self
            .view
            .oldest_approval()
            .map(|approval| approval.id.clone());
        match act::of_typed(
            typed,
            self.view.conversation,
            oldest.as_deref(),
            self.view.question(),
        ) {
            Ok(act) => act.map(Want::Act).into_iter().collect(),
            Err(text) => {
                self.say(Line::new(Style::Notice, text));
                Vec::new()
            }
        }
    }

    fn help(&mut self) {
        for (usage, meaning) in slash::offered(self.attached) {
            self.say(
                Line::new(Style::Accent, format!("{usage:<18} ")).with(Style::Plain, *meaning),
            );
        }
        self.say(Line::new(
            Style::Dim,
            "Enter sends; Alt-Enter, Ctrl-J or a backslash before Enter begins a new row; \
             a message sent during a run waits for its end.",
        ));
    }

    fn queue(&mut self) {
        let lines: Vec<Line> = self
            .view
            .queued()
            .map(|s| Line::plain(format!("{:>4}  {}", s.id, one_line(&s.text, 200))))
            .collect();
        if lines.is_empty() {
            self.say(Line::new(Style::Dim, "nothing is queued"));
        }
        lines.into_iter().for_each(|line| self.say(line));
    }

    /// Takes what happened.
    pub fn events(&mut self, events: Vec<Event>, now_ms: i64) {
        for event in events {
            match event {
                Event::Entry(entry) => self.entry(&entry),
                Event::Answer(text) => {
                    let rows = self.answer.push(&text, self.width);
                    self.scrolled.extend(rows);
                }
                Event::AnswerVoid => {
                    let rows = self.answer.void();
                    self.scrolled.extend(rows);
                    self.say(Line::new(
                        Style::Notice,
                        "(the answer broke off; the model is asked again)",
                    ));
                }
                Event::Call(call) if cards::is_over(&call.state) => {
                    self.say(cards::call_line(&call, now_ms, self.width));
                    self.scrolled.extend(cards::plan(&call, self.width));
                }
                Event::Asked(approval) => {
                    self.asked_ms = now_ms;
                    let zone = TimeZone::system();
                    self.scrolled
                        .extend(cards::approval_card(&approval, now_ms, &zone, self.width));
                }
                Event::Decided(approval) => self.say(cards::decision_line(&approval, self.width)),
                Event::Question(question) => {
                    self.scrolled.extend(cards::question(&question, self.width));
                }
                Event::Submission(submission) if submission.state == "unanswered" => {
                    self.outcome = "unanswered";
                    self.say(Line::new(Style::Bad, cards::unanswered(&submission)));
                }
                Event::RunBegan(_) => self.outcome = "done",
                Event::RunEnded(run) => self.run_ended(&run, now_ms),
                Event::Worked(child) => {
                    // Directly below the card, above the empty row that ends it.
                    self.scrolled.pop();
                    self.say(cards::child_line(&child, self.width));
                    self.scrolled.push(Line::default());
                }
                Event::Call(_)
                | Event::Output { .. }
                | Event::Thinking(_)
                | Event::Submission(_) => {}
            }
        }
        self.past = false;
    }

    fn run_ended(&mut self, run: &Run, now_ms: i64) {
        self.notice = match self.interrupt {
            Interrupt::Leaves => "Ctrl-C again leaves".into(),
            Interrupt::Stops => String::new(),
        };
        let rows = self.answer.void();
        self.scrolled.extend(rows);
        self.say(cards::run_card(run, self.outcome, now_ms));
        self.scrolled.push(Line::default());
    }

    fn entry(&mut self, entry: &Entry) {
        match entry.kind.as_str() {
            "pi.user" => {
                let lines = paragraph(Style::Accent, &sanitize(&entry.text), "› ", self.width);
                self.scrolled.extend(lines);
            }
            "pi.assistant" => {
                let rows = self.answer.end(&entry.text, self.width);
                self.scrolled.extend(rows);
                if let Some(text) = cards::entry_state(entry) {
                    self.say(Line::new(Style::Notice, text));
                }
            }
            "pi.tool-result" if self.past => {
                let text = format!("  ↳ {}", one_line(&entry.text, self.width));
                self.scrolled
                    .push(Line::new(Style::Dim, text).cut(self.width));
            }
            // The line of the call tells; the text is in `mooring entries`.
            "pi.compaction" => self.say(cards::compaction_line(entry, self.width)),
            "pi.tool-result" | "pi.system" => {}
            kind => {
                let text = format!("({}) {}", one_line(kind, 40), one_line(&entry.text, 200));
                self.say(Line::new(Style::Dim, text));
            }
        }
    }

    /// The lines at the bottom and the cursor in them.
    pub fn live(&self, now_ms: i64) -> (Vec<Line>, Cursor) {
        let (below, cursor) = self.input();
        let room = self.height.saturating_sub(below.len() + 1);
        let mut lines = self.progress(now_ms);
        // What is nearest to the input matters most.
        lines.drain(..lines.len().saturating_sub(room));
        let above = lines.len();
        lines.extend(below);
        (
            lines,
            Cursor {
                row: above + cursor.row,
                ..cursor
            },
        )
    }

    /// What is going on, from the answer to the state of the run.
    fn progress(&self, now_ms: i64) -> Vec<Line> {
        let width = self.width;
        let mut lines = self.answer.open_rows();
        if lines.is_empty() && self.view.answer().is_empty() && !self.view.thinking().is_empty() {
            let thinking = sanitize(self.view.thinking());
            let rows = crate::text::wrap(&thinking, width.saturating_sub(2));
            let from = rows.len().saturating_sub(OUTPUT_ROWS);
            lines.extend(
                rows[from..]
                    .iter()
                    .map(|row| Line::new(Style::Dim, format!("  {row}"))),
            );
        }
        for call in self
            .view
            .calls
            .values()
            .filter(|call| !cards::is_over(&call.state))
        {
            lines.push(cards::call_line(call, now_ms, width));
            let (output, _) = self.view.output(call.task);
            let output = sanitize(output);
            let rows: Vec<&str> = output.trim_end().lines().collect();
            for row in &rows[rows.len().saturating_sub(OUTPUT_ROWS)..] {
                lines.push(Line::new(Style::Dim, format!("  {row}")).cut(width));
            }
            let children = self.view.children_of(call.task);
            for child in children.iter().take(CHILD_ROWS) {
                lines.push(cards::child_line(child, width));
            }
            if children.len() > CHILD_ROWS {
                let text = format!("  and {} more work for it", children.len() - CHILD_ROWS);
                lines.push(Line::new(Style::Dim, text).cut(width));
            }
        }
        let queued: Vec<_> = self.view.queued().collect();
        for submission in queued.iter().take(QUEUE_ROWS) {
            let text = format!("queued: {}", one_line(&submission.text, width));
            lines.push(Line::new(Style::Dim, text).cut(width));
        }
        if queued.len() > QUEUE_ROWS {
            let text = format!("and {} more in the queue", queued.len() - QUEUE_ROWS);
            lines.push(Line::new(Style::Dim, text).cut(width));
        }
        if !self.view.compaction.is_empty() && self.view.run.state != "compacting" {
            let text = format!("compacting the context ({})", self.view.compaction);
            lines.push(Line::new(Style::Dim, text).cut(width));
        }
        let mark = SPINNER[usize::try_from(now_ms / 250 % 4).unwrap_or(0)];
        if let Some(told) = &self.lost {
            let text = format!("{mark} {told}");
            lines.push(Line::new(Style::Notice, text).cut(width));
        } else if self.view.is_busy() {
            let run = &self.view.run;
            let mark = if self.view.waits_for_people() {
                "?"
            } else {
                mark
            };
            lines.push(
                Line::new(Style::Accent, format!("{mark} {}", cards::run_state(run)))
                    .with(
                        Style::Dim,
                        format!(" · {} · Ctrl-C stops", cards::figures(run, now_ms)),
                    )
                    .cut(width),
            );
        }
        if self.view.question().is_some() {
            let text = "what you send answers the question; /steer says something else";
            lines.push(Line::new(Style::Notice, text).cut(width));
        }
        if let Some(approval) = self.view.oldest_approval() {
            let more = match self.view.approvals.len() {
                1 => String::new(),
                open => format!(" (and {} more)", open - 1),
            };
            lines.push(
                // The keys first: what a narrow terminal cuts can be done without.
                Line::new(Style::Bold, "y")
                    .with(Style::Notice, " once · ")
                    .with(Style::Bold, "n")
                    .with(Style::Notice, " no · ")
                    .with(Style::Bold, "c")
                    .with(Style::Notice, " in this conversation · /deny WHY · ")
                    .with(
                        Style::Notice,
                        format!("{}{more}", one_line(&approval.id, 40)),
                    )
                    .cut(width),
            );
        }
        if !self.notice.is_empty() {
            lines.push(Line::new(Style::Notice, self.notice.clone()).cut(width));
        }
        lines
    }

    /// The input with its prompt; of a long one the rows around the cursor.
    fn input(&self) -> (Vec<Line>, Cursor) {
        let layout = self.editor.layout(self.width.saturating_sub(2));
        let most = (self.height / 2).max(1);
        let first = (layout.row + 1).saturating_sub(most);
        let lines = layout.rows[first..]
            .iter()
            .take(most)
            .enumerate()
            .map(|(at, row)| {
                let prompt = if first + at == 0 { "› " } else { "  " };
                Line::new(Style::Accent, prompt).with(Style::Plain, row.clone())
            })
            .collect();
        (
            lines,
            Cursor {
                row: layout.row - first,
                column: layout.column + 2,
            },
        )
    }
}

/// A line that may be wider than the screen, in lines that are not. A line of
/// several styles is taken for one of the first of them then.
fn paragraphs(line: Line, width: usize) -> Vec<Line> {
    if line.width() <= width {
        return vec![line];
    }
    paragraph(line.style(), &line.text(), "", width)
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
