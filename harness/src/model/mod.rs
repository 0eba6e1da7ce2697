//! Models: from a Workspace's list to answers that stream.
//!
//! [`Catalog`] resolves names to models and follows the Workspace. A model
//! either asks a provider through the `genai` crate (`hosted`) or is the
//! built-in provider `rehearsal`, which is no language model.
//!
//! Rules:
//! - A request is sent with the settings that were pinned with it, so that a
//!   recovered request is the same request even when the Workspace changed.
//! - Keys live in a [`KeyStore`], in memory only, and appear in no log, error
//!   or `Debug` text.
//! - An answer is bounded in bytes and in silence; whatever goes wrong comes
//!   out as one of the engine's five model errors.

mod answer;
mod catalog;
mod context;
mod estimate;
mod failure;
mod hosted;
mod keys;
mod prices;
mod pulse;
pub mod rehearsal;
mod retry_after;
mod settings;
mod transport;

pub use catalog::{Catalog, CatalogError};
pub use keys::{KeyStore, NeededKey, key_name};
pub use prices::{ModelFacts, UsdMicros};
pub use settings::Settings;
pub use transport::Limits;
