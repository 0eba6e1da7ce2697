//! The terminal: a conversation with keys and a screen, or in plain lines where
//! there is none.

mod act;
mod answer;
mod app;
mod editor;
mod history;
mod keys;
mod plain;
mod screen;
mod session;

use std::io::IsTerminal;

pub use app::talk as talk_at_keyboard;
pub use plain::talk as talk_in_lines;

use crate::style::Colours;

/// Columns where the output is no terminal: its reader wraps by itself.
const WIDTH_OF_A_FILE: usize = 10_000;
/// Columns of a terminal that does not tell.
const WIDTH_UNKNOWN: usize = 80;

/// What standard output can show.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// Whether it shows colours.
    pub colours: Colours,
    /// Its columns.
    pub width: usize,
}

/// What standard output can show.
pub fn stdout() -> Output {
    let is_terminal = std::io::stdout().is_terminal();
    let no_color = std::env::var("NO_COLOR").ok();
    let term = std::env::var("TERM").ok();
    let width = match crossterm::terminal::size() {
        _ if !is_terminal => WIDTH_OF_A_FILE,
        Ok((columns, _)) if columns > 0 => columns.into(),
        _ => WIDTH_UNKNOWN,
    };
    Output {
        colours: Colours::of(no_color.as_deref(), term.as_deref(), is_terminal),
        width,
    }
}
