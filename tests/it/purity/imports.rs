//! What the files of `src/` take from each other and from elsewhere.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use syn::visit::{self, Visit};

use super::{CRATES, IMPURE, ORDER, PURE, UPWARD, VALUES};

/// The standard library, by its three names.
const STANDARD: [&str; 3] = ["std", "core", "alloc"];

/// A module of this crate, by its path.
type Module = Vec<String>;

pub(super) fn segments(path: &str) -> Vec<String> {
    path.split("::").map(str::to_owned).collect()
}

/// What one file takes from elsewhere.
#[derive(Default)]
pub(super) struct Source {
    /// Whether its documentation says that it is pure.
    pub(super) says_so: bool,
    /// `use` items: the name here, and the path as it is written.
    pub(super) uses: Vec<(String, Vec<String>)>,
    /// Every other path of two segments or more.
    pub(super) paths: BTreeSet<Vec<String>>,
    /// Names of the items that are defined here.
    items: BTreeSet<String>,
    /// `async` was written.
    is_async: bool,
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string() == "test",
        syn::Meta::Path(_) | syn::Meta::NameValue(_) => false,
    })
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        _ => &[],
    }
}

fn flatten(tree: &syn::UseTree, above: &[String], uses: &mut Vec<(String, Vec<String>)>) {
    let below = |name: &syn::Ident| [above, &[name.to_string()]].concat();
    match tree {
        syn::UseTree::Path(path) => flatten(&path.tree, &below(&path.ident), uses),
        syn::UseTree::Group(group) => {
            for tree in &group.items {
                flatten(tree, above, uses);
            }
        }
        syn::UseTree::Glob(_) => uses.push(("*".to_owned(), above.to_vec())),
        syn::UseTree::Name(name) if name.ident == "self" => {
            uses.push((above.last().cloned().unwrap_or_default(), above.to_vec()));
        }
        syn::UseTree::Name(name) => uses.push((name.ident.to_string(), below(&name.ident))),
        syn::UseTree::Rename(rename) => {
            uses.push((rename.rename.to_string(), below(&rename.ident)));
        }
    }
}

impl<'ast> Visit<'ast> for Source {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if is_test(attributes(item)) {
            return;
        }
        let name = match item {
            syn::Item::Struct(item) => Some(&item.ident),
            syn::Item::Enum(item) => Some(&item.ident),
            syn::Item::Trait(item) => Some(&item.ident),
            syn::Item::Type(item) => Some(&item.ident),
            syn::Item::Const(item) => Some(&item.ident),
            syn::Item::Fn(item) => Some(&item.sig.ident),
            _ => None,
        };
        self.items.extend(name.map(ToString::to_string));
        visit::visit_item(self, item);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        flatten(&item.tree, &[], &mut self.uses);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path
            .segments
            .iter()
            .map(|one| one.ident.to_string())
            .collect();
        if segments.len() > 1 {
            self.paths.insert(segments);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        // What a macro is given is not parsed: its paths are found by their text.
        let text = called.tokens.to_string().replace(" :: ", "::");
        let words = text.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
        let paths = words.filter(|word| word.contains("::") && !word.starts_with(':'));
        self.paths
            .extend(paths.map(|word| segments(word.trim_end_matches(':'))));
        visit::visit_macro(self, called);
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        self.is_async |= signature.asyncness.is_some();
        visit::visit_signature(self, signature);
    }

    fn visit_expr_async(&mut self, _: &'ast syn::ExprAsync) {
        self.is_async = true;
    }

    fn visit_expr_await(&mut self, _: &'ast syn::ExprAwait) {
        self.is_async = true;
    }
}

pub(super) fn parse(text: &str) -> Source {
    let file = syn::parse_file(text).expect("it compiles");
    let mut source = Source::default();
    source.visit_file(&file);
    let documentation: String = text
        .lines()
        .take_while(|line| line.starts_with("//!"))
        .map(|line| line.trim_start_matches("//!"))
        .collect();
    source.says_so = documentation.contains(" Pure.") || documentation.contains(" Pure:");
    source
}

/// All of `src/` but its tests.
pub(super) struct Tree {
    pub(super) files: BTreeMap<Module, Source>,
    /// The crates of `Cargo.toml`, as code calls them.
    crates: BTreeSet<String>,
}

impl Tree {
    pub(super) fn read() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let manifest: toml::Table =
            toml::from_str(&fs::read_to_string(root.join("Cargo.toml")).expect("a manifest"))
                .expect("TOML");
        let crates = manifest["dependencies"].as_table().expect("a table").keys();
        let mut tree = Self {
            files: BTreeMap::new(),
            crates: crates.map(|name| name.replace('-', "_")).collect(),
        };
        tree.add(&root.join("src"), &[]);
        tree
    }

    fn add(&mut self, folder: &Path, module: &[String]) {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let stem = path
                .file_stem()
                .and_then(|stem| stem.to_str())
                .expect("a name");
            let named = [module, &[stem.to_owned()]].concat();
            if path.is_dir() {
                self.add(&path, &named);
            } else if path.extension().is_some_and(|ends| ends == "rs") {
                let module = match stem {
                    "lib" | "main" | "mod" => module.to_vec(),
                    _ => named,
                };
                let is_test = module.last().is_some_and(|name| {
                    name.ends_with("tests") || name == "fixture" || name == "fake"
                });
                if !is_test && stem != "main" {
                    let text = fs::read_to_string(&path).expect("a file");
                    self.files.insert(module, parse(&text));
                }
            }
        }
    }

    pub(super) fn is_pure(module: &[String]) -> bool {
        PURE.iter().any(|pure| module.starts_with(&segments(pure)))
    }

    /// Where a path of `module` leads: into this crate, or to another.
    fn absolute(&self, module: &[String], path: &[String]) -> Option<Vec<String>> {
        let source = self.files.get(module)?;
        let first = path.first()?;
        let join = |above: &[String]| Some([above, &path[1..]].concat());
        match first.as_str() {
            "crate" => return join(&[]),
            "self" => return join(module),
            "super" => {
                let above = module.split_last().map_or(&[][..], |(_, above)| above);
                return match path.get(1).map(String::as_str) {
                    Some("super") => self.absolute(above, &path[1..]),
                    _ => join(above),
                };
            }
            _ => {}
        }
        let child = [module, std::slice::from_ref(first)].concat();
        if self.files.contains_key(&child) {
            return join(&child);
        }
        let named = source
            .uses
            .iter()
            .find(|(name, target)| name == first && target != path && target.first() != Some(name));
        if let Some((_, target)) = named {
            return join(&self.absolute(module, target)?);
        }
        self.is_elsewhere(first).then(|| path.to_vec())
    }

    /// A crate's name, or the standard library's.
    fn is_elsewhere(&self, name: &str) -> bool {
        STANDARD.contains(&name) || self.crates.contains(name)
    }

    /// The module in which what a path of this crate names is defined.
    fn home(&self, path: &[String]) -> Option<Module> {
        let mut module: Module = Vec::new();
        for (at, name) in path.iter().enumerate() {
            let child = [&module[..], std::slice::from_ref(name)].concat();
            if self.files.contains_key(&child) {
                module = child;
                continue;
            }
            let source = self.files.get(&module)?;
            if source.items.contains(name) {
                return Some(module);
            }
            let named = source.uses.iter().find(|(one, _)| one == name);
            if let Some((_, target)) = named {
                let target = self.absolute(&module, target)?;
                return self.home(&[&target[..], &path[at + 1..]].concat());
            }
            let globs = source.uses.iter().filter(|(one, _)| one == "*");
            for (_, target) in globs {
                let target = self.absolute(&module, target)?;
                let defines = |source: &Source| source.items.contains(name);
                if self.files.get(&target).is_some_and(defines) {
                    return Some(target);
                }
            }
            return Some(module);
        }
        Some(module)
    }

    /// Why a path must not be taken by a pure module.
    fn fault(&self, module: &[String], path: &[String]) -> Option<String> {
        let written = path.join("::");
        let absolute = self.absolute(module, path)?;
        if self.is_elsewhere(absolute.first()?) && !self.files.contains_key(&absolute[..1]) {
            return impure(&absolute).then(|| format!("takes {written}"));
        }
        // A room that is named as a whole is judged by what is taken from it.
        let is_mixed = self.files.contains_key(&absolute)
            && self
                .files
                .keys()
                .any(|one| one.starts_with(&absolute) && Self::is_pure(one));
        let home = self.home(&absolute)?;
        let is_value = VALUES.iter().any(|(module, values)| {
            let rest = absolute
                .strip_prefix(&home[..])
                .or(path.get(path.len() - 1..));
            let name = rest.and_then(|rest| rest.first());
            segments(module) == home && name.is_some_and(|name| values.contains(&name.as_str()))
        });
        let is_fault = !is_mixed && !is_value && !home.is_empty() && !Self::is_pure(&home);
        is_fault.then(|| format!("takes {written}, which is in {}", home.join("::")))
    }

    /// How far up a module is.
    fn rank(module: &[String]) -> Option<usize> {
        let rooms = ORDER.iter().enumerate();
        let rooms = rooms.map(|(rank, room)| (rank, segments(room)));
        let above = rooms.filter(|(_, room)| module.starts_with(room));
        above
            .max_by_key(|(_, room)| room.len())
            .map(|(rank, _)| rank)
    }

    /// What is taken from rooms above.
    pub(super) fn upward(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (module, source) in self.files.iter().filter(|(module, _)| !module.is_empty()) {
            let name = module.join("::");
            let Some(rank) = Self::rank(module) else {
                found.push(format!("{name} is in no room of the list"));
                continue;
            };
            let uses = source.uses.iter().map(|(_, path)| path);
            for path in uses.chain(&source.paths).collect::<BTreeSet<_>>() {
                let home = self.absolute(module, path).and_then(|path| {
                    let ours = self.files.contains_key(&path[..1.min(path.len())]);
                    ours.then(|| self.home(&path)).flatten()
                });
                let Some(home) = home.filter(|home| !home.is_empty()) else {
                    continue;
                };
                let is_up = Self::rank(&home).is_some_and(|its| its > rank);
                let (path, home) = (path.join("::"), home.join("::"));
                if is_up && (name.as_str(), home.as_str()) != UPWARD {
                    found.push(format!("{name} takes {path}, which is in {home}, above it"));
                }
            }
        }
        found
    }

    pub(super) fn faults(&self) -> Vec<String> {
        let pure = self
            .files
            .iter()
            .filter(|(module, _)| Self::is_pure(module));
        let mut found = Vec::new();
        for (module, source) in pure {
            let uses = source.uses.iter().map(|(_, path)| path);
            let taken = uses.chain(&source.paths).collect::<BTreeSet<_>>();
            let faults = taken
                .into_iter()
                .filter_map(|path| self.fault(module, path));
            let waits = source.is_async.then(|| "is async".to_owned());
            let name = module.join("::");
            found.extend(faults.chain(waits).map(|why| format!("{name} {why}")));
        }
        found
    }
}

/// Whether something of another crate, or of the standard library, reads or writes.
fn impure(path: &[String]) -> bool {
    let below = |above: &str, allowed: &[&str]| {
        let above = segments(above);
        let is_below = |rest: &[String]| allowed.iter().any(|one| rest.starts_with(&segments(one)));
        // A module that is named as a whole is judged by what is taken from it.
        path.starts_with(&above)
            && (path.len() > above.len() || allowed.is_empty())
            && !is_below(&path[above.len()..])
    };
    if IMPURE.iter().any(|(above, allowed)| below(above, allowed)) {
        return true;
    }
    match CRATES
        .iter()
        .find(|(name, _)| path.first().is_some_and(|first| first == name))
    {
        Some((_, [])) => false,
        Some((name, allowed)) => below(name, allowed),
        None => path
            .first()
            .is_some_and(|first| !STANDARD.contains(&first.as_str())),
    }
}

impl Tree {
    /// Pairs of files below a room that take from each other, directly or over others, but for a folder's own `mod.rs`.
    pub(super) fn circles(&self, room: &str) -> Vec<String> {
        let room = segments(room);
        let within = |module: &Module| module.starts_with(&room);
        let is_folder = |module: &Module| {
            let inner = |other: &Module| other.len() > module.len() && other.starts_with(module);
            self.files.keys().any(inner)
        };
        let mut edges: BTreeMap<&Module, BTreeSet<Module>> = BTreeMap::new();
        for (module, source) in self.files.iter().filter(|(module, _)| within(module)) {
            let uses = source.uses.iter().map(|(_, path)| path);
            for path in uses.chain(&source.paths) {
                let home = self
                    .absolute(module, path)
                    .and_then(|path| self.home(&path));
                let home = home.filter(|home| within(home) && home != module);
                let folder = |one: &Module| is_folder(one);
                if let Some(home) = home.filter(|home| !folder(home) && !folder(module)) {
                    edges.entry(module).or_default().insert(home);
                }
            }
        }
        let reach = |from: &Module| {
            let mut seen = BTreeSet::new();
            let mut next = vec![from.clone()];
            while let Some(module) = next.pop() {
                for to in edges.get(&module).into_iter().flatten() {
                    if seen.insert(to.clone()) {
                        next.push(to.clone());
                    }
                }
            }
            seen
        };
        let circled = edges
            .keys()
            .filter(|module| reach(module).contains(**module));
        circled.map(|module| module.join("::")).collect()
    }
}
