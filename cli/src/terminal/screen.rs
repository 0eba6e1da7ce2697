//! The screen: lines that scroll away for good, and below them a few that are
//! painted again whenever they change.

use std::io::Write;

use crate::style::{Colours, Line};

/// The part of a terminal that is painted again.
pub struct Screen<W> {
    out: W,
    colours: Colours,
    /// What is painted below the scrolled lines.
    live: Vec<Line>,
    cursor: Cursor,
}

/// Where the cursor is within the live lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The line.
    pub row: usize,
    /// The column.
    pub column: usize,
}

impl<W: Write> Screen<W> {
    /// Nothing is painted yet; the cursor is at the start of a row.
    pub fn new(out: W, colours: Colours) -> Self {
        Screen {
            out,
            colours,
            live: Vec::new(),
            cursor: Cursor::default(),
        }
    }

    /// Prints `above` for good and paints `live` below it. No line may be wider
    /// than the terminal.
    pub fn paint(
        &mut self,
        above: &[Line],
        live: Vec<Line>,
        cursor: Cursor,
    ) -> std::io::Result<()> {
        if above.is_empty() && live == self.live && cursor == self.cursor {
            return Ok(());
        }
        // Synchronized update: terminals that know it show the result only.
        let mut text = String::from("\u{1b}[?2026h\u{1b}[?25l\r");
        if self.cursor.row > 0 {
            text.push_str(&format!("\u{1b}[{}A", self.cursor.row));
        }
        text.push_str("\u{1b}[J");
        for line in above {
            text.push_str(&line.render(self.colours));
            text.push_str("\r\n");
        }
        for (at, line) in live.iter().enumerate() {
            if at > 0 {
                text.push_str("\r\n");
            }
            text.push_str(&line.render(self.colours));
        }
        text.push('\r');
        let up = live.len().saturating_sub(1).saturating_sub(cursor.row);
        if up > 0 {
            text.push_str(&format!("\u{1b}[{up}A"));
        }
        if cursor.column > 0 {
            text.push_str(&format!("\u{1b}[{}C", cursor.column));
        }
        text.push_str("\u{1b}[?25h\u{1b}[?2026l");
        self.live = live;
        self.cursor = cursor;
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    /// The terminal is `width` columns wide now and has wrapped what was painted.
    pub fn resized(&mut self, width: usize) {
        let width = width.max(1);
        let rows = |line: &Line| line.width().div_ceil(width).max(1);
        let before: usize = self.live.iter().take(self.cursor.row).map(rows).sum();
        self.cursor.row = before + self.cursor.column / width;
    }

    /// Clears the whole terminal; the next paint begins at its top.
    pub fn clear(&mut self) -> std::io::Result<()> {
        self.live.clear();
        self.cursor = Cursor::default();
        self.out.write_all(b"\x1b[2J\x1b[H")?;
        self.out.flush()
    }

    /// Takes the live lines away.
    pub fn close(&mut self, above: &[Line]) -> std::io::Result<()> {
        self.paint(above, Vec::new(), Cursor::default())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A terminal that knows what the screen uses of one.
    struct Terminal {
        width: usize,
        rows: Vec<Vec<char>>,
        row: usize,
        column: usize,
    }

    impl Terminal {
        fn new(width: usize) -> Self {
            Terminal {
                width,
                rows: vec![Vec::new()],
                row: 0,
                column: 0,
            }
        }
        fn feed(&mut self, bytes: &[u8]) {
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            let mut chars = text.chars();
            while let Some(c) = chars.next() {
                match c {
                    '\r' => self.column = 0,
                    '\n' => {
                        self.row += 1;
                        if self.row == self.rows.len() {
                            self.rows.push(Vec::new());
                        }
                    }
                    '\u{1b}' => {
                        assert_eq!(chars.next(), Some('['));
                        let mut number = String::new();
                        let last = loop {
                            match chars.next().unwrap() {
                                c if c.is_ascii_digit() || c == '?' => number.push(c),
                                c => break c,
                            }
                        };
                        match last {
                            'A' => self.row -= number.parse::<usize>().unwrap(),
                            'C' => self.column += number.parse::<usize>().unwrap(),
                            'J' => {
                                self.rows.truncate(self.row + 1);
                                self.rows[self.row].truncate(self.column);
                            }
                            'h' | 'l' | 'm' => {}
                            other => panic!("unknown sequence {other}"),
                        }
                    }
                    c => {
                        assert!(self.column < self.width, "a line is too wide");
                        let column = self.column;
                        let row = &mut self.rows[self.row];
                        if row.len() <= column {
                            row.resize(column + 1, ' ');
                        }
                        row[column] = c;
                        self.column += 1;
                    }
                }
            }
        }
        fn text(&self) -> Vec<String> {
            self.rows.iter().map(|row| row.iter().collect()).collect()
        }
    }

    fn lines(texts: &[&str]) -> Vec<Line> {
        texts.iter().map(|text| Line::plain(*text)).collect()
    }

    #[test]
    fn scrolled_lines_stay_and_live_ones_are_replaced() {
        let mut terminal = Terminal::new(20);
        let mut screen = Screen::new(Vec::new(), Colours::Off);
        for (above, live, cursor, shown) in [
            (vec![], vec!["state", "> "], (1, 2), vec!["state", "> "]),
            (
                vec!["one", "two"],
                vec!["state", "> a"],
                (1, 3),
                vec!["one", "two", "state", "> a"],
            ),
            (
                vec![],
                vec!["> a", "b", "hint"],
                (0, 1),
                vec!["one", "two", "> a", "b", "hint"],
            ),
            (
                vec!["three"],
                vec!["> "],
                (0, 2),
                vec!["one", "two", "three", "> "],
            ),
            (
                vec!["end"],
                vec![],
                (0, 0),
                vec!["one", "two", "three", "end", ""],
            ),
        ] {
            let cursor = Cursor {
                row: cursor.0,
                column: cursor.1,
            };
            let rows = live.len();
            screen.paint(&lines(&above), lines(&live), cursor).unwrap();
            terminal.feed(&std::mem::take(&mut screen.out));
            assert_eq!(terminal.text(), shown);
            assert_eq!(terminal.column, cursor.column);
            assert_eq!(terminal.rows.len() - terminal.row, rows.max(1) - cursor.row);
        }
    }

    #[test]
    fn nothing_is_written_when_nothing_changed() {
        let mut screen = Screen::new(Vec::new(), Colours::Off);
        screen
            .paint(&[], lines(&["> "]), Cursor { row: 0, column: 2 })
            .unwrap();
        screen.out.clear();
        screen
            .paint(&[], lines(&["> "]), Cursor { row: 0, column: 2 })
            .unwrap();
        assert!(screen.out.is_empty());
    }

    #[test]
    fn a_narrower_terminal_has_wrapped_the_live_lines() {
        // The first line takes 1, 1, 2 and 4 rows, the empty one always one.
        for (width, row) in [(20, 2), (10, 2), (5, 2 + 1 + 1), (3, 4 + 1 + 2)] {
            let mut screen = Screen::new(Vec::new(), Colours::Off);
            let live = lines(&["0123456789", "", "> abcd"]);
            screen
                .paint(&[], live, Cursor { row: 2, column: 6 })
                .unwrap();
            screen.resized(width);
            assert_eq!(screen.cursor.row, row, "{width}");
        }
    }
}
