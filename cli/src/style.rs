//! Lines with colours, which are left out where the output is no terminal.

use unicode_width::UnicodeWidthStr;

/// How a piece of text looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// As the terminal's own text.
    Plain,
    /// Less important.
    Dim,
    /// More important.
    Bold,
    /// Went well.
    Good,
    /// Went wrong.
    Bad,
    /// Needs a look.
    Notice,
    /// What a person said or can type.
    Accent,
}

impl Style {
    fn code(self) -> &'static str {
        match self {
            Style::Plain => "",
            Style::Dim => "2",
            Style::Bold => "1",
            Style::Good => "32",
            Style::Bad => "31",
            Style::Notice => "33",
            Style::Accent => "36",
        }
    }
}

/// Whether colours are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colours {
    /// They are.
    On,
    /// They are not: no terminal, or `NO_COLOR` is set.
    Off,
}

impl Colours {
    /// By the wish of the environment (<https://no-color.org>) and the output.
    pub fn of(no_color: Option<&str>, term: Option<&str>, is_terminal: bool) -> Colours {
        let unwanted = no_color.is_some_and(|value| !value.is_empty()) || term == Some("dumb");
        if is_terminal && !unwanted {
            Colours::On
        } else {
            Colours::Off
        }
    }
}

/// One line of the screen. Its text holds no control characters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line(Vec<(Style, String)>);

impl Line {
    /// A line of one style.
    pub fn new(style: Style, text: impl Into<String>) -> Line {
        Line(vec![(style, text.into())])
    }

    /// A line without style.
    pub fn plain(text: impl Into<String>) -> Line {
        Line::new(Style::Plain, text)
    }

    /// The line with more at its end.
    pub fn with(mut self, style: Style, text: impl Into<String>) -> Line {
        self.0.push((style, text.into()));
        self
    }

    /// The style that it begins with.
    pub fn style(&self) -> Style {
        self.0.first().map_or(Style::Plain, |(style, _)| *style)
    }

    /// Columns that it takes.
    pub fn width(&self) -> usize {
        self.0.iter().map(|(_, text)| text.width()).sum()
    }

    /// The line cut to `width` columns.
    pub fn cut(self, width: usize) -> Line {
        let mut left = width;
        let mut pieces = Vec::new();
        for (style, text) in self.0 {
            let columns = text.width();
            if columns > left {
                pieces.push((style, crate::text::cut(&text, left)));
                break;
            }
            left -= columns;
            pieces.push((style, text));
        }
        Line(pieces)
    }

    /// The line for a terminal or a file.
    pub fn render(&self, colours: Colours) -> String {
        let mut out = String::new();
        for (style, text) in &self.0 {
            match (colours, style.code()) {
                (Colours::Off, _) | (_, "") => out.push_str(text),
                (Colours::On, code) => {
                    out.push_str(&format!("\u{1b}[{code}m{text}\u{1b}[0m"));
                }
            }
        }
        out
    }

    /// Its text alone.
    pub fn text(&self) -> String {
        self.render(Colours::Off)
    }
}

/// Lines of one style, each wrapped to `width` behind an indentation.
pub fn paragraph(style: Style, text: &str, indent: &str, width: usize) -> Vec<Line> {
    crate::text::wrap(text, width.saturating_sub(indent.width()))
        .into_iter()
        .map(|line| Line::plain(indent).with(style, line))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_only_for_terminals_that_want_them() {
        for (no_color, term, is_terminal, colours) in [
            (None, Some("xterm"), true, Colours::On),
            (Some(""), None, true, Colours::On),
            (Some("1"), Some("xterm"), true, Colours::Off),
            (None, Some("dumb"), true, Colours::Off),
            (None, Some("xterm"), false, Colours::Off),
        ] {
            assert_eq!(
                Colours::of(no_color, term, is_terminal),
                colours,
                "{no_color:?} {term:?}"
            );
        }
    }

    #[test]
    fn a_line_is_cut_across_its_pieces() {
        let line = Line::new(Style::Bold, "abc").with(Style::Dim, "defg");
        for (width, text) in [
            (10, "abcdefg"),
            (7, "abcdefg"),
            (5, "abcd…"),
            (3, "abc"),
            (2, "a…"),
        ] {
            assert_eq!(line.clone().cut(width).text(), text, "{width}");
        }
        assert_eq!(
            line.render(Colours::On),
            "\u{1b}[1mabc\u{1b}[0m\u{1b}[2mdefg\u{1b}[0m"
        );
    }
}
