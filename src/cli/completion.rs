//! `completion`: what a shell needs to complete commands, flags and names. The words of the command line are in the
//! script; for names of nodes and keys it runs the hidden command `complete`.

use std::fmt::Write as _;

use clap::{Arg, Command, CommandFactory as _};
use clap_complete::Shell;

use super::{
    args::{Cli, Completion},
    print,
    report::CliError,
};

/// The name of the program, as it is completed.
const PROGRAM: &str = "rke-operator";

/// Runs it.
pub(super) fn completion(args: &Completion) -> Result<u8, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), PROGRAM, &mut script);
    let script = without_hidden(&String::from_utf8_lossy(&script));
    print::data(&with_names(args.shell, &script))?;
    Ok(0)
}

/// Without the commands and flags that the help does not show; clap offers them.
fn without_hidden(script: &str) -> String {
    let mut root = Cli::command();
    root.build();
    let mut hidden = Vec::new();
    collect_hidden(&root, &mut hidden);
    let is_hidden = |word: &str| hidden.iter().any(|name| name == word);
    // A line of zsh or fish is about one of them.
    let names_one = |line: &str| {
        hidden.iter().any(|name| match name.strip_prefix("--") {
            Some(flag) => {
                line.starts_with(&format!("'{name}[")) || line.contains(&format!(" -l {flag} "))
            }
            None => {
                line.starts_with(&format!("'{name}:")) || line.contains(&format!(" -a \"{name}\""))
            }
        })
    };
    let mut text = String::new();
    for line in script.lines() {
        if let Some((head, words)) = line.split_once("opts=\"") {
            let words = words.trim_end_matches('"').split(' ');
            let words: Vec<&str> = words.filter(|word| !is_hidden(word)).collect();
            let _ = writeln!(text, "{head}opts=\"{}\"", words.join(" "));
        } else if !names_one(line) {
            let _ = writeln!(text, "{line}");
        }
    }
    text
}

fn collect_hidden(command: &Command, hidden: &mut Vec<String>) {
    let flags = command.get_arguments().filter(|arg| arg.is_hide_set());
    let flags = flags.filter_map(Arg::get_long);
    hidden.extend(flags.map(|flag| format!("--{flag}")));
    for next in command.get_subcommands() {
        if next.is_hide_set() {
            hidden.push(next.get_name().to_owned());
        } else {
            collect_hidden(next, hidden);
        }
    }
}

/// The script of clap, which asks `complete` first. Shells without a way to do so complete words alone.
fn with_names(shell: Shell, script: &str) -> String {
    if shell == Shell::Bash {
        // clap_complete calls a program with a dash in its name one thing where it reads a command and another where it
        // completes one: below the first command nothing is completed.
        let script = script.replace("rke__subcmd__operator", "rke__operator");
        format!("{}\n{BASH}", script.trim_end())
    } else if shell == Shell::Zsh {
        // One that is loaded from a file is called by the name of the file.
        script.replacen(
            "\n_rke-operator() {",
            &format!("\n{ZSH}\n_rke-operator-words() {{"),
            1,
        )
    } else if shell == Shell::Fish {
        fish(script)
    } else {
        script.to_owned()
    }
}

/// Where there is no name to complete, the function of the script above does it. Bash breaks words at `=` and `:`, and
/// replaces only what comes after.
const BASH: &str = r#"_rke__operator_names() {
    local names line word part
    line=${COMP_LINE:0:COMP_POINT}
    if ! names=$("$1" complete -- "$line" 2>/dev/null); then
        _rke__operator "$@"
        return
    fi
    compopt +o default +o bashdefault 2>/dev/null
    word=${line##*[[:space:]]}
    part=$2
    case ${COMP_WORDS[COMP_CWORD]} in
        = | :) part= ;;
    esac
    COMPREPLY=()
    while IFS= read -r line; do
        [[ -z $line ]] || COMPREPLY+=("${line#"${word%"$part"}"}")
    done <<<"$names"
}

if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -F _rke__operator_names -o nosort -o bashdefault -o default rke-operator
else
    complete -F _rke__operator_names -o bashdefault -o default rke-operator
fi
"#;

const ZSH: &str = r#"_rke-operator() {
    local names
    if names=$(_call_program names ${(q)words[1]} complete -- ${(q)LBUFFER} 2>/dev/null); then
        local -a candidates
        candidates=(${(f)names})
        compadd -a candidates
    else
        _rke-operator-words "$@"
    fi
}
"#;

/// An option has its own candidates: those of its line.
fn fish(script: &str) -> String {
    const NAMES: &str = "(__fish_rke_operator_names)";
    let flags = ["lose", "clean", "from-node", "node", "explain"];
    let flags = flags.map(|flag| format!(" -l {flag} "));
    let mut text = String::from(
        "function __fish_rke_operator_names\n    command rke-operator complete -- (commandline -cp) 2>/dev/null\nend\n\n",
    );
    for line in script.lines() {
        let begin = line.strip_suffix(" -r");
        match begin.filter(|_| flags.iter().any(|flag| line.contains(flag))) {
            Some(begin) => {
                let _ = writeln!(text, "{begin} -x -a \"{NAMES}\"");
            }
            None => {
                let _ = writeln!(text, "{line}");
            }
        }
    }
    let _ = writeln!(
        text,
        "complete -c {PROGRAM} -n \"__fish_rke_operator_using_subcommand node; and __fish_seen_subcommand_from reboot drain \
         uncordon reset\" -f -a \"{NAMES}\""
    );
    text
}
