//! The `retry-after` header.

use std::time::Duration;

use jiff::Timestamp;
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};

/// How long the provider asks to wait: `retry-after-ms`, or `retry-after` in
/// seconds or as an HTTP date (RFC 9110, 10.2.3). A date is held against the
/// answer's own `date`, so that a wrong clock here does not matter.
pub(super) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = |name| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .map(str::trim)
    };
    let number = |text: &str| {
        text.parse::<f64>()
            .ok()
            .filter(|n| n.is_finite() && *n >= 0.0)
    };
    if let Some(ms) = headers
        .get("retry-after-ms")
        .and_then(|v| v.to_str().ok())
        .and_then(number)
    {
        return Duration::try_from_secs_f64(ms / 1000.0).ok();
    }
    let after = text(RETRY_AFTER)?;
    if let Some(seconds) = number(after) {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = |text: &str| {
        jiff::fmt::rfc2822::parse(text)
            .ok()
            .map(|date| date.timestamp())
    };
    let then = date(after)?;
    let now = text(DATE).and_then(date).unwrap_or(now);
    Some(Duration::try_from(then.duration_since(now)).unwrap_or(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use reqwest::header::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn retry_after_is_read_in_all_its_forms() {
        let now: Timestamp = "2026-11-30T12:00:00Z".parse().unwrap();
        let rows = [
            ("retry-after: 7", Some(7.0)),
            ("retry-after: 0.25", Some(0.25)),
            ("retry-after-ms: 1500|retry-after: 7", Some(1.5)),
            ("retry-after: Mon, 30 Nov 2026 12:01:00 GMT", Some(60.0)),
            ("retry-after: Mon, 30 Nov 2026 11:00:00 GMT", Some(0.0)),
            (
                "retry-after: Mon, 30 Nov 2026 12:01:00 GMT|date: Mon, 30 Nov 2026 12:00:50 GMT",
                Some(10.0),
            ),
            ("retry-after: soon", None),
            ("retry-after: -1", None),
            ("content-length: 3", None),
        ];
        for (lines, seconds) in rows {
            let pairs = lines.split('|').filter_map(|line| line.split_once(": "));
            let headers = pairs
                .map(|(name, value)| {
                    (
                        HeaderName::try_from(name).unwrap(),
                        HeaderValue::try_from(value).unwrap(),
                    )
                })
                .collect();
            let read = retry_after(&headers, now).map(|d| d.as_secs_f64());
            assert_eq!(read, seconds, "{lines}");
        }
    }
}
