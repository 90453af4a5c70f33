//! The line of a log that says why a program exited or does not serve. Pure.

use super::printable;

/// Lines of a log that are read to find it: a panic's own line stands above its stack.
pub const LOG_CAUSE_LINES: u32 = 200;

/// A longer line is cut.
const LONGEST: usize = 300;

/// The line of a log that says why its program exited or does not serve: the last that is fatal, else the last
/// that is an error, else the last that says anything. `None` for an empty log.
pub fn log_cause(log: &str) -> Option<String> {
    let lines: Vec<&str> = log
        .lines()
        .map(str::trim)
        .filter(|it| !it.is_empty())
        .collect();
    let weighed = lines.iter().enumerate().filter(|(_, line)| !is_noise(line));
    // Of equal weight the last one: what came before it was survived.
    let (_, line) = weighed.max_by_key(|(at, line)| (weight(line), *at))?;
    Some(printable(&shortened(&without_prefix(line))).into_owned())
}

/// True where a program complains about a flag that it was given.
pub fn names_a_flag(line: &str) -> bool {
    const WORDS: [&str; 9] = [
        "unknown flag",
        "unknown shorthand",
        "invalid argument",
        "flag provided but not defined",
        "failed to parse kubelet flag",
        "unrecognized feature gate",
        "cannot set feature gate",
        "bad flag syntax",
        // `invalid value "maybe" for flag -v2-deprecation`: etcd, whose usage follows.
        "for flag -",
    ];
    WORDS.iter().any(|word| line.contains(word))
}

fn weight(line: &str) -> u8 {
    let lower = line.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    if names_a_flag(line) {
        5
    } else if has(&[
        "\"level\":\"fatal\"",
        "\"level\":\"panic\"",
        "panic:",
        "fatal error:",
    ]) || klog(line) == Some('F')
    {
        4
    } else if has(&["command failed", "failed to run", "run failed"]) || lower.starts_with("error:")
    {
        3
    } else if klog(line) == Some('E')
        || has(&[
            "\"level\":\"error\"",
            "level=error",
            "[error]",
            "[fatal]",
            "[emerg]",
        ])
    {
        2
    } else {
        u8::from(has(&[
            "error",
            "failed",
            "cannot",
            "refused",
            "denied",
            "timed out",
        ]))
    }
}

/// The letter of a line as klog writes it: `E1125 10:11:12.131415       1 file.go:12] text`.
fn klog(line: &str) -> Option<char> {
    let mut letters = line.chars();
    let first = letters
        .next()
        .filter(|it| matches!(it, 'I' | 'W' | 'E' | 'F'))?;
    let digits = letters
        .by_ref()
        .take(4)
        .filter(char::is_ascii_digit)
        .count();
    (digits == 4 && letters.next() == Some(' ')).then_some(first)
}

/// Lines of a stack and of a usage text, which follow what they belong to.
fn is_noise(line: &str) -> bool {
    const BEGINNINGS: [&str; 8] = [
        "goroutine ",
        "created by ",
        "runtime.",
        "main.main",
        "/",
        "Usage:",
        "See '",
        "--",
    ];
    let calls = line.ends_with(')') && line.contains(".(") && !line.contains(' ');
    calls
        || BEGINNINGS
            .iter()
            .any(|beginning| line.starts_with(beginning))
}

/// Without klog's time and place, and the message alone of a line that is JSON.
fn without_prefix(line: &str) -> String {
    if klog(line).is_some() {
        let text = line.split_once("] ").map_or(line, |(_, text)| text);
        return text.to_owned();
    }
    let Ok(fields) = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(line)
    else {
        return line.to_owned();
    };
    let text = |key: &str| fields.get(key).and_then(serde_json::Value::as_str);
    match (text("msg"), text("error")) {
        (Some(message), Some(error)) => format!("{message}: {error}"),
        (Some(message), None) => message.to_owned(),
        (None, _) => line.to_owned(),
    }
}

fn shortened(line: &str) -> String {
    if line.chars().count() <= LONGEST {
        return line.to_owned();
    }
    let start: String = line.chars().take(LONGEST).collect();
    format!("{start}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn says(log: &str, cause: &str) {
        assert_eq!(log_cause(log).as_deref(), Some(cause));
    }

    #[test]
    fn a_value_that_a_flag_does_not_take_above_the_usage() {
        says(
            "invalid value \"maybe\" for flag -v2-deprecation: invalid value \"maybe\"\n\
             Usage:\n\n  etcd grpc-proxy\n    Run the stateless etcd v3 gRPC L7 reverse proxy.\n",
            "invalid value \"maybe\" for flag -v2-deprecation: invalid value \"maybe\"",
        );
    }

    #[test]
    fn a_fatal_line_above_its_stack() {
        says(
            "I1125 10:11:12.131415       1 server.go:1] starting\n\
             F1125 10:11:12.231415       1 main.go:90] failed to list *v1.Node: connection refused\n\
             goroutine 1 [running]:\nk8s.io/klog.(*loggingT).output(0x1)\n\t/src/klog.go:12 +0x1\n",
            "failed to list *v1.Node: connection refused",
        );
        says(
            "panic: runtime error: index out of range\n\ngoroutine 1 [running]:\nmain.main()\n",
            "panic: runtime error: index out of range",
        );
    }

    #[test]
    fn the_line_that_names_a_flag_wins_over_what_follows() {
        says(
            "Error: unknown flag: --insecure-port\nUsage:\n  kube-apiserver [flags]\n",
            "Error: unknown flag: --insecure-port",
        );
        says(
            "E1125 10:11:12.1       1 run.go:74] \"command failed\" err=\"unrecognized feature gate: IPv6DualStack\"\n",
            "\"command failed\" err=\"unrecognized feature gate: IPv6DualStack\"",
        );
    }

    #[test]
    fn of_json_the_message_and_its_error() {
        says(
            "{\"level\":\"info\",\"msg\":\"serving\"}\n\
             {\"level\":\"fatal\",\"msg\":\"discovery failed\",\"error\":\"member has already been bootstrapped\"}\n\
             {\"level\":\"warn\",\"msg\":\"closing\"}\n",
            "discovery failed: member has already been bootstrapped",
        );
    }

    #[test]
    fn the_last_error_where_nothing_is_fatal_and_the_last_line_where_there_is_none() {
        says(
            "E1125 10:00:00.1       1 a.go:1] first\nE1125 10:00:01.1       1 a.go:1] second\nI1125 10:00:02.1       1 a.go:1] waiting\n",
            "second",
        );
        says("one\ntwo\n\n", "two");
        assert_eq!(log_cause("\n  \n"), None);
    }

    #[test]
    fn a_line_is_never_longer_than_a_screen() {
        let cause = log_cause(&"x".repeat(5_000)).unwrap();
        assert_eq!(cause.chars().count(), LONGEST + 1);
    }
}
