//! What the demonstration says on the screen.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use super::Check;
use crate::error::Error;
use crate::style::{Line, Style, paragraph};
use crate::terminal::{self, Output};
use crate::text::sanitize;

/// Columns of a screen that is wider, or of none.
const WIDTH: usize = 100;
/// Columns in front of a text: the time, and who speaks.
const MARGIN: &str = "                   ";

/// How long a person at a terminal gets to read one thing.
const PACE: Duration = Duration::from_millis(600);

/// Tells what happens, each with the time since the beginning.
pub struct Teller {
    begun: Instant,
    screen: Output,
    pace: Option<Duration>,
}

impl Teller {
    /// Begins now.
    pub fn new() -> Teller {
        Teller {
            begun: Instant::now(),
            screen: terminal::stdout(),
            pace: std::io::stdout().is_terminal().then_some(PACE),
        }
    }

    fn width(&self) -> usize {
        self.screen.width.min(WIDTH)
    }

    fn put(&self, line: &Line) -> Result<(), Error> {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", line.render(self.screen.colours))?;
        Ok(out.flush()?)
    }

    async fn pause(&self) {
        if let Some(pace) = self.pace {
            tokio::time::sleep(pace).await;
        }
    }

    /// A paragraph without a time.
    pub async fn prose(&self, style: Style, text: &str) -> Result<(), Error> {
        for line in paragraph(style, &sanitize(text), "", self.width()) {
            self.put(&line)?;
        }
        self.pause().await;
        Ok(())
    }

    /// Something happens: who does it or says it, and what.
    pub async fn event(&self, who: &str, style: Style, text: &str) -> Result<(), Error> {
        let seconds = self.begun.elapsed().as_secs_f64();
        let head = format!("{seconds:>5.1} s  {who:<10} ");
        let text = sanitize(text);
        for (at, line) in paragraph(style, text.trim_end(), MARGIN, self.width())
            .into_iter()
            .enumerate()
        {
            let line = match at {
                0 => Line::new(Style::Dim, &head)
                    .with(style, line.text().trim_start_matches(' ').to_owned()),
                _ => line,
            };
            self.put(&line)?;
        }
        self.pause().await;
        Ok(())
    }

    /// What a check found.
    pub async fn check(&self, check: &Check) -> Result<(), Error> {
        let (mark, style) = match check.holds {
            true => ("✓", Style::Good),
            false => ("✗", Style::Bad),
        };
        let claim = paragraph(Style::Plain, &sanitize(&check.claim), "  ", self.width());
        for (at, line) in claim.into_iter().enumerate() {
            match at {
                0 => {
                    let text = line.text().trim_start().to_owned();
                    self.put(&Line::new(style, format!("{mark} ")).with(Style::Plain, text))?;
                }
                _ => self.put(&line)?,
            }
        }
        let seen = if check.holds { Style::Dim } else { Style::Bad };
        for line in paragraph(seen, &sanitize(&check.seen), "    ", self.width()) {
            self.put(&line)?;
        }
        self.pause().await;
        Ok(())
    }
}
