//! The page about `-o json`: for each command when it prints what, an example, its fields and its exit codes, written from
//! the [schema](crate::cli::output::schema).

use std::fmt::Write as _;

use serde_json::Value;

use super::NOTE;
use crate::cli::{
    output::schema::{EVENTS, FAILED, Prints, ROWS, Row, schema},
    session::STOPPED,
};

const HEAD: &str = "\
# `-o json`

With `-o json` stdout has JSON and nothing else; warnings, questions and errors for people go to stderr. The
[schema](output.schema.json) has a definition for each command, e.g. `output.schema.json#/$defs/status`. This page shows the same.

- Commands that change a cluster print [events](#events): one object a line, and as the last line how the command
  [ended](#how-a-command-ended).
- Every other command prints one result. If there is none, it prints how it [ended](#how-a-command-ended) instead: an object whose `event`
  is `ended`, which no result has.
- An error of the command line itself, e.g. an unknown flag, is printed in the same way.
- Nothing is printed for help, and after `kill -9`.

Fields may be added, and so may words where a field has a fixed set of them: ignore what you do not know. Existing fields keep their names,
types and meanings, except for those that are called *internal* in these tables. Times are RFC 3339. A field without an entry under *When*
is always there, though it may be `null`; *optional* ones may be missing, and *of* names the kinds of object that have the field. `NODE` and
`PATH` in the name of a field stand for any key. In the examples each list has one item.
";

const ENDED: &str = "
## How a command ended

The last line of a command that prints events, and the only object of any other command that has no result:
";

const COMPACT: &str = "
```
rke-operator status -o json > status.json || jq -r 'select(.event? == \"ended\") | .message, .hints[]?' status.json
```
";

/// The page.
pub(super) fn page() -> String {
    let schema = schema();
    let definitions = &schema["$defs"];
    let mut page = format!("{NOTE}\n\n{HEAD}{ENDED}");
    example(&mut page, FAILED);
    fields(&mut page, definitions, &definitions["Ended"]);
    let _ = write!(
        page,
        "\nThe exit code of `stopped` is {STOPPED}. [exit-codes.md](exit-codes.md) lists the others.\n{COMPACT}"
    );
    events(&mut page, definitions);
    for row in ROWS {
        result(&mut page, definitions, row);
    }
    page
}

fn events(page: &mut String, definitions: &Value) {
    let named = ROWS
        .iter()
        .filter(|row| matches!(row.prints, Prints::Events))
        .map(|row| format!("`{}`", row.command));
    let _ = write!(
        page,
        "\n## Events\n\nOf {}. A command that fails before it begins prints its last line only.\n",
        named.collect::<Vec<_>>().join(", ")
    );
    example(page, EVENTS);
    fields(page, definitions, &definitions["Event"]);
    page.push_str(
        "\nExit codes: 0 `converged` · 3 `degraded` · 130 `stopped` · any other `failed`.\n",
    );
}

fn result(page: &mut String, definitions: &Value, row: &Row) {
    if matches!(row.prints, Prints::Events) {
        return;
    }
    let Row { command, when, .. } = row;
    let _ = write!(page, "\n## `{command}`\n\n{when}\n");
    if !row.example.is_empty() {
        example(page, row.example);
        let of_command = &definitions[row.definition()]["anyOf"][0];
        fields(page, definitions, of_command);
    }
    page.push_str("\nExit codes with a result: ");
    let exits = row.exits.iter();
    let exits = exits.map(|(code, means)| format!("{code} {means}"));
    page.push_str(&exits.collect::<Vec<_>>().join(" · "));
    page.push_str(".\n");
}

fn example(page: &mut String, text: &str) {
    let _ = write!(page, "\n```json\n{}\n```\n", text.trim_end());
}

fn fields(page: &mut String, definitions: &Value, schema: &Value) {
    let mut table = Table {
        definitions,
        rows: Vec::new(),
        explained: Vec::new(),
    };
    table.below(schema, "", "");
    page.push_str("\n| Field | Type | When | Meaning |\n|---|---|---|---|\n");
    for Field {
        path,
        kind,
        when,
        meaning,
    } in table.rows
    {
        let _ = writeln!(page, "| `{path}` | {kind} | {when} | {meaning} |");
    }
}

struct Field {
    path: String,
    kind: String,
    when: String,
    meaning: String,
}

struct Table<'a> {
    definitions: &'a Value,
    rows: Vec<Field>,
    /// Words whose meanings are in a row already.
    explained: Vec<&'a Value>,
}

impl<'a> Table<'a> {
    /// What a reference leads to, and what is left of a type that may be null.
    fn resolved(&self, schema: &'a Value) -> &'a Value {
        if let Some(name) = schema["$ref"]
            .as_str()
            .and_then(|path| path.strip_prefix("#/$defs/"))
        {
            return self.resolved(&self.definitions[name]);
        }
        let some = schema["anyOf"].as_array().into_iter().flatten();
        let mut some = some.filter(|one| one["type"] != "null");
        match (some.next(), some.next()) {
            (Some(only), None) => self.resolved(only),
            (Some(_), Some(_)) | (None, _) => schema,
        }
    }

    /// The fields of a schema at that path, of objects of that kind.
    fn below(&mut self, schema: &'a Value, path: &str, of: &str) {
        let schema = self.resolved(schema);
        if is_of(schema, "array") {
            self.below(&schema["items"], &format!("{path}[]"), of);
        }
        let values = &schema["additionalProperties"];
        if values.is_object() {
            let key = match path.rsplit('.').next().unwrap_or_default() {
                "nodes" | "saved" | "failed" | "left" | "unreachable" => "NODE",
                "freeBytes" => "PATH",
                _ => "*",
            };
            self.below(values, &joined(path, key), of);
        }
        let variants = variants(schema);
        let tag = tag(&variants);
        for (name, field) in properties(schema) {
            if tag.as_deref() != Some(name) {
                self.field(schema, name, field, path, of);
            }
        }
        if let Some(tag) = &tag {
            self.tagged(&variants, tag, path, of);
        } else {
            for variant in variants {
                for (name, field) in properties(variant) {
                    let at = self.rows.len();
                    self.field(variant, name, field, path, "optional");
                    if let Some(row) = self.rows.get_mut(at) {
                        row.meaning = about(variant);
                    }
                }
            }
        }
    }

    /// Objects of several kinds, each with a word that distinguishes it.
    fn tagged(&mut self, variants: &[&'a Value], tag: &str, path: &str, of: &str) {
        let word = |variant: &Value| {
            let word = variant["properties"][tag]["const"].as_str();
            format!("`{}`", word.unwrap_or_default())
        };
        let meanings = variants.iter().map(|variant| {
            let text = about(variant);
            format!("{}: {}", word(variant), lower(&text))
        });
        let words: Vec<String> = variants.iter().map(|variant| word(variant)).collect();
        self.rows.push(Field {
            path: joined(path, tag),
            kind: words.join(", "),
            when: of.to_owned(),
            meaning: meanings.collect::<Vec<_>>().join(" "),
        });
        // Kinds that have the same field share its row.
        let mut shared: Vec<(Vec<String>, &'a Value, &'a str, &'a Value)> = Vec::new();
        for variant in variants {
            let whole = self.resolved(variant);
            let of_whole = properties(whole).filter(|_| variant["$ref"].is_string());
            let of_whole = of_whole.map(|(name, field)| (whole, name, field));
            let own = properties(variant).filter(|(name, _)| *name != tag);
            let own = own.map(|(name, field)| (*variant, name, field));
            let kind = word(variant);
            for (variant, name, field) in own.chain(of_whole) {
                let same = shared.iter_mut().find(|(_, other, known, of_other)| {
                    *known == name
                        && *of_other == field
                        && is_required(other, name) == is_required(variant, name)
                });
                match same {
                    Some((words, ..)) => words.push(kind.clone()),
                    None => shared.push((vec![kind.clone()], variant, name, field)),
                }
            }
        }
        for (words, variant, name, field) in shared {
            let of = format!("of {}", words.join(", "));
            self.field(variant, name, field, path, &of);
        }
    }

    fn field(&mut self, object: &'a Value, name: &'a str, field: &'a Value, path: &str, of: &str) {
        let path = joined(path, name);
        let mut when = of.to_owned();
        if !is_required(object, name) && of != "optional" {
            when.push_str(if when.is_empty() { "" } else { ", " });
            when.push_str("optional");
        }
        let mut meaning = about(field);
        if meaning.is_empty() {
            meaning = about(self.resolved(field));
        }
        let of_word = self.resolved(self.item(field));
        for (word, about) in words(of_word) {
            if !about.is_empty() && !self.explained.contains(&of_word) {
                let _ = write!(meaning, " `{word}`: {}", lower(&about));
            }
        }
        self.explained.push(of_word);
        self.rows.push(Field {
            path: path.clone(),
            kind: self.kind(field),
            when,
            meaning: meaning.trim().to_owned(),
        });
        // Those of one kind say so once.
        self.below(field, &path, "");
    }

    /// What a list is of.
    fn item(&self, schema: &'a Value) -> &'a Value {
        let resolved = self.resolved(schema);
        if is_of(resolved, "array") {
            &resolved["items"]
        } else {
            schema
        }
    }

    fn kind(&self, schema: &'a Value) -> String {
        let mut nullable = schema["anyOf"].as_array().into_iter().flatten();
        let is_nullable = nullable.any(|one| one["type"] == "null")
            || schema["type"]
                .as_array()
                .is_some_and(|kinds| kinds.iter().any(|kind| kind == "null"));
        let resolved = self.resolved(schema);
        let words: Vec<String> = words(resolved)
            .into_iter()
            .map(|(word, _)| format!("`{word}`"))
            .collect();
        let kind = if !words.is_empty() {
            let object = variants(resolved).iter().any(|one| is_of(one, "object"));
            let object = if object { ", object" } else { "" };
            format!("{}{object}", words.join(", "))
        } else if is_of(resolved, "array") {
            format!("list of {}", self.kind(&resolved["items"]))
        } else if resolved["additionalProperties"].is_object() {
            format!("map of {}", self.kind(&resolved["additionalProperties"]))
        } else if resolved["format"] == "date-time" {
            "time".to_owned()
        } else if is_of(resolved, "object") || !variants(resolved).is_empty() {
            "object".to_owned()
        } else {
            let kinds = ["string", "integer", "number", "boolean"];
            let kind = kinds.into_iter().find(|kind| is_of(resolved, kind));
            kind.unwrap_or("any").to_owned()
        };
        if is_nullable {
            format!("{kind} or null")
        } else {
            kind
        }
    }
}

fn joined(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

/// The first letter in lower case, if the word goes on so.
fn lower(text: &str) -> String {
    let mut chars = text.chars();
    match (chars.next(), chars.clone().next()) {
        (Some(first), Some(second)) if second.is_lowercase() || second == ' ' => {
            first.to_lowercase().chain(chars).collect()
        }
        (Some(_) | None, _) => text.to_owned(),
    }
}

fn about(schema: &Value) -> String {
    let text = schema["description"].as_str().unwrap_or_default();
    // A link of rustdoc is a name here.
    let text = text
        .replace('|', "\\|")
        .replace("[`", "`")
        .replace("`]", "`");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn is_of(schema: &Value, kind: &str) -> bool {
    let kinds = schema["type"].as_array();
    schema["type"] == kind || kinds.is_some_and(|kinds| kinds.iter().any(|one| one == kind))
}

fn is_required(object: &Value, name: &str) -> bool {
    let required = object["required"].as_array();
    required.is_some_and(|required| required.iter().any(|one| one == name))
}

fn properties(schema: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let properties = schema["properties"].as_object();
    let each = properties.into_iter().flatten();
    each.map(|(name, field)| (name.as_str(), field))
}

fn variants(schema: &Value) -> Vec<&Value> {
    schema["oneOf"].as_array().into_iter().flatten().collect()
}

/// The field that distinguishes objects of several kinds.
fn tag(variants: &[&Value]) -> Option<String> {
    let first = variants.first()?;
    let has = |variant: &Value, name: &str| variant["properties"][name]["const"].is_string();
    let mut names = properties(first).map(|(name, _)| name);
    let tag = names.find(|name| variants.iter().all(|variant| has(variant, name)));
    tag.map(str::to_owned)
}

/// The fixed words of a string, with their meanings.
fn words(schema: &Value) -> Vec<(String, String)> {
    let mut words = Vec::new();
    if let Some(word) = schema["const"].as_str() {
        words.push((word.to_owned(), String::new()));
    }
    let plain = schema["enum"].as_array().into_iter().flatten();
    let plain = plain.filter_map(Value::as_str);
    words.extend(plain.map(|word| (word.to_owned(), String::new())));
    for variant in variants(schema) {
        let alone = variant["const"].as_str().into_iter();
        let several = variant["enum"].as_array().into_iter().flatten();
        let each = alone.chain(several.filter_map(Value::as_str));
        words.extend(each.map(|word| (word.to_owned(), about(variant))));
    }
    words
}
