//! A commit as a value: the rows of each table.

use std::fmt::Write;

use super::{
    attempt, call, chunk, conversation, document, entry, open_work, row::Rows, submission, task,
};

macro_rules! tables {
    ($($(#[$doc:meta])* $field:ident = $sql:path),+ $(,)?) => {
        /// Rows of every table, in the order in which their statements run.
        #[derive(Debug, Default, Clone)]
        pub(crate) struct Batch {
            $($(#[$doc])* pub $field: Rows,)+
        }

        impl Batch {
            /// How many statements there are.
            const COUNT: usize = [$(stringify!($field)),+].len();
            /// Their texts.
            const SQL: [&'static str; Self::COUNT] = [$($sql),+];

            fn tables(&self) -> [&Rows; Self::COUNT] {
                [$(&self.$field),+]
            }
        }
    };
}

tables! {
    conversations = conversation::PUT,
    /// What forks see of their ancestors.
    inheritances = conversation::INHERIT,
    conversation_touches = conversation::TOUCH,
    conversation_models = conversation::MODEL,
    submissions = submission::INSERT,
    submission_moves = submission::MOVE,
    entries = entry::INSERT,
    parts = attempt::PUT_PART,
    attempts = attempt::PUT,
    attempt_ends = attempt::END,
    tasks = task::PUT,
    calls = call::PUT,
    call_debts = call::SETTLE_DEBT,
    open_puts = open_work::PUT,
    open_drops = open_work::DROP,
    chunks = chunk::INSERT,
    folds = chunk::FOLD,
    fold_drops = chunk::DROP_BELOW,
    chunk_drops = chunk::DROP,
    /// After the tasks, whose end retires documents.
    document_changes = document::CHANGE,
    document_forks = document::FORK,
}

/// Which tables a commit touches; names its SQL text.
pub(crate) type Shape = u32;

/// The lists of several commits, ready to bind.
#[derive(Debug)]
pub(crate) struct Lists {
    lists: [Vec<u8>; Batch::COUNT],
}

impl Lists {
    pub fn new() -> Lists {
        Lists {
            lists: std::array::from_fn(|_| Vec::new()),
        }
    }

    /// Adds the rows of one commit under its number.
    pub fn add(&mut self, batch: &Batch, commit: i64) {
        for (list, rows) in self.lists.iter_mut().zip(batch.tables()) {
            rows.write(commit, list);
        }
    }

    pub fn shape(&self) -> Shape {
        let mut shape = 0;
        for (at, list) in self.lists.iter().enumerate() {
            if !list.is_empty() {
                shape |= 1 << at;
            }
        }
        shape
    }

    /// The binds, in the order of the text of [`Lists::shape`].
    pub fn binds(self) -> impl Iterator<Item = String> {
        self.lists
            .into_iter()
            .filter(|list| !list.is_empty())
            .map(|mut list| {
                list.push(b']');
                String::from_utf8(list).expect("rows are written as JSON")
            })
    }
}

/// The statements of a shape; each takes one bind.
pub(crate) fn statements(shape: Shape) -> String {
    let mut text = String::new();
    for (at, sql) in Batch::SQL.iter().enumerate() {
        if shape & (1 << at) != 0 {
            writeln!(text, "{sql};").expect("writing to memory");
        }
    }
    text
}
