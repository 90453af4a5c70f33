//! A process can see whether another one of the same machine still runs: a lease whose holder was
//! killed is free at once for the next process there. It cannot see this of processes on other
//! machines.

#![expect(
    clippy::disallowed_methods,
    reason = "the processes of this machine are read from its /proc"
)]

use std::{fmt::Write as _, fs, path::Path};

/// Before the part of an identity that names a process.
const MARK: &str = " process ";

/// The identity of this process in a Lease: `root@host process 41-4026531836-77-123456`.
pub(crate) fn this_process() -> String {
    let user = ["USER", "LOGNAME"].into_iter().find_map(std::env::var_os);
    let user = user.map_or("unknown".to_owned(), |user| {
        user.to_string_lossy().into_owned()
    });
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let mut identity = format!("{user}@{}", host.trim());
    let pid = std::process::id();
    // The same number is another process after a restart, and in another container.
    match namespace().zip(begun(pid)) {
        Some((namespace, begun)) => {
            let _ = write!(identity, "{MARK}{namespace}-{pid}-{begun}");
        }
        None => {
            let _ = write!(identity, " pid {pid}");
        }
    }
    identity
}

/// The identity as messages show it: `root@host, process 77`.
pub(crate) fn told(identity: &str) -> String {
    let Some((who, process)) = identity.rsplit_once(MARK) else {
        return identity.to_owned();
    };
    let pid = process.rsplit('-').nth(1);
    pid.map_or(who.to_owned(), |pid| format!("{who}, process {pid}"))
}

/// True when the identity is that of a process which ran where this one runs, and no longer does.
/// False when that cannot be known.
pub(super) fn has_ended(identity: &str) -> bool {
    let Some((_, process)) = identity.rsplit_once(MARK) else {
        return false;
    };
    let Some((begin, pid)) = process
        .rsplit_once('-')
        .and_then(|(rest, begin)| Some((begin, rest.rsplit_once('-')?)))
    else {
        return false;
    };
    let (namespace_of, pid) = pid;
    let Ok(pid) = pid.parse::<u32>() else {
        return false;
    };
    namespace().is_some_and(|own| own == namespace_of)
        && begun(pid).is_none_or(|since| since != begin)
}

/// The processes that see each other: of one boot, and of one PID namespace.
fn namespace() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let link = fs::read_link("/proc/self/ns/pid").ok()?;
    let digits: String = link
        .to_string_lossy()
        .chars()
        .filter(char::is_ascii_digit)
        .collect();
    Some(format!("{}-{digits}", boot.trim()))
}

/// When a process began, in ticks since the machine did; `None` when there is none.
fn begun(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    // The second field, the name, may have anything in it; after its bracket comes the third.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    // A zombie has ended.
    if fields.next()? == "Z" {
        return None;
    }
    fields.nth(18).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_runs_has_not_ended() {
        let own = this_process();
        assert!(own.contains(MARK), "{own}");
        assert!(!has_ended(&own), "{own}");
        let told = told(&own);
        let pid = format!(", process {}", std::process::id());
        assert!(told.contains('@') && told.ends_with(&pid), "{told}");
    }

    #[test]
    fn one_that_ended_here_has_and_of_others_nothing_is_known() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let begin = begun(child.id());
        child.wait().unwrap();
        let begin = begin.unwrap_or_else(|| "1".to_owned());
        let here = namespace().unwrap();
        let pid = child.id();
        assert!(has_ended(&format!("a@b{MARK}{here}-{pid}-{begin}")));
        // Its number is another's by now.
        let own = std::process::id();
        assert!(has_ended(&format!("a@b{MARK}{here}-{own}-1")));
        for unknown in [
            "",
            "a@b",
            "a@b pid 3",
            "a@b process ",
            "a@b process x",
            "a@b process 1-2-3",
            &format!("a@b{MARK}another-boot-1-{pid}-{begin}"),
            &format!("a@b{MARK}{here}-none-{begin}"),
        ] {
            assert!(!has_ended(unknown), "{unknown}");
        }
    }
}
