//! Reads with tree-sitter-bash.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::ControlFlow;

use tree_sitter::{Node, ParseOptions, ParseState, Parser, Tree};

use super::outline::{Outline, RawHereDoc, RawRedirect, RawWord, Reading, Trouble, join_lines};

thread_local! {
    static PARSER: RefCell<Option<Parser>> = RefCell::new(new_parser());
}

/// Statements nest at most this deeply; `&&` chains nest by one each.
const MAX_DEPTH: usize = 200;

fn new_parser() -> Option<Parser> {
    let mut parser = Parser::new();
    parser
        .set_language(&tree_sitter_bash::LANGUAGE.into())
        .ok()?;
    Some(parser)
}

fn parse(text: &str) -> Option<Tree> {
    PARSER.with_borrow_mut(|parser| {
        let parser = parser.as_mut()?;
        // The callback comes every few hundred steps. A parser that follows many
        // readings at once could need many more steps than there are bytes.
        let mut left = 64 + text.len() / 4;
        let mut stop = |_: &ParseState| {
            left = left.saturating_sub(1);
            if left == 0 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        let bytes = text.as_bytes();
        let tree = parser.parse_with_options(
            &mut |at, _| bytes.get(at..).unwrap_or_default(),
            None,
            Some(ParseOptions::new().progress_callback(&mut stop)),
        );
        if tree.is_none() {
            parser.reset();
        }
        tree
    })
}

pub(crate) fn parses(text: &str) -> bool {
    parse(text).is_some_and(|tree| !tree.root_node().has_error())
}

/// What tree-sitter-bash sees; errors in the text are troubles of the reading.
pub(crate) fn read(text: &str) -> Result<Reading<'_>, String> {
    let tree = parse(text).ok_or("tree-sitter-bash gave up")?;
    let mut walk = Walk {
        text,
        reading: Reading::default(),
        depth: 0,
    };
    let root = tree.root_node();
    if root.has_error() {
        walk.trouble(root, "tree-sitter-bash found an error");
    }
    walk.children(root);
    Ok(walk.reading)
}

struct Walk<'a> {
    text: &'a str,
    reading: Reading<'a>,
    depth: usize,
}

impl<'a> Walk<'a> {
    fn outline(&mut self) -> &mut Outline<'a> {
        &mut self.reading.outline
    }

    fn trouble(&mut self, node: Node<'_>, why: &str) {
        self.reading
            .troubles
            .push(Trouble::new(node.start_byte(), node.end_byte(), why));
    }

    fn raw(&self, node: Node<'_>) -> RawWord<'a> {
        let at = node.start_byte();
        RawWord {
            text: join_lines(self.text.get(at..node.end_byte()).unwrap_or_default()),
            at,
        }
    }

    fn children(&mut self, node: Node<'_>) {
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            self.node(child);
        }
    }

    fn node(&mut self, node: Node<'_>) {
        if !node.is_named() {
            return;
        }
        if self.depth >= MAX_DEPTH {
            self.trouble(node, "nested too deeply");
            return;
        }
        self.depth += 1;
        self.statement(node);
        self.depth -= 1;
    }

    fn statement(&mut self, node: Node<'_>) {
        match node.kind() {
            "list"
            | "pipeline"
            | "subshell"
            | "do_group"
            | "if_statement"
            | "elif_clause"
            | "else_clause"
            | "while_statement"
            | "negated_command"
            | "variable_assignments" => {
                self.children(node);
            }
            "command" => self.command(node),
            "redirected_statement" => self.redirected(node),
            "declaration_command" | "unset_command" => {
                let mut words = Vec::new();
                let mut cursor = node.walk();
                for child in node.children(&mut cursor) {
                    words.push(self.raw(child));
                }
                self.outline().commands.push(words);
            }
            "test_command" => self.test_command(node),
            "for_statement" => self.for_statement(node),
            "c_style_for_statement" => self.arithmetic_for(node),
            "case_statement" => self.case_statement(node),
            "function_definition" => {
                if let Some(name) = node.child_by_field_name("name") {
                    let name = self.raw(name).text.into_owned();
                    self.outline().functions.push(name);
                }
                let mut cursor = node.walk();
                for child in node.children(&mut cursor) {
                    match child.kind() {
                        "word" => {}
                        "file_redirect" | "herestring_redirect" => {
                            self.redirect(child);
                        }
                        _ => self.node(child),
                    }
                }
            }
            "compound_statement" => {
                if node.child(0).is_some_and(|first| first.kind() == "((") {
                    let (start, end) = (node.start_byte() + 2, node.end_byte().saturating_sub(2));
                    let text = self.text.get(start..end).unwrap_or_default().to_owned();
                    self.outline().arithmetic.push(text);
                } else {
                    self.children(node);
                }
            }
            "variable_assignment" => {
                let word = self.raw(node);
                self.outline().assignments.push(word);
            }
            "file_redirect" | "herestring_redirect" => {
                self.redirect(node);
            }
            "heredoc_redirect" => self.here_doc(node, None),
            "comment" => {}
            "ERROR" => {
                self.trouble(node, "tree-sitter-bash found an error");
                self.children(node);
            }
            other => self.trouble(node, &format!("a {other} that is not handled")),
        }
    }

    fn command(&mut self, node: Node<'_>) {
        let mut words: Vec<RawWord<'a>> = Vec::new();
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            match child.kind() {
                "variable_assignment" => {
                    let word = self.raw(child);
                    self.outline().assignments.push(word);
                }
                "file_redirect" | "herestring_redirect" => words.extend(self.redirect(child)),
                "subshell" => {
                    self.trouble(child, "a subshell as an argument");
                    self.node(child);
                }
                "comment" => {}
                "ERROR" => self.trouble(child, "tree-sitter-bash found an error"),
                _ => words.push(self.raw(child)),
            }
        }
        self.push_command(words);
    }

    /// `time` and `coproc` are words to this grammar, and keywords to bash.
    fn push_command(&mut self, mut words: Vec<RawWord<'a>>) {
        while let Some(first) = words.first() {
            match first.text.as_ref() {
                "time" => {
                    words.remove(0);
                    while words
                        .first()
                        .is_some_and(|word| matches!(word.text.as_ref(), "-p" | "--"))
                    {
                        words.remove(0);
                    }
                }
                "coproc" => {
                    words.remove(0);
                }
                _ => break,
            }
        }
        if !words.is_empty() {
            self.outline().commands.push(words);
        }
    }

    fn redirected(&mut self, node: Node<'_>) {
        let mut cursor = node.walk();
        let mut body = None;
        for child in node.children(&mut cursor) {
            match child.kind() {
                "file_redirect" | "herestring_redirect" => {
                    let extra = self.redirect(child);
                    self.extend_last(child, body, extra);
                }
                "heredoc_redirect" => self.here_doc(child, body),
                _ => {
                    let before = self.outline().commands.len();
                    self.node(child);
                    let one = self.outline().commands.len() == before + 1;
                    body = (child.kind() == "command" && one).then_some(before);
                }
            }
        }
    }

    /// `cmd > file more words`: the grammar takes the words for further targets.
    fn extend_last(&mut self, node: Node<'_>, body: Option<usize>, extra: Vec<RawWord<'a>>) {
        if extra.is_empty() {
            return;
        }
        match body.and_then(|at| self.reading.outline.commands.get_mut(at)) {
            Some(words) => words.extend(extra),
            None => {
                self.trouble(node, "words after a redirect");
                self.outline().commands.push(extra);
            }
        }
    }

    /// Adds a redirect; returns words that follow its target.
    fn redirect(&mut self, node: Node<'_>) -> Vec<RawWord<'a>> {
        let mut fd = -1;
        let mut op = "";
        let mut targets = Vec::new();
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            match child.kind() {
                "file_descriptor" => match self.text[child.byte_range()].parse() {
                    Ok(number) => fd = number,
                    Err(_) => self.trouble(child, "a redirect to a named descriptor"),
                },
                "ERROR" => self.trouble(child, "tree-sitter-bash found an error"),
                kind if !child.is_named() && op.is_empty() => {
                    op = &self.text[child.byte_range()];
                    let _ = kind;
                }
                _ => targets.push(self.raw(child)),
            }
        }
        let mut targets = targets.into_iter();
        let closing = op.ends_with("&-");
        let target = if closing {
            Some(RawWord {
                text: Cow::Borrowed("-"),
                at: node.start_byte(),
            })
        } else {
            targets.next()
        };
        let op = op.strip_suffix('-').unwrap_or(op);
        match target {
            Some(target) => {
                let op = Cow::Borrowed(op);
                self.outline()
                    .redirects
                    .push(RawRedirect { op, fd, target });
            }
            None => self.trouble(node, "a redirect without a target"),
        }
        targets.collect()
    }

    fn here_doc(&mut self, node: Node<'_>, body: Option<usize>) {
        let mut cursor = node.walk();
        let mut quoted = false;
        let mut extra = Vec::new();
        for child in node.children(&mut cursor) {
            match child.kind() {
                "heredoc_start" => {
                    quoted = self.text[child.byte_range()].contains(['\'', '"', '\\']);
                }
                "heredoc_body" => {
                    let at = child.start_byte();
                    let body = Cow::Borrowed(&self.text[child.byte_range()]);
                    self.outline()
                        .here_docs
                        .push(RawHereDoc { body, at, quoted });
                }
                "heredoc_end" | "file_descriptor" => {}
                "file_redirect" | "herestring_redirect" => extra.extend(self.redirect(child)),
                "word"
                | "string"
                | "raw_string"
                | "concatenation"
                | "number"
                | "simple_expansion"
                | "expansion"
                | "command_substitution" => {
                    extra.push(self.raw(child));
                }
                _ => self.node(child),
            }
        }
        self.extend_last(node, body, extra);
    }

    /// `for ((a; b; c))`: the three parts are arithmetic, the body is commands.
    fn arithmetic_for(&mut self, node: Node<'_>) {
        let mut cursor = node.walk();
        let (mut open, mut close, mut body) = (None, None, None);
        for child in node.children(&mut cursor) {
            match child.kind() {
                "((" => open = Some(child.end_byte()),
                "))" => close = Some(child.start_byte()),
                "do_group" | "compound_statement" => body = Some(child),
                _ => {}
            }
        }
        let parts = open
            .zip(close)
            .and_then(|(open, close)| self.text.get(open..close));
        let (Some(parts), Some(body)) = (parts, body) else {
            self.trouble(node, "a for loop over arithmetic");
            return;
        };
        for part in parts.split(';') {
            let part = part.trim().to_owned();
            self.outline().arithmetic.push(part);
        }
        self.node(body);
    }

    fn for_statement(&mut self, node: Node<'_>) {
        if let Some(name) = node.child_by_field_name("variable") {
            let name = self.raw(name).text.into_owned();
            self.outline().variables.push(name);
        }
        let mut cursor = node.walk();
        for (index, child) in node.children(&mut cursor).enumerate() {
            let field = node.field_name_for_child(index as u32);
            match field {
                Some("variable") => {}
                Some("value") => {
                    let word = self.raw(child);
                    self.outline().data.push(word);
                }
                _ => self.node(child),
            }
        }
    }

    fn case_statement(&mut self, node: Node<'_>) {
        let mut cursor = node.walk();
        for (index, child) in node.children(&mut cursor).enumerate() {
            if node.field_name_for_child(index as u32) == Some("value") {
                let word = self.raw(child);
                self.outline().data.push(word);
            } else if child.kind() == "case_item" {
                let mut items = child.walk();
                for (index, part) in child.children(&mut items).enumerate() {
                    if child.field_name_for_child(index as u32) == Some("value") {
                        let word = self.raw(part);
                        self.outline().data.push(word);
                    } else {
                        self.node(part);
                    }
                }
            } else {
                self.node(child);
            }
        }
    }

    fn test_command(&mut self, node: Node<'_>) {
        let double = node.child(0).is_some_and(|first| first.kind() == "[[");
        let mut words = Vec::new();
        self.flatten(node, &mut words, 0);
        if !double {
            self.outline().commands.push(words);
            return;
        }
        for word in words {
            match word.text.as_ref() {
                "[[" | "]]" | "(" | ")" | "&&" | "||" | "!" => {}
                op if is_test_operator(op) => {
                    let op = op.to_owned();
                    self.outline().tests.push(op);
                }
                _ => self.outline().data.push(word),
            }
        }
    }

    /// The words and operators of a test, in order.
    fn flatten(&mut self, node: Node<'_>, words: &mut Vec<RawWord<'a>>, depth: usize) {
        if depth > MAX_DEPTH {
            self.trouble(node, "nested too deeply");
            return;
        }
        match node.kind() {
            "test_command"
            | "unary_expression"
            | "binary_expression"
            | "parenthesized_expression" => {
                let mut cursor = node.walk();
                for child in node.children(&mut cursor) {
                    self.flatten(child, words, depth + 1);
                }
            }
            "redirected_statement" | "ternary_expression" | "postfix_expression" | "ERROR" => {
                self.trouble(node, "a test that is not handled");
                words.push(self.raw(node));
            }
            _ => words.push(self.raw(node)),
        }
    }
}

fn is_test_operator(text: &str) -> bool {
    matches!(text, "=" | "==" | "!=" | "=~" | "<" | ">")
        || text.strip_prefix('-').is_some_and(|name| {
            matches!(name.len(), 1 | 2) && name.bytes().all(|byte| byte.is_ascii_alphabetic())
        })
}
