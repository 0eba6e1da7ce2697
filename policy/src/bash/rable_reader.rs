//! Reads with rable.

use std::borrow::Cow;

use rable::{Node, NodeKind};

use super::outline::{Outline, RawHereDoc, RawRedirect, RawWord, Reading, Trouble};

/// Texts up to this many bytes are parsed on the caller's stack; longer ones may
/// nest so deeply (a list of commands is a nested list to rable) that parsing,
/// walking and dropping need a larger one, unless they have no more characters that
/// may open a level than a short text has.
const SMALL: usize = 256;
const FEW_JOINTS: usize = 128;
const LARGE_STACK: usize = 256 << 20;

/// What rable sees, or why it refuses.
pub(crate) fn read(text: &str) -> Result<Reading<'static>, String> {
    if text.len() <= SMALL || is_flat(text) {
        return read_here(text);
    }
    // Virtual memory: only the pages that are touched are used.
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .stack_size(LARGE_STACK)
            .spawn_scoped(scope, || read_here(text))
            .map_err(|error| format!("no thread to parse in: {error}"))?
            .join()
            .unwrap_or_else(|_| Err("the parser panicked".to_owned()))
    })
}

/// Whether few characters of a text may open a level. What may be arithmetic, where
/// every operator opens one, is not counted.
fn is_flat(text: &str) -> bool {
    let joins = |byte: &u8| {
        !(byte.is_ascii_alphanumeric() || !byte.is_ascii() || b" \t_-./:,@%'\"~".contains(byte))
    };
    !text.contains("((") && text.as_bytes().iter().filter(|byte| joins(byte)).count() <= FEW_JOINTS
}

fn read_here(text: &str) -> Result<Reading<'static>, String> {
    let nodes = rable::parse(text, true).map_err(|error| error.to_string())?;
    let mut walk = Walk::default();
    for node in &nodes {
        walk.node(node);
    }
    Ok(walk.0)
}

#[derive(Default)]
struct Walk(Reading<'static>);

impl Walk {
    fn outline(&mut self) -> &mut Outline<'static> {
        &mut self.0.outline
    }

    fn trouble(&mut self, why: &str) {
        self.0.troubles.push(Trouble::new(0, usize::MAX, why));
    }

    fn node(&mut self, node: &Node) {
        match &node.kind {
            NodeKind::Command {
                assignments,
                words,
                redirects,
            } => {
                for assignment in assignments {
                    if let Some(word) = self.word(assignment) {
                        self.outline().assignments.push(word);
                    }
                }
                let words: Vec<_> = words.iter().filter_map(|word| self.word(word)).collect();
                if !words.is_empty() {
                    self.outline().commands.push(words);
                }
                self.redirects(redirects);
            }
            NodeKind::Pipeline { commands, .. } => self.nodes(commands),
            NodeKind::List { items } => {
                for item in items {
                    self.node(&item.command);
                }
            }
            NodeKind::If {
                condition,
                then_body,
                else_body,
                redirects,
            } => {
                self.node(condition);
                self.node(then_body);
                if let Some(body) = else_body {
                    self.node(body);
                }
                self.redirects(redirects);
            }
            NodeKind::While {
                condition,
                body,
                redirects,
            }
            | NodeKind::Until {
                condition,
                body,
                redirects,
            } => {
                self.node(condition);
                self.node(body);
                self.redirects(redirects);
            }
            NodeKind::For {
                var,
                words,
                body,
                redirects,
            }
            | NodeKind::Select {
                var,
                words,
                body,
                redirects,
            } => {
                self.outline().variables.push(var.clone());
                self.data(words.as_deref().unwrap_or_default());
                self.node(body);
                self.redirects(redirects);
            }
            NodeKind::ForArith {
                init,
                cond,
                incr,
                body,
                redirects,
            } => {
                for part in [init, cond, incr] {
                    self.outline().arithmetic.push(part.trim().to_owned());
                }
                self.node(body);
                self.redirects(redirects);
            }
            NodeKind::Case {
                word,
                patterns,
                redirects,
            } => {
                self.data(std::slice::from_ref(word));
                for pattern in patterns {
                    self.data(&pattern.patterns);
                    if let Some(body) = &pattern.body {
                        self.node(body);
                    }
                }
                self.redirects(redirects);
            }
            NodeKind::Function { name, body } => {
                self.outline().functions.push(name.clone());
                self.node(body);
            }
            NodeKind::Subshell { body, redirects } | NodeKind::BraceGroup { body, redirects } => {
                self.node(body);
                self.redirects(redirects);
            }
            NodeKind::Coproc { command, .. } => self.node(command),
            NodeKind::Negation { pipeline } | NodeKind::Time { pipeline, .. } => {
                self.node(pipeline);
            }
            NodeKind::ArithmeticCommand {
                raw_content,
                redirects,
                ..
            } => {
                self.outline().arithmetic.push(raw_content.clone());
                self.redirects(redirects);
            }
            NodeKind::ConditionalExpr { body, redirects } => {
                self.test(body);
                self.redirects(redirects);
            }
            NodeKind::Empty | NodeKind::Comment { .. } => {}
            _ => self.trouble("a construct that is not handled"),
        }
    }

    fn nodes(&mut self, nodes: &[Node]) {
        for node in nodes {
            self.node(node);
        }
    }

    fn data(&mut self, nodes: &[Node]) {
        for node in nodes {
            if let Some(word) = self.word(node) {
                self.outline().data.push(word);
            }
        }
    }

    fn test(&mut self, node: &Node) {
        match &node.kind {
            NodeKind::UnaryTest { op, operand } => {
                self.outline().tests.push(op.clone());
                self.test(operand);
            }
            NodeKind::BinaryTest { op, left, right } => {
                self.test(left);
                self.outline().tests.push(op.clone());
                self.test(right);
            }
            NodeKind::CondAnd { left, right } | NodeKind::CondOr { left, right } => {
                self.test(left);
                self.test(right);
            }
            NodeKind::CondNot { operand } => self.test(operand),
            NodeKind::CondParen { inner } => self.test(inner),
            NodeKind::CondTerm { value, .. } => {
                self.outline().data.push(RawWord {
                    text: Cow::Owned(value.clone()),
                    at: 0,
                });
            }
            NodeKind::Word { .. } => self.data(std::slice::from_ref(node)),
            _ => self.trouble("a construct in [[ ]] that is not handled"),
        }
    }

    fn word(&mut self, node: &Node) -> Option<RawWord<'static>> {
        match &node.kind {
            NodeKind::Word { value, .. } => Some(RawWord {
                text: Cow::Owned(value.clone()),
                at: 0,
            }),
            _ => {
                self.trouble("a word that is not handled");
                None
            }
        }
    }

    fn redirects(&mut self, nodes: &[Node]) {
        for node in nodes {
            match &node.kind {
                NodeKind::Redirect {
                    op,
                    target,
                    fd,
                    varfd,
                } => {
                    if varfd.is_some() {
                        self.trouble("a redirect to a descriptor that is named by a variable");
                    }
                    if let Some(target) = self.word(target) {
                        let op = Cow::Owned(op.clone());
                        self.outline().redirects.push(RawRedirect {
                            op,
                            fd: *fd,
                            target,
                        });
                    }
                }
                NodeKind::HereDoc {
                    content,
                    quoted,
                    complete,
                    ..
                } => {
                    if !complete {
                        self.trouble("a here-document without its end");
                    }
                    self.outline().here_docs.push(RawHereDoc {
                        body: Cow::Owned(content.clone()),
                        at: 0,
                        quoted: *quoted,
                    });
                }
                _ => self.trouble("a redirect that is not handled"),
            }
        }
    }
}
