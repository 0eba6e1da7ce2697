//! Numbers for people: time, tokens, money, sizes.

use jiff::{Timestamp, tz::TimeZone};

/// Milliseconds since 1970, as the harness tells times.
pub fn now_ms() -> i64 {
    Timestamp::now().as_millisecond()
}

/// A length of time: `0.4 s`, `12 s`, `3 min 05 s`, `2 h 07 min`, `3 d 4 h`.
pub fn span(ms: i64) -> String {
    let ms = ms.max(0);
    let seconds = ms / 1000;
    match seconds {
        0..10 => format!("{}.{} s", seconds, ms % 1000 / 100),
        10..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// How long ago: `now`, `3 min ago`, `2 h ago`, `5 d ago`.
pub fn ago(now_ms: i64, then_ms: i64) -> String {
    match (now_ms - then_ms) / 1000 {
        ..60 => "now".into(),
        s @ 60..3600 => format!("{} min ago", s / 60),
        s @ 3600..86_400 => format!("{} h ago", s / 3600),
        s => format!("{} d ago", s / 86_400),
    }
}

/// A count of tokens: `812`, `4.2k`, `31k`, `1.2M`.
pub fn tokens(count: u64) -> String {
    match count {
        0..1000 => count.to_string(),
        1000..9950 => format!("{:.1}k", count as f64 / 1e3),
        9950..999_500 => format!("{:.0}k", count as f64 / 1e3),
        _ => format!("{:.1}M", count as f64 / 1e6),
    }
}

/// Millionths of a US dollar: `$0`, `$0.0042`, `$1.20`.
pub fn money(micros: i64) -> String {
    let sign = if micros < 0 { "-" } else { "" };
    let micros = micros.unsigned_abs();
    match micros {
        0 => "$0".into(),
        1..100 => format!("{sign}<$0.0001"),
        100..1_000_000 => format!("{sign}${:.4}", micros as f64 / 1e6),
        _ => format!("{sign}${:.2}", micros as f64 / 1e6),
    }
}

/// A cost that may not be known: no price is known of the model.
pub fn cost(micros: i64, known: bool) -> String {
    match (known, micros) {
        (true, _) => money(micros),
        (false, 0) => "cost unknown".into(),
        (false, _) => format!("at least {}", money(micros)),
    }
}

/// A size: `512 B`, `1.5 KiB`, `20 MiB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if value < 9.95 {
        format!("{value:.1} {}", UNITS[unit])
    } else {
        format!("{value:.0} {}", UNITS[unit])
    }
}

/// `1 turn`, `3 turns`.
pub fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// A moment in the local time zone: `14:05` today, else `2026-03-01 14:05`.
pub fn moment(now_ms: i64, then_ms: i64, zone: &TimeZone) -> String {
    let at = |ms| {
        Timestamp::from_millisecond(ms)
            .ok()
            .map(|time| time.to_zoned_datetime(zone.clone()))
    };
    match (at(now_ms), at(then_ms)) {
        (Some(now), Some(then)) if now.date() == then.date() => then.strftime("%H:%M").to_string(),
        (_, Some(then)) => then.strftime("%Y-%m-%d %H:%M").to_string(),
        _ => "at an unknown time".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        for (ms, text) in [
            (-5, "0.0 s"),
            (0, "0.0 s"),
            (449, "0.4 s"),
            (9_999, "9.9 s"),
            (12_345, "12 s"),
            (185_000, "3 min 05 s"),
            (3_599_999, "59 min 59 s"),
            (7_620_000, "2 h 07 min"),
            (273_600_000, "3 d 4 h"),
        ] {
            assert_eq!(span(ms), text, "{ms}");
        }
        for (seconds, text) in [
            (-9, "now"),
            (59, "now"),
            (61, "1 min ago"),
            (7200, "2 h ago"),
            (864_000, "10 d ago"),
        ] {
            assert_eq!(ago(seconds * 1000, 0), text, "{seconds}");
        }
    }

    #[test]
    fn tokens_and_sizes_are_short() {
        for (count, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1.0k"),
            (9_949, "9.9k"),
            (9_950, "10k"),
            (31_200, "31k"),
            (999_499, "999k"),
            (999_500, "1.0M"),
            (1_234_567, "1.2M"),
        ] {
            assert_eq!(tokens(count), text, "{count}");
        }
        for (count, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1536, "1.5 KiB"),
            (1024 * 1024 - 1, "1.0 MiB"),
            (20 << 20, "20 MiB"),
            (u64::MAX, "16384 PiB"),
        ] {
            assert_eq!(bytes(count), text, "{count}");
        }
    }

    #[test]
    fn money_shows_what_matters() {
        for (micros, text) in [
            (0, "$0"),
            (1, "<$0.0001"),
            (4_200, "$0.0042"),
            (999_999, "$1.0000"),
            (1_200_000, "$1.20"),
            (-1_200_000, "-$1.20"),
        ] {
            assert_eq!(money(micros), text, "{micros}");
        }
        assert_eq!(cost(0, false), "cost unknown");
        assert_eq!(cost(4_200, false), "at least $0.0042");
    }

    #[test]
    fn moments_of_today_have_no_date() {
        let zone = TimeZone::UTC;
        let noon = 1_772_366_700_000; // 2026-03-01 12:05 UTC
        assert_eq!(moment(noon, noon - 3_600_000, &zone), "11:05");
        assert_eq!(moment(noon, noon - 86_400_000, &zone), "2026-02-28 12:05");
        assert_eq!(moment(noon, i64::MAX, &zone), "at an unknown time");
    }
}
