//! A conversation as plain lines, for pipes, files and terminals without a
//! cursor: what was printed is never changed.

use std::io::Write;

use jiff::tz::TimeZone;
use mooring_wire::harness::Entry;

use crate::cards;
use crate::format::now_ms;
use crate::style::{Colours, Line, Style};
use crate::text::{Sanitizer, one_line, sanitize};
use crate::view::Event;

/// Whether inputs are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inputs {
    /// They are: who reads did not write them.
    Shown,
    /// They are not: who reads has just typed them.
    Hidden,
}

/// Prints events as lines.
pub struct Printer<W> {
    out: W,
    colours: Colours,
    inputs: Inputs,
    width: usize,
    sanitizer: Sanitizer,
    /// What was printed of the answer that is streaming.
    streamed: String,
    mid_line: bool,
    outcome: &'static str,
}

impl<W: Write> Printer<W> {
    /// Prints to `out`; cards are wrapped to `width` columns, answers are not.
    pub fn new(out: W, colours: Colours, inputs: Inputs, width: usize) -> Self {
        Printer {
            out,
            colours,
            inputs,
            width,
            sanitizer: Sanitizer::default(),
            streamed: String::new(),
            mid_line: false,
            outcome: "done",
        }
    }

    /// Prints one line of its own.
    pub fn line(&mut self, line: &Line) -> std::io::Result<()> {
        self.end_line()?;
        writeln!(self.out, "{}", line.render(self.colours))?;
        self.out.flush()
    }

    /// Prints what happened.
    pub fn event(&mut self, event: &Event) -> std::io::Result<()> {
        match event {
            Event::Entry(entry) => self.entry(entry),
            Event::Answer(text) => {
                self.streamed.push_str(text);
                self.answer(text)
            }
            Event::AnswerVoid => {
                self.streamed.clear();
                self.line(&Line::new(
                    Style::Notice,
                    "(the answer broke off; the model is asked again)",
                ))
            }
            Event::Call(call) if cards::is_over(&call.state) => {
                self.line(&cards::call_line(call, now_ms(), self.width))
            }
            Event::Asked(approval) => {
                for line in
                    cards::approval_card(approval, now_ms(), &TimeZone::system(), self.width)
                {
                    self.line(&line)?;
                }
                Ok(())
            }
            Event::Decided(approval) => self.line(&cards::decision_line(approval, self.width)),
            Event::Question(question) => cards::question(question, self.width)
                .iter()
                .try_for_each(|line| self.line(line)),
            Event::Submission(submission) if submission.state == "unanswered" => {
                self.outcome = "unanswered";
                self.line(&Line::new(Style::Bad, cards::unanswered(submission)))
            }
            Event::RunBegan(_) => {
                self.outcome = "done";
                Ok(())
            }
            Event::Call(_) | Event::Output { .. } | Event::Thinking(_) | Event::Submission(_) => {
                Ok(())
            }
            Event::RunEnded(run) => {
                let card = cards::run_card(run, self.outcome, now_ms());
                self.line(&card)
            }
            Event::Worked(child) => self.line(&cards::child_line(child, self.width)),
        }
    }

    /// Prints all events of one frame.
    pub fn events(&mut self, events: &[Event]) -> std::io::Result<()> {
        events.iter().try_for_each(|event| self.event(event))?;
        self.out.flush()
    }

    fn entry(&mut self, entry: &Entry) -> std::io::Result<()> {
        match entry.kind.as_str() {
            "pi.assistant" => self.answer_entry(entry),
            "pi.user" if self.inputs == Inputs::Shown => {
                self.end_line()?;
                for text in sanitize(&entry.text).lines() {
                    self.line(&Line::new(Style::Accent, format!("> {text}")))?;
                }
                Ok(())
            }
            "pi.compaction" => self.line(&cards::compaction_line(entry, self.width)),
            "pi.user" | "pi.system" | "pi.tool-result" => Ok(()),
            kind => {
                let text = format!("({}) {}", one_line(kind, 40), one_line(&entry.text, 200));
                self.line(&Line::new(Style::Dim, text))
            }
        }
    }

    /// The answer as it stands in the transcript: prints what was not streamed.
    fn answer_entry(&mut self, entry: &Entry) -> std::io::Result<()> {
        let streamed = std::mem::take(&mut self.streamed);
        match entry.text.strip_prefix(streamed.as_str()) {
            Some(rest) => self.answer(rest)?,
            None => {
                self.end_line()?;
                self.answer(&entry.text)?;
            }
        }
        self.end_line()?;
        self.sanitizer = Sanitizer::default();
        match cards::entry_state(entry) {
            None => Ok(()),
            Some(text) => self.line(&Line::new(Style::Notice, text)),
        }
    }

    fn answer(&mut self, text: &str) -> std::io::Result<()> {
        let text = self.sanitizer.push(text);
        if text.is_empty() {
            return Ok(());
        }
        self.mid_line = !text.ends_with('\n');
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    fn end_line(&mut self) -> std::io::Result<()> {
        if std::mem::take(&mut self.mid_line) {
            writeln!(self.out)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use mooring_wire::harness::{Approval, Call, Run, Submission};

    fn printed(inputs: Inputs, frames: &[Vec<Event>]) -> String {
        let mut out = Vec::new();
        let mut printer = Printer::new(&mut out, Colours::Off, inputs, 80);
        for events in frames {
            printer.events(events).unwrap();
        }
        String::from_utf8(out).unwrap()
    }

    fn entry(kind: &str, text: &str) -> Event {
        Event::Entry(Entry {
            kind: kind.into(),
            text: text.into(),
            ..Entry::default()
        })
    }

    #[test]
    fn a_streamed_answer_is_printed_once() {
        let answer = |text: &str| Event::Answer(text.into());
        for (name, events, expected) in [
            (
                "not streamed",
                vec![entry("pi.assistant", "hello")],
                "hello\n",
            ),
            (
                "streamed whole",
                vec![answer("hel"), answer("lo"), entry("pi.assistant", "hello")],
                "hello\n",
            ),
            (
                "streamed in part",
                vec![answer("hel"), entry("pi.assistant", "hello\n")],
                "hello\n",
            ),
            (
                "changed at the end",
                vec![answer("help"), entry("pi.assistant", "hello")],
                "help\nhello\n",
            ),
            (
                "begun anew",
                vec![
                    answer("hel"),
                    Event::AnswerVoid,
                    answer("hi"),
                    entry("pi.assistant", "hi"),
                ],
                "hel\n(the answer broke off; the model is asked again)\nhi\n",
            ),
            ("empty", vec![entry("pi.assistant", "")], ""),
        ] {
            assert_eq!(printed(Inputs::Hidden, &[events]), expected, "{name}");
        }
    }

    #[test]
    fn a_run_reads_from_input_to_card() {
        let call = |state: &str| {
            Event::Call(Call {
                tool: "bash".into(),
                summary: "rm -rf build".into(),
                state: state.into(),
                ..Call::default()
            })
        };
        let approval = Approval {
            id: "ap-1".into(),
            tool: "bash".into(),
            summary: "rm -rf build".into(),
            rule: "bash \"rm -rf *\"".into(),
            ..Approval::default()
        };
        let approved = Approval {
            state: "approved".into(),
            decided_by: "local:ann".into(),
            ..approval.clone()
        };
        let run = Run {
            turns: 2,
            tool_calls: 1,
            ..Run::default()
        };
        let text = printed(
            Inputs::Shown,
            &[
                vec![
                    Event::RunBegan(Run::default()),
                    entry("pi.user", "clean\u{1b}[2J up"),
                ],
                vec![Event::Answer("I will ".into()), call("proposed")],
                vec![
                    entry("pi.assistant", "I will remove it."),
                    call("waiting-approval"),
                    Event::Asked(approval),
                ],
                vec![Event::Decided(approved), call("running"), call("done")],
                vec![entry("pi.tool-result", "")],
                vec![entry("pi.assistant", "Done."), Event::RunEnded(run)],
            ],
        );
        assert_eq!(
            text,
            "> clean up\nI will remove it.\n? approval ap-1  bash\n  │ rm -rf build\n  \
             asked by bash \"rm -rf *\"\nap-1 approved by local:ann\n✓ bash rm -rf build\nDone.\n\
             [done] 2 turns · 1 tool\n"
        );
    }

    #[test]
    fn an_unanswered_input_is_told_before_its_card() {
        let submission = Submission {
            state: "unanswered".into(),
            reason: "model_error".into(),
            detail: "overloaded".into(),
            ..Submission::default()
        };
        let run = Run {
            turns: 1,
            ..Run::default()
        };
        let text = printed(
            Inputs::Hidden,
            &[vec![Event::Submission(submission), Event::RunEnded(run)]],
        );
        assert_eq!(
            text,
            "unanswered: the model's service failed: overloaded\n[unanswered] 1 turn\n"
        );
    }
}
