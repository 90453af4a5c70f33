//! Messages of OpenSSH and systemd about transient failures. Pure. Neither has codes for them; the strings are
//! constants in their sources. A match only lengthens a wait or chooses a hint: any other message is reported at once.

/// Said by servers that take the same login a little later.
const PASSES: [&str; 4] = [
    // sshd, `MaxStartups`.
    "Exceeded MaxStartups",
    // sshd from 9.8 on, `PerSourcePenalties`: this address failed to log in, and is shut out for a while.
    PENALTY,
    // systemd's /run/nologin, before and after the time in which users may log in.
    "System is booting up",
    "System is going down",
];

/// What sshd says to an address that it shuts out.
pub(super) const PENALTY: &str = "Not allowed at this time";

/// True where the server says itself that this passes.
pub(super) fn say_that_it_passes(said: &str) -> bool {
    PASSES.iter().any(|words| said.contains(words))
}
