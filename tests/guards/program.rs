//! For `tests/guards.sh`: `guards names PREFIX`, `guards test NAME`, `guards file NAME`, `guards without NAME` (the
//! text of its file without the guard), `guards weave TREE` (changes a copy of the
//! sources so that one build serves many guards; prints their names).

use std::{fs, io::Write, path::Path, process::ExitCode};

mod table;
mod weave;

use table::{Guard, guards};

fn main() -> ExitCode {
    let (code, said) = match answer() {
        Ok(text) => (
            ExitCode::SUCCESS,
            std::io::stdout().write_all(text.as_bytes()),
        ),
        Err(why) => (ExitCode::FAILURE, writeln!(std::io::stderr(), "{why}")),
    };
    said.map_or(ExitCode::FAILURE, |()| code)
}

fn answer() -> Result<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut words = std::env::args().skip(1);
    let what = words.next().unwrap_or_default();
    let name = words.next().unwrap_or_default();
    let all = guards(root)?;
    if what == "names" {
        let some = all.iter().filter(|guard| guard.name.starts_with(&name));
        let names: Vec<_> = some.map(|guard| guard.name.as_str()).collect();
        return Ok(names.join("\n"));
    }
    if what == "weave" {
        let woven = weave::weave(root, &all)?;
        for (file, text) in woven.files {
            let path = Path::new(&name).join(file);
            fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        return Ok(woven.names.join("\n"));
    }
    let guard = all.iter().find(|guard| guard.name == name);
    let guard: &Guard = guard.ok_or_else(|| format!("there is no guard `{name}`"))?;
    match what.as_str() {
        "file" => Ok(format!("{}\n", guard.file)),
        "test" => Ok(format!("{}\n", guard.test)),
        "without" => guard.without(root),
        _ => Err(format!(
            "`{what}` is none of names, file, test, without, weave"
        )),
    }
}
