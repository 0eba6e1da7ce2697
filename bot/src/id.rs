//! Discord's ids.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Discord's epoch, in milliseconds since 1970 (2015-01-01T00:00:00Z).
const EPOCH_MS: u64 = 1_420_070_400_000;

/// An id of a message, channel, user, role, guild or interaction. Ids grow with
/// time: the upper 42 bits are milliseconds since Discord's epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub u64);

impl Id {
    /// When it was made, in milliseconds since 1970.
    pub fn made_ms(self) -> u64 {
        (self.0 >> 22) + EPOCH_MS
    }

    /// The smallest id of that time.
    pub fn at_ms(ms: u64) -> Id {
        Id(ms.saturating_sub(EPOCH_MS) << 22)
    }

    /// The id just before it.
    pub fn before(self) -> Id {
        Id(self.0.saturating_sub(1))
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Id {
    type Err = std::num::ParseIntError;
    fn from_str(text: &str) -> Result<Id, Self::Err> {
        text.parse().map(Id)
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Id, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Id;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an id")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Id, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_u64<E: de::Error>(self, id: u64) -> Result<Id, E> {
                Ok(Id(id))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_id_tells_when_it_was_made() {
        // The example of Discord's documentation, "Snowflakes".
        assert_eq!(Id(175_928_847_299_117_063).made_ms(), 1_462_015_105_796);
        assert!(Id::at_ms(1_462_015_105_796) <= Id(175_928_847_299_117_063));
        assert_eq!(serde_json::from_str::<Id>("\"7\"").unwrap(), Id(7));
        assert_eq!(serde_json::to_string(&Id(7)).unwrap(), "\"7\"");
    }
}
