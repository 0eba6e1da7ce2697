//! Ids. They come from counters that are stored in the file and never return,
//! not after retention and not after a restore.

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub i64);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// A transcript scope.
    ConversationId
}
id! {
    /// One immutable transcript item.
    EntryId
}
id! {
    /// One durable state machine.
    TaskId
}
id! {
    /// One input or write.
    SubmissionId
}
id! {
    /// The number of a commit: the clock for `asOf`, watching and audit.
    CommitNo
}

/// A random value of this file, renewed by restore and import. Whatever leaves
/// the file as an id contains it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Incarnation(pub String);

/// A caller's own id of a submission, unique within its conversation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestId(pub String);

/// SHA-256, in lower-case hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Hash(pub String);

impl Hash {
    /// The hash of `bytes`.
    pub fn of(bytes: &[u8]) -> Hash {
        use sha2::Digest;
        Hash(hex::encode(sha2::Sha256::digest(bytes)))
    }
}

/// A time: milliseconds since the Unix epoch, on the engine's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub i64);
