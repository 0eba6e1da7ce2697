//! Durations and money as a Workspace writes them.

use std::time::Duration;

/// Reads `90s`, `30m`, `4h`, `1d`, `1h30m`; `never` is `None`.
///
/// The error says what was wrong and what is right.
pub fn duration(text: &str) -> Result<Option<Duration>, String> {
    if text == "never" {
        return Ok(None);
    }
    let wrong = || format!("{text:?} is no duration; write for instance 90s, 30m, 4h, 1d or never");
    let mut seconds: u64 = 0;
    let mut digits = String::new();
    let mut units = 0;
    for c in text.chars() {
        if c.is_ascii_digit() {
            digits.push(c);
            continue;
        }
        let unit = match c {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86_400,
            _ => return Err(wrong()),
        };
        let count: u64 = digits.parse().map_err(|_| wrong())?;
        digits.clear();
        units += 1;
        seconds = count
            .checked_mul(unit)
            .and_then(|s| seconds.checked_add(s))
            .filter(|s| *s <= 3650 * 86_400)
            .ok_or_else(|| format!("{text:?} is longer than ten years; write never"))?;
    }
    if !digits.is_empty() || units == 0 {
        return Err(wrong());
    }
    Ok(Some(Duration::from_secs(seconds)))
}

/// Reads US dollars (`"2"`, `"2.50"`) as millionths.
pub fn usd_micros(text: &str) -> Result<i64, String> {
    let wrong = || format!("{text:?} is no amount of US dollars; write for instance \"2.50\"");
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || fraction.len() > 6 || !digits(whole) || !digits(fraction) {
        return Err(wrong());
    }
    let whole: i64 = whole.parse().map_err(|_| wrong())?;
    let fraction: i64 = format!("{fraction:0<6}").parse().map_err(|_| wrong())?;
    whole
        .checked_mul(1_000_000)
        .and_then(|w| w.checked_add(fraction))
        .ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_others_refused() {
        for (text, seconds) in [
            ("90s", 90),
            ("30m", 1800),
            ("4h", 14_400),
            ("1d", 86_400),
            ("1h30m", 5400),
        ] {
            assert_eq!(duration(text), Ok(Some(Duration::from_secs(seconds))));
        }
        assert_eq!(duration("never"), Ok(None));
        for text in ["", "4", "h", "4 h", "-1h", "4w", "99999999999999999999d"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn money_is_read_and_others_refused() {
        for (text, micros) in [("2", 2_000_000), ("2.50", 2_500_000), ("0.000001", 1)] {
            assert_eq!(usd_micros(text), Ok(micros));
        }
        for text in ["", ".5", "-1", "1.0000001", "1,5", "$3"] {
            assert!(usd_micros(text).is_err(), "{text}");
        }
    }
}
