//! The table of guards, `tests/guards.toml`: what keeps clusters alive, where it stands, and how it is taken away.

use std::{fs, ops::Range, path::Path};

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    guard: Vec<Guard>,
}

/// One of them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Guard {
    pub(crate) name: String,
    pub(crate) file: String,
    pub(crate) function: Option<String>,
    find: String,
    replace: String,
    /// The test that notices first.
    pub(crate) test: String,
    #[serde(default)]
    also: Vec<Edit>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Edit {
    function: Option<String>,
    find: String,
    replace: String,
}

/// All of the table.
pub(crate) fn guards(root: &Path) -> Result<Vec<Guard>, String> {
    let text = read(&root.join("tests/guards.toml"))?;
    let table: Table = toml::from_str(&text).map_err(|error| error.to_string())?;
    Ok(table.guard)
}

pub(crate) fn read(path: &Path) -> Result<String, String> {
    let text = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    String::from_utf8(text).map_err(|error| format!("{}: {error}", path.display()))
}

impl Guard {
    /// Its file without it; an error when it does not stand there exactly once.
    pub(crate) fn without(&self, root: &Path) -> Result<String, String> {
        let text = read(&root.join(&self.file))?;
        Ok(replaced(&text, self.places(&text)?))
    }

    /// Where it stands in its file, in the order of the text, and what comes there without it.
    pub(crate) fn places(&self, text: &str) -> Result<Vec<(Range<usize>, String)>, String> {
        let first = Edit {
            function: self.function.clone(),
            find: self.find.clone(),
            replace: self.replace.clone(),
        };
        let mut places = Vec::new();
        for edit in [first].into_iter().chain(self.also.clone()) {
            let place = edit.place(text).map_err(|why| {
                format!("tests/guards.toml: `{}` in {}: {why}", self.name, self.file)
            })?;
            places.push((place, edit.replace));
        }
        places.sort_by_key(|(place, _)| place.start);
        Ok(places)
    }
}

/// The text with other words at these places, which are in its order.
pub(crate) fn replaced(text: &str, places: Vec<(Range<usize>, String)>) -> String {
    let mut text = text.to_owned();
    for (place, words) in places.into_iter().rev() {
        text.replace_range(place, &words);
    }
    text
}

impl Edit {
    fn place(&self, text: &str) -> Result<Range<usize>, String> {
        let regions = match &self.function {
            Some(name) => functions(text, name),
            None => std::iter::once(0..text.len()).collect(),
        };
        if let (Some(name), []) = (&self.function, regions.as_slice()) {
            return Err(format!("there is no function `{name}`"));
        }
        let mut found = Vec::new();
        for region in regions {
            let start = region.start;
            let in_region = occurrences(text.get(region).unwrap_or_default(), &self.find);
            found.extend(
                in_region
                    .into_iter()
                    .map(|at| at.start + start..at.end + start),
            );
        }
        match found.as_slice() {
            [only] => Ok(only.clone()),
            _ => Err(format!(
                "`{}` stands there {} times",
                self.find,
                found.len()
            )),
        }
    }
}

/// Where functions of this name are.
fn functions(text: &str, name: &str) -> Vec<Range<usize>> {
    let named = |range: &Range<usize>| {
        let words = text.get(range.clone()).unwrap_or_default();
        let rest = declared(words).and_then(|rest| rest.strip_prefix(name));
        rest.is_some_and(|rest| rest.starts_with(['(', '<']))
    };
    every_function(text).into_iter().filter(named).collect()
}

/// Where functions are, as rustfmt writes them; those within others are theirs.
pub(crate) fn every_function(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut open: Option<(usize, String)> = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let end = at + line.len();
        let inner = line.trim_start();
        let start = end - inner.len();
        let indent = line.get(..line.len() - inner.len()).unwrap_or_default();
        if let Some((start, closing)) = &open {
            if line.starts_with(closing.as_str()) {
                found.push(*start..end);
                open = None;
            }
        } else if declared(inner).is_some() {
            if line.trim_end().ends_with(['}', ';']) {
                found.push(start..end);
            } else {
                open = Some((start, format!("{indent}}}")));
            }
        }
        at = end;
    }
    found
}

/// From its name on, what begins with the declaration of a function.
fn declared(text: &str) -> Option<&str> {
    let (before, after) = text.lines().next()?.split_once("fn ")?;
    let plain = |word: &str| {
        word.starts_with("pub")
            || word.ends_with(')')
            || matches!(word, "const" | "async" | "unsafe")
    };
    before.split_whitespace().all(plain).then_some(after)
}

/// Where these words stand, whatever white space is between them.
fn occurrences(text: &str, find: &str) -> Vec<Range<usize>> {
    let solid = |text: &str| -> Vec<(usize, char)> {
        let all = text.char_indices();
        all.filter(|(_, c)| !c.is_whitespace()).collect()
    };
    let (text, find) = (solid(text), solid(find));
    let windows = text.windows(find.len().max(1));
    let equal = |window: &&[(usize, char)]| {
        let both = window.iter().zip(&find);
        !find.is_empty() && both.into_iter().all(|((_, one), (_, other))| one == other)
    };
    let range = |window: &[(usize, char)]| {
        let (first, _) = window.first()?;
        let (last, c) = window.last()?;
        Some(*first..last + c.len_utf8())
    };
    windows.filter(equal).filter_map(range).collect()
}
