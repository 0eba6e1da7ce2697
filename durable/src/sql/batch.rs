//! A commit as a value: the rows of each table.

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
            /// The statement of each table, which writes one row: `?1` is the commit's
            /// number, the row's columns follow.
            pub const SQL: [&'static str; [$(stringify!($field)),+].len()] = [$($sql),+];

            /// The rows of each table, in the order of [`Batch::SQL`].
            pub fn tables(&self) -> [&Rows; Self::SQL.len()] {
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
