//! The SQL texts of commits, each made once.

use std::{collections::HashMap, sync::Arc};

use crate::{
    ledger::{Bind, Statement},
    sql::{
        batch::{Shape, statements},
        placeholder::{Plain, plain},
    },
};

/// First in every commit: the owner's generation is checked, the clock and the counters move.
const SESSION: &str =
    "UPDATE session SET generation = ?, commit_no = ?, next_conversation = ?, next_entry = ?,
 next_task = ?, next_submission = ?;\n";

/// How a text is framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Frame {
    /// A whole transaction.
    Whole,
    /// The first part of a transaction.
    Open,
    /// One request of a transaction, in a savepoint.
    Savepoint,
}

/// Texts by what is in them.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    commits: HashMap<(Frame, Shape, Vec<&'static str>), Arc<str>>,
    components: HashMap<Vec<&'static str>, Arc<str>>,
    plain: HashMap<&'static str, Arc<Plain>>,
}

/// The set of texts is closed; components that make up new ones at run time only
/// lose the cache.
const MOST: usize = 1_000;

impl Texts {
    /// The plain form of a component's statement.
    pub fn plain(&mut self, sql: &'static str) -> Arc<Plain> {
        self.plain
            .entry(sql)
            .or_insert_with(|| Arc::new(plain(sql)))
            .clone()
    }

    /// The text of a commit: how the engine's rows and a component's statements are framed.
    pub fn commit(&mut self, frame: Frame, shape: Shape, extra: &[Statement]) -> Arc<str> {
        let key = (
            frame,
            shape,
            extra
                .iter()
                .map(|statement| statement.sql)
                .collect::<Vec<_>>(),
        );
        if let Some(text) = self.commits.get(&key) {
            return text.clone();
        }
        let mut text = String::new();
        text.push_str(match frame {
            Frame::Whole | Frame::Open => "BEGIN IMMEDIATE;\n",
            Frame::Savepoint => "SAVEPOINT request;\n",
        });
        text.push_str(SESSION);
        text.push_str(&statements(shape));
        self.append(&mut text, extra);
        text.push_str(match frame {
            Frame::Whole => "COMMIT",
            Frame::Open => "",
            Frame::Savepoint => "RELEASE request",
        });
        if self.commits.len() >= MOST {
            self.commits.clear();
        }
        let text: Arc<str> = text.into();
        self.commits.insert(key, text.clone());
        text
    }

    /// The text of a component's statements alone.
    pub fn component(&mut self, extra: &[Statement]) -> Arc<str> {
        let key = extra
            .iter()
            .map(|statement| statement.sql)
            .collect::<Vec<_>>();
        if let Some(text) = self.components.get(&key) {
            return text.clone();
        }
        let mut text = String::new();
        self.append(&mut text, extra);
        if self.components.len() >= MOST {
            self.components.clear();
        }
        let text: Arc<str> = text.into();
        self.components.insert(key, text.clone());
        text
    }

    fn append(&mut self, text: &mut String, extra: &[Statement]) {
        for statement in extra {
            text.push_str(&self.plain(statement.sql).text);
            text.push_str(";\n");
        }
    }

    /// The binds of a component's statements, in the order of their text.
    pub fn binds(&mut self, extra: Vec<Statement>, mut bind: impl FnMut(Bind)) {
        for statement in extra {
            let form = self.plain(statement.sql);
            for &at in &form.order {
                bind(statement.binds.get(at).cloned().unwrap_or(Bind::Null));
            }
        }
    }
}
