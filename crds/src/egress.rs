//! `spec.sandbox.egressLimits`: how much commands may send and fetch.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::duration::duration;

/// What a sandbox that is not proved to have no network means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum EgressVerification {
    /// Tools are refused until it is proved.
    #[default]
    Enforce,
    /// The status says so, and tools run all the same.
    Warn,
}

impl EgressVerification {
    /// Whether this is what an absent field means.
    pub fn is_default(&self) -> bool {
        *self == EgressVerification::Enforce
    }

    /// Whether tools run all the same.
    pub fn is_warn(self) -> bool {
        self == EgressVerification::Warn
    }
}

/// Bounds of the connections that the policy's egress table allows, for the whole
/// workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct EgressLimits {
    /// Connections at once.
    pub connections: u32,
    /// Bytes of a day (UTC), both ways together, as a number with or without `Ki`,
    /// `Mi` or `Gi` (`5Gi`).
    pub bytes_daily: String,
    /// How long one connection may last (`1h`).
    pub time: String,
}

impl Default for EgressLimits {
    fn default() -> Self {
        EgressLimits {
            connections: 200,
            bytes_daily: "5Gi".into(),
            time: "1h".into(),
        }
    }
}

impl EgressLimits {
    /// Whether they say no more than their absence.
    pub fn is_default(&self) -> bool {
        *self == EgressLimits::default()
    }

    /// `bytes_daily` as a number; `None` where it is none.
    pub fn bytes(&self) -> Option<u64> {
        let text = self.bytes_daily.as_str();
        let digits = text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit = match unit {
            "" => 1,
            "Ki" => 1 << 10,
            "Mi" => 1 << 20,
            "Gi" => 1 << 30,
            _ => return None,
        };
        number.parse::<u64>().ok()?.checked_mul(unit)
    }

    /// `time` as a duration; `None` where it is none.
    pub fn longest(&self) -> Option<Duration> {
        duration(&self.time).ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_numbers() {
        let limits = |bytes: &str, time: &str| EgressLimits {
            bytes_daily: bytes.into(),
            time: time.into(),
            ..EgressLimits::default()
        };
        for (text, bytes) in [
            ("5Gi", Some(5 << 30)),
            ("10Mi", Some(10 << 20)),
            ("64Ki", Some(64 << 10)),
            ("5", Some(5)),
            ("0", Some(0)),
            ("", None),
            ("Gi", None),
            ("1Ti", None),
            ("-1", None),
            ("99999999999Gi", None),
        ] {
            assert_eq!(limits(text, "1h").bytes(), bytes, "{text:?}");
        }
        let hour = Duration::from_secs(3600);
        for (text, time) in [
            ("1h", Some(hour)),
            ("60m", Some(hour)),
            ("never", None),
            ("x", None),
        ] {
            assert_eq!(limits("1", text).longest(), time, "{text:?}");
        }
    }
}
