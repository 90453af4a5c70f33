//! One build for many guards: every function with guards gets one more body per guard, in which that guard is missing,
//! and a file selects the body to run. So the tests are built once, not once per guard.

use std::{collections::BTreeMap, fmt::Write as _, ops::Range, path::Path};

use super::table::{Guard, every_function, read, replaced};

/// The file in the tree with the name of the missing guard. A file also reaches the programs that tests start with an
/// empty environment; a variable would not.
const FILE: &str = "guard-taken-away";

/// Sources in which guards are removed at run time.
pub(crate) struct Woven {
    /// By their paths in the tree.
    pub(crate) files: BTreeMap<String, String>,
    /// The names of the guards that the file may select.
    pub(crate) names: Vec<String>,
}

/// The changes that make the other bodies of one function, by the guard that is missing in each.
type Bodies<'a> = BTreeMap<&'a str, Vec<(Range<usize>, String)>>;

/// Weaves all of these. Guards outside functions, in shell scripts, and in functions whose type the body decides
/// (`-> impl …`) are left out.
pub(crate) fn weave(root: &Path, guards: &[Guard]) -> Result<Woven, String> {
    let mut files: BTreeMap<&str, Vec<&Guard>> = BTreeMap::new();
    let of_rust = |guard: &&Guard| Path::new(&guard.file).extension() == Some("rs".as_ref());
    for guard in guards.iter().filter(of_rust) {
        files.entry(&guard.file).or_default().push(guard);
    }
    let mut woven = Woven {
        files: BTreeMap::new(),
        names: Vec::new(),
    };
    for (file, guards) in files {
        let mut text = read(&root.join(file))?;
        let functions: Vec<Range<usize>> = every_function(&text)
            .into_iter()
            .filter(|function| can_have_bodies(text.get(function.clone()).unwrap_or_default()))
            .collect();
        let mut bodies: BTreeMap<usize, (Range<usize>, Bodies<'_>)> = BTreeMap::new();
        for guard in guards {
            let places = guard.places(&text)?;
            let of = |place: &Range<usize>| {
                let holds = |function: &&Range<usize>| {
                    function.start <= place.start && place.end <= function.end
                };
                functions.iter().find(holds)
            };
            let within = places
                .into_iter()
                .map(|(place, words)| Some((of(&place)?, place, words)));
            let Some(within) = within.collect::<Option<Vec<_>>>() else {
                continue;
            };
            for (function, place, words) in within {
                let (_, bodies) = bodies
                    .entry(function.start)
                    .or_insert_with(|| (function.clone(), BTreeMap::new()));
                bodies.entry(&guard.name).or_default().push((place, words));
            }
            woven.names.push(guard.name.clone());
        }
        for (function, bodies) in bodies.into_values().rev() {
            let many = with_bodies(&text, &function, bodies);
            text.replace_range(function, &many);
        }
        woven.files.insert(file.to_owned(), text);
    }
    let lib = "src/lib.rs";
    let text = match woven.files.remove(lib) {
        Some(text) => text,
        None => read(&root.join(lib))?,
    };
    woven.files.insert(lib.to_owned(), text + &chooser());
    Ok(woven)
}

/// The signature, up to the brace.
fn signature(function: &str) -> &str {
    let end = function.find("{\n").or_else(|| function.find('{'));
    function.get(..end.unwrap_or_default()).unwrap_or_default()
}

fn can_have_bodies(function: &str) -> bool {
    let signature = signature(function);
    !signature.is_empty() && !signature.contains("-> impl ")
}

/// The function with one more body per guard; its own runs while no guard of it is selected.
fn with_bodies(text: &str, function: &Range<usize>, bodies: Bodies<'_>) -> String {
    let whole = text.get(function.clone()).unwrap_or_default();
    let signature = signature(whole);
    let body = |whole: &str| whole.get(signature.len()..).unwrap_or_default().to_owned();
    let mut arms = String::new();
    for (name, places) in bodies {
        let moved = places.into_iter().map(|(place, words)| {
            let within = place.start - function.start..place.end - function.start;
            (within, words)
        });
        let without = body(&replaced(whole, moved.collect()));
        let _ = writeln!(arms, "{name:?} => {without},");
    }
    // A function that reads a file is not `const`.
    let signature = signature.replacen("const fn", "fn", 1);
    let own = body(whole);
    format!("{signature}{{ match crate::guard_taken_away() {{\n{arms}_ => {own}\n}} }}\n")
}

fn chooser() -> String {
    format!(
        "
/// The guard that is missing in this run.
fn guard_taken_away() -> &'static str {{
    static NAME: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    let file = concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/\", {FILE:?});
    NAME.get_or_init(|| std::fs::read_to_string(file).unwrap_or_default())
}}
"
    )
}
