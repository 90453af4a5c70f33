//! Sentences that are wrapped at words. Pure.

/// An indentation of more than this part of a line leaves too little room for the sentence.
const DEEPEST: usize = 3;
/// The indentation in its place.
const SHALLOW: usize = 4;

/// How a line begins that is a head and a sentence, behind any indentation. Other lines are code, tables or progress.
const HEADS: [&str; 7] = [
    "error: ",
    "warning: ",
    "hint: ",
    "caused by: ",
    "- ",
    "= help: ",
    "= note: ",
];

/// What lines begin with that are there to be copied.
const COMMANDS: [&str; 2] = ["kubectl", "rke-operator"];

/// A sentence behind a head, wrapped at words so that a line has no more than so many columns. What comes below stands
/// under the sentence, or is indented a little where the head is long. What is in backticks remains on one line, however
/// long it is, so that it can be copied. `None`: nothing is wrapped.
pub fn wrapped(head: &str, text: &str, columns: Option<usize>) -> String {
    let mut used = width(head);
    let Some(columns) = columns else {
        return format!("{head}{text}");
    };
    let indent = if used > columns / DEEPEST {
        used.min(SHALLOW)
    } else {
        used
    };
    let mut out = head.to_owned();
    for (at, word) in words(text).into_iter().enumerate() {
        let width = width(word);
        if at > 0 && used + 1 + width > columns {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            used = indent;
        } else if at > 0 {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += width;
    }
    out
}

/// A text of several lines, as it is printed: each is wrapped as by [`wrapped`], where it is longer than the page, behind
/// the head of an error, a warning, a cause or a hint, or behind what is in columns. Lines of a config and commands are
/// left as they are. Colours do not count.
pub fn wrapped_lines(text: &str, columns: Option<usize>) -> String {
    let Some(columns) = columns else {
        return text.to_owned();
    };
    let lines = text.split('\n').map(|line| {
        let long = width(line) > columns;
        match head_of(line).filter(|_| long) {
            Some(at) => {
                let (head, sentence) = line.split_at(at);
                wrapped(head, sentence, Some(columns))
            }
            None => line.to_owned(),
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Where the sentence of a line begins; `None`: it is none.
fn head_of(line: &str) -> Option<usize> {
    let mut visible = String::new();
    let mut column = 0;
    for (at, c) in shown(line) {
        if c != ' ' && (visible.ends_with("  ") || visible.trim().is_empty()) {
            column = at;
        }
        visible.push(c);
        if HEADS.contains(&visible.trim_start()) {
            return Some(at + c.len_utf8());
        }
    }
    (!is_of_config(&visible) && !is_command(&visible)).then_some(column)
}

/// A line of a config with its number, or what stands below it.
fn is_of_config(line: &str) -> bool {
    let line = line.trim_start();
    let margin = line.trim_start_matches(|c: char| c.is_ascii_digit());
    margin.trim_start().starts_with('|') || line.starts_with("-->")
}

/// A line that is there to be copied.
fn is_command(line: &str) -> bool {
    let mut words = line.split_whitespace();
    line.starts_with("  ") && words.next().is_some_and(|word| COMMANDS.contains(&word))
}

/// The words of a text. What is in backticks is part of one.
fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut begin = 0;
    let mut quoted = false;
    for (at, c) in text.char_indices() {
        let rest = text.get(at + 1..).unwrap_or_default();
        if c == '`' {
            // One that is not closed is a character like others.
            quoted = !quoted && rest.contains('`');
        } else if c.is_whitespace() && !quoted {
            words.extend(text.get(begin..at));
            begin = at + c.len_utf8();
        }
    }
    words.extend(text.get(begin..));
    words.retain(|word| !word.is_empty());
    words
}

/// How many columns a text takes.
fn width(text: &str) -> usize {
    shown(text).count()
}

/// The characters of a text that a terminal shows, without sequences for colours.
fn shown(text: &str) -> impl Iterator<Item = (usize, char)> {
    let mut escaped = false;
    text.char_indices().filter(move |(_, c)| {
        if escaped {
            escaped = *c != 'm';
            return false;
        }
        escaped = *c == '\x1b';
        !escaped
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_below_stands_under_the_sentence_unless_the_head_is_long() {
        let text = "the sentence is longer than the page is wide";
        assert_eq!(
            wrapped("  n1  ", text, Some(24)),
            "  n1  the sentence is\n      longer than the\n      page is wide"
        );
        assert_eq!(
            wrapped("  n1 … n3, db: ", text, Some(24)),
            "  n1 … n3, db: the\n    sentence is longer\n    than the page is\n    wide"
        );
        assert_eq!(wrapped("  n1  ", text, None), format!("  n1  {text}"));
    }

    #[test]
    fn what_is_in_backticks_can_be_copied() {
        let text =
            "run `rke-operator up --recover a1b2c3` with `/a/very long/path` there, it's the cure";
        assert_eq!(
            wrapped("hint: ", text, Some(30)),
            "hint: run\n      `rke-operator up --recover a1b2c3`\n      with `/a/very long/path`\n      there, it's the cure"
        );
        assert_eq!(
            wrapped("", "a ` that is not closed", Some(8)),
            "a ` that\nis not\nclosed"
        );
    }

    #[test]
    fn sentences_are_wrapped_and_colours_do_not_count() {
        let text = "\
\x1b[1;31merror:\x1b[0m cannot reach node `n1` (10.0.0.1)
  caused by: no route to host, and nothing else
1 | nodes: [{address: 10.0.0.1, role: [etcd]}]
  |                   ^^^^^^^^ no such address
  = help: write the address of the node
  - n1: the machine is off, or its cable is

\x1b[1;36mhint:\x1b[0m short
state  n1  save the state of the cluster
a question: is it longer than a line?
  kubectl --kubeconfig kube_config_cluster.yml get nodes";
        insta::assert_snapshot!(wrapped_lines(text, Some(30)).replace('\x1b', "~"), @r"
        ~[1;31merror:~[0m cannot reach node `n1`
               (10.0.0.1)
          caused by: no route to host,
            and nothing else
        1 | nodes: [{address: 10.0.0.1, role: [etcd]}]
          |                   ^^^^^^^^ no such address
          = help: write the address of
                  the node
          - n1: the machine is off, or
            its cable is

        ~[1;36mhint:~[0m short
        state  n1  save the state of
            the cluster
        a question: is it longer than
        a line?
          kubectl --kubeconfig kube_config_cluster.yml get nodes
        ");
        assert_eq!(wrapped_lines(text, None), text);
        assert_eq!(wrapped_lines(text, Some(80)), text);
    }
}
