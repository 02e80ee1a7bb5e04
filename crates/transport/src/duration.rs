//! Durations as people write them in a flag: `500ms`, `30s`, `2m`, `1h`.

use std::time::Duration;

use thiserror::Error;

/// Units and their milliseconds, `ms` before `m` and `s` because it ends like one and begins like the other.
const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

/// A day: longer waits are slips of the keyboard.
const LONGEST: Duration = Duration::from_secs(24 * 3_600);

/// A text that is no duration.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "duration {0:?} is not valid: write a whole number and a unit up to one day, for example 500ms, 30s, 2m, 1h"
)]
pub struct ParseDurationError(String);

/// Reads a whole number followed by `ms`, `s`, `m` or `h`; a bare `0` is allowed. For clap's `value_parser`.
pub fn parse_duration(text: &str) -> Result<Duration, ParseDurationError> {
    let error = || ParseDurationError(text.to_owned());
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let (number, unit) = UNITS
        .iter()
        .find_map(|(name, millis)| text.strip_suffix(name).map(|number| (number, *millis)))
        .ok_or_else(error)?;
    // `parse` alone would take a leading plus sign.
    if !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(error());
    }
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(unit))
        .map(Duration::from_millis)
        .filter(|duration| *duration <= LONGEST)
        .ok_or_else(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read() {
        for (text, millis) in
            [("0", 0), ("0s", 0), ("500ms", 500), ("30s", 30_000), ("2m", 120_000), ("24h", 86_400_000)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn anything_else_is_named() {
        for text in [
            "",
            "s",
            "30",
            "-1s",
            "+1s",
            "1.5s",
            "1 s",
            "25h",
            "99999999999999999999s",
            "18446744073709551615h",
        ] {
            let error = parse_duration(text).unwrap_err();
            assert!(error.to_string().starts_with(&format!("duration {text:?} is not valid")), "{error}");
        }
    }
}
