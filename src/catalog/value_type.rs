//! How the programs read the values of their flags: by Go's own parsers. Pure.

use std::net::IpAddr;

use crate::model::go_duration;

/// The type of a flag's value. Text, lists and maps are none of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ValueType {
    /// `strconv.ParseBool`.
    Bool,
    /// `strconv.ParseInt` with base 0.
    Int,
    /// `strconv.ParseUint` with base 0.
    Uint,
    /// `strconv.ParseFloat`.
    Float,
    /// `time.ParseDuration`.
    Duration,
    /// `net.ParseIP`.
    Ip,
}

impl ValueType {
    /// Each of them.
    pub const ALL: [Self; 6] = [
        Self::Bool,
        Self::Int,
        Self::Uint,
        Self::Float,
        Self::Duration,
        Self::Ip,
    ];

    /// As the list of types calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Float => "float",
            Self::Duration => "duration",
            Self::Ip => "ip",
        }
    }

    /// What a value must be, as a fragment of a sentence.
    pub const fn form(self) -> &'static str {
        match self {
            Self::Bool => "`true` or `false`",
            Self::Int => "a whole number",
            Self::Uint => "a whole number, 0 or more",
            Self::Float => "a number",
            Self::Duration => "a duration like `30s` or `1h30m`",
            Self::Ip => "an IP address",
        }
    }

    /// Whether a program reads this text as a value of the type.
    pub fn takes(self, text: &str) -> bool {
        match self {
            Self::Bool => go_bool(text).is_some(),
            Self::Int => {
                let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
                go_uint(digits).is_some()
            }
            Self::Uint => go_uint(text).is_some(),
            // Rust reads everything that Go reads but a mantissa in hexadecimal.
            Self::Float => text.parse::<f64>().is_ok() || text.contains(['x', 'X']),
            Self::Duration => go_duration(text.strip_prefix('-').unwrap_or(text)).is_some(),
            Self::Ip => text.trim().parse::<IpAddr>().is_ok(),
        }
    }
}

/// A bool as Go's `strconv.ParseBool` reads it.
pub fn go_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// A number as Go's `strconv.ParseUint` reads it with base 0: `8080`, `0x1f`, `0o17`, `017`, `0b1`, `1_000`.
pub fn go_uint(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let (digits, radix) = if let Some(digits) = lower.strip_prefix("0x") {
        (digits, 16)
    } else if let Some(digits) = lower.strip_prefix("0b") {
        (digits, 2)
    } else if let Some(digits) = lower.strip_prefix("0o") {
        (digits, 8)
    } else if let Some(digits) = lower.strip_prefix('0').filter(|rest| !rest.is_empty()) {
        (digits, 8)
    } else {
        (lower.as_str(), 10)
    };
    let digits = digits.replace('_', "");
    if digits.starts_with(['+', '-']) {
        return None;
    }
    u64::from_str_radix(&digits, radix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each was given to `strconv`, `time` and `net` of Go as well.
    #[test]
    fn values_are_read_as_go_reads_them() {
        let cases: [(ValueType, &[&str], &[&str]); 6] = [
            (
                ValueType::Bool,
                &["true", "False", "T", "0"],
                &["yes", "on", "tRUE", " true"],
            ),
            (
                ValueType::Int,
                &["0", "-1", "+7", "0x1F", "017", "0o17", "0b1", "1_000"],
                &["", "many", "1.5", "08", "1 ", "--1", "0x", "-+1"],
            ),
            (ValueType::Uint, &["0", "8080"], &["-1", "+1", "1s"]),
            (
                ValueType::Float,
                &["50", "-1.5", "1e3", ".5", "0x1p-2"],
                &["", "50%", "fast"],
            ),
            (
                ValueType::Duration,
                &["0", "10s", "-1s", "1h30m", "1.5s", "100ms"],
                &["", "4 hours", "10", "1d", "s", "--1s"],
            ),
            (
                ValueType::Ip,
                &["0.0.0.0", "::", " 10.0.0.1"],
                &[
                    "10.0.0",
                    "localhost",
                    "10.0.0.1:80",
                    "10.0.0.01",
                    "fe80::1%eth0",
                ],
            ),
        ];
        for (kind, taken, refused) in cases {
            for text in taken {
                assert!(kind.takes(text), "{kind:?} takes {text:?}");
            }
            for text in refused {
                assert!(!kind.takes(text), "{kind:?} refuses {text:?}");
            }
        }
    }
}
