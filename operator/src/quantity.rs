//! Kubernetes quantities (`10Gi`, `500m`), compared by value: the API server
//! writes them its own way.

/// The value of a quantity in thousandths, or nothing where it is none or out of range.
pub fn milli(text: &str) -> Option<i128> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '-' && c != '+');
    let (number, unit) = match unit_at {
        Some(at) => text.split_at(at),
        None => (text, ""),
    };
    let exponent = unit
        .strip_prefix(['e', 'E'])
        .filter(|digits| !digits.is_empty());
    let (numerator, denominator): (i128, i128) = match (unit, exponent) {
        ("m", _) => (1, 1),
        ("u", _) => (1, 1_000),
        ("n", _) => (1, 1_000_000),
        ("", _) => (1_000, 1),
        ("k", _) => (1_000_000, 1),
        ("M", _) => (1_000_000_000, 1),
        ("G", _) => (1_000_000_000_000, 1),
        ("T", _) => (1_000_000_000_000_000, 1),
        ("P", _) => (1_000_000_000_000_000_000, 1),
        ("E", _) => (1_000_000_000_000_000_000_000, 1),
        ("Ki", _) => (1_000 << 10, 1),
        ("Mi", _) => (1_000 << 20, 1),
        ("Gi", _) => (1_000 << 30, 1),
        ("Ti", _) => (1_000 << 40, 1),
        ("Pi", _) => (1_000 << 50, 1),
        ("Ei", _) => (1_000 << 60, 1),
        (_, Some(digits)) => {
            let exponent: i32 = digits.parse().ok()?;
            let power = 10i128.checked_pow(exponent.unsigned_abs().min(30))?;
            if exponent >= 0 {
                (power.checked_mul(1_000)?, 1)
            } else {
                (1_000, power)
            }
        }
        _ => return None,
    };
    let (negative, number) = match number.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.len() > 12 || whole.len() > 20 {
        return None;
    }
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let scale = 10i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let value = digits
        .checked_mul(numerator)?
        .checked_div(denominator.checked_mul(scale)?)?;
    Some(if negative { -value } else { value })
}

/// Whether two texts are the same quantity.
pub fn same(a: &str, b: &str) -> bool {
    a == b || matches!((milli(a), milli(b)), (Some(a), Some(b)) if a == b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_their_values_and_other_texts_none() {
        for (text, value) in [
            ("1", Some(1_000)),
            ("500m", Some(500)),
            ("0.5", Some(500)),
            ("1k", Some(1_000_000)),
            ("2Gi", Some(2_147_483_648_000)),
            ("1.5Gi", Some(1_610_612_736_000)),
            ("1e3", Some(1_000_000)),
            ("12E2", Some(1_200_000)),
            ("1E", Some(1_000_000_000_000_000_000_000)),
            ("-1", Some(-1_000)),
            ("", None),
            (".", None),
            ("1.2.3", None),
            ("big", None),
            ("1KB", None),
            ("99999999999999999999999", None),
        ] {
            assert_eq!(milli(text), value, "{text}");
        }
        assert!(same("1024Mi", "1Gi") && same("1000m", "1") && !same("1Gi", "1G"));
    }
}
