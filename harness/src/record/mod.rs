//! The harness's own tables in the engine's file. Their rows are written in the
//! engine's commits; each table's SQL stands beside its row type.

pub mod answer;
pub mod audit;
pub mod child;
pub mod egress;
pub mod grant;
pub mod outbox;
pub mod refused;
pub mod secret;
pub mod thread;
pub mod usage;

use mooring_durable::{Component, ledger::Bind};

/// The tables, by migration.
pub const COMPONENT: Component = Component {
    name: "mooring.harness",
    migrations: &[
        include_str!("migrations/0001.sql"),
        include_str!("migrations/0002.sql"),
        include_str!("migrations/0003.sql"),
        include_str!("migrations/0004.sql"),
        include_str!("migrations/0005.sql"),
    ],
};

fn text(value: impl Into<String>) -> Bind {
    Bind::Text(value.into())
}

fn optional(value: Option<impl Into<String>>) -> Bind {
    value.map_or(Bind::Null, |value| Bind::Text(value.into()))
}

fn number(value: Option<i64>) -> Bind {
    value.map_or(Bind::Null, Bind::Int)
}

fn json(value: &impl serde::Serialize) -> Bind {
    Bind::Text(serde_json::to_string(value).expect("records are always JSON"))
}
