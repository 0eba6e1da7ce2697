//! A streaming answer, cut into lines that can be printed for good.

use crate::style::Line;
use crate::text::{Sanitizer, wrap};

/// Bytes of a line without an end; a longer one is broken there.
const LINE_MAX: usize = 16 << 10;

/// A streaming answer.
#[derive(Debug, Default)]
pub struct Answer {
    /// What came, as it came.
    raw: String,
    sanitizer: Sanitizer,
    /// The visible text of the line that is not ended.
    line: String,
    /// The width at which that line is wrapped.
    width: usize,
    /// How many of its rows were given out.
    given: usize,
}

impl Answer {
    /// Takes more of it in; returns the rows that will not change any more.
    pub fn push(&mut self, text: &str, width: usize) -> Vec<Line> {
        self.raw.push_str(text);
        let text = self.sanitizer.push(text);
        let mut rows = Vec::new();
        for piece in text.split_inclusive('\n') {
            if self.line.is_empty() {
                self.width = width;
                self.given = 0;
            }
            match piece.strip_suffix('\n') {
                Some(piece) => {
                    self.line.push_str(piece);
                    rows.extend(self.end_line());
                }
                None => self.line.push_str(piece),
            }
            if self.line.len() > LINE_MAX {
                rows.extend(self.end_line());
            }
        }
        let wrapped = wrap(&self.line, self.width);
        // The last word may still grow and move to the next row.
        let sure = wrapped.len().saturating_sub(2).max(self.given);
        rows.extend(
            wrapped[self.given.min(sure)..sure.min(wrapped.len())]
                .iter()
                .map(Line::plain),
        );
        self.given = sure;
        rows
    }

    /// The answer as it stands in the transcript: returns what was not given out.
    pub fn end(&mut self, whole: &str, width: usize) -> Vec<Line> {
        let mut rows = match whole.strip_prefix(self.raw.as_str()) {
            Some(rest) => {
                let rest = rest.to_owned();
                self.push(&rest, width)
            }
            None => {
                let mut rows = self.void();
                rows.extend(self.push(whole, width));
                rows
            }
        };
        rows.extend(self.void());
        rows
    }

    /// Gives up what came; returns the rows of it that were not given out.
    pub fn void(&mut self) -> Vec<Line> {
        let rows = if self.line.is_empty() {
            Vec::new()
        } else {
            self.end_line()
        };
        *self = Answer::default();
        rows
    }

    /// Rows that may still change.
    pub fn open_rows(&self) -> Vec<Line> {
        if self.line.is_empty() {
            return Vec::new();
        }
        wrap(&self.line, self.width)
            .into_iter()
            .skip(self.given)
            .map(Line::plain)
            .collect()
    }

    fn end_line(&mut self) -> Vec<Line> {
        let line = std::mem::take(&mut self.line);
        let given = std::mem::take(&mut self.given);
        wrap(&line, self.width)
            .into_iter()
            .skip(given)
            .map(Line::plain)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(lines: &[Line]) -> Vec<String> {
        lines.iter().map(Line::text).collect()
    }

    #[test]
    fn however_an_answer_is_cut_its_rows_are_the_same() {
        let whole = "First a paragraph that is longer than one row of this screen.\n\n\
                     * a list, with 漢字漢字漢字漢字漢字漢字 in it\n    indented code that is long as well\nend";
        for width in [8, 20, 33, 100] {
            let expected = wrap(whole, width);
            for step in [1, 2, 3, 7, 50, 500] {
                let mut answer = Answer::default();
                let mut rows = Vec::new();
                let characters: Vec<char> = whole.chars().collect();
                for piece in characters.chunks(step) {
                    rows.extend(answer.push(&piece.iter().collect::<String>(), width));
                    assert!(answer.open_rows().len() <= 3);
                }
                rows.extend(answer.end(whole, width));
                assert_eq!(texts(&rows), expected, "width {width}, step {step}");
                assert!(answer.open_rows().is_empty());
            }
        }
    }

    #[test]
    fn an_answer_that_ends_otherwise_is_given_whole() {
        let mut answer = Answer::default();
        answer.push("hel", 20);
        assert_eq!(texts(&answer.end("hello", 20)), ["hello"]);
        answer.push("help", 20);
        assert_eq!(texts(&answer.end("hello", 20)), ["help", "hello"]);
        assert_eq!(texts(&answer.end("", 20)), Vec::<String>::new());
    }

    #[test]
    fn a_line_without_end_is_followed_in_bounded_memory() {
        let mut answer = Answer::default();
        let mut rows = 0;
        for _ in 0..1000 {
            rows += answer.push(&"x".repeat(100), 50).len();
            assert!(answer.line.len() <= LINE_MAX);
        }
        assert!(rows > 1900, "{rows}");
    }
}
