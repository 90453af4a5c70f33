use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::{
    kept::keep,
    source::{forms, identity, merged, providers},
    *,
};
use crate::state::EncryptionKey;

mod rotations;

fn managed(name: &str) -> Source {
    Source {
        name: name.to_owned(),
        text: None,
        providers: [(
            "secrets".to_owned(),
            vec![
                json!({"aescbc": {"keys": [{"name": name, "secret": "a"}]}}),
                identity(),
            ],
        )]
        .into(),
    }
}

/// One that does not read what is not encrypted.
fn custom(name: &str) -> Source {
    let provider = json!({"secretbox": {"keys": [{"name": name, "secret": name}]}});
    let text = json!({"resources": [{"resources": ["secrets"], "providers": [provider]}]});
    Source {
        name: name.to_owned(),
        providers: providers(&text.to_string()),
        text: Some(text.to_string()),
    }
}

fn sources() -> Vec<Source> {
    vec![managed("key-1"), custom("a"), custom("b")]
}

/// API servers, what each reads, and what is stored.
#[derive(Clone, Debug)]
struct Cluster {
    servers: Vec<Option<String>>,
    silent: Option<usize>,
    /// What something that is stored may have been written with.
    stored: BTreeSet<Writer>,
    mark: Option<String>,
    api: bool,
}

impl Cluster {
    fn form(text: Option<&String>, sources: &[Source]) -> Form {
        let Some(text) = text else {
            return Form::plain();
        };
        let all = forms(sources);
        let mut found = all
            .iter()
            .filter(|form| form.text(sources).as_ref() == Some(text));
        found.next().cloned().expect("one of our forms")
    }

    fn all(&self, sources: &[Source]) -> Vec<Form> {
        let texts = self.servers.iter();
        texts
            .map(|text| Self::form(text.as_ref(), sources))
            .collect()
    }

    fn phase(&self, goal: Writer, sources: &[Source]) -> Phase {
        self.world(goal, sources).phase()
    }

    fn world<'a>(&self, goal: Writer, sources: &'a [Source]) -> World<'a> {
        let seen = self.all(sources).into_iter().enumerate();
        let seen = seen.filter(|(it, _)| self.silent != Some(*it));
        World {
            sources,
            goal,
            servers: seen.map(|(_, form)| form).collect(),
            silent: self.silent.is_some(),
            awaited: false,
            alone: self.servers.len() == 1,
            fresh: false,
            written: if self.api {
                Written::With(self.mark.clone())
            } else {
                Written::Unknown
            },
        }
    }

    /// Every one writes something, and every one can read all that is stored.
    fn holds(&mut self, sources: &[Source]) -> Result<(), String> {
        let forms = self.all(sources);
        self.stored.extend(forms.iter().map(|form| form.writer));
        for form in &forms {
            for writer in &self.stored {
                if !form.can_read(*writer, sources) {
                    return Err(format!("{form:?} cannot read what {writer:?} has written"));
                }
            }
        }
        Ok(())
    }

    /// A run's plan, of which so many steps are done.
    fn run(&mut self, goal: Writer, steps: usize, sources: &[Source]) -> Result<bool, String> {
        let phase = self.phase(goal, sources);
        let mut changes = Vec::new();
        if phase.stored == Some(Rewrite::Forget) {
            changes.push(None);
        }
        for (it, text) in self.servers.iter().enumerate() {
            if self.silent != Some(it) && *text != phase.file && self.silent.is_none() {
                changes.push(Some(it));
            }
        }
        let last = matches!(phase.stored, Some(Rewrite::All { .. }));
        let all = changes.len() + usize::from(last);
        for change in changes.into_iter().take(steps) {
            match change {
                None => self.mark = None,
                Some(it) => self.servers[it].clone_from(&phase.file),
            }
            self.holds(sources)?;
        }
        if let (true, Some(Rewrite::All { with, .. })) = (steps >= all && self.api, phase.stored) {
            let forms = self.all(sources);
            if forms.iter().any(|form| form.writer != goal) {
                return Err("rewritten while not all write it".to_owned());
            }
            self.stored = [goal].into();
            self.mark = Some(with);
        }
        Ok(all == 0)
    }
}

fn goals() -> impl Strategy<Value = Writer> {
    prop_oneof![
        2 => Just(Writer::Plain),
        2 => Just(Writer::Source(0)),
        1 => Just(Writer::Source(1)),
        1 => Just(Writer::Source(2)),
    ]
}

#[derive(Clone, Debug)]
struct Turn {
    goal: Writer,
    steps: usize,
    silent: Option<usize>,
    api: bool,
}

fn turns() -> impl Strategy<Value = Turn> {
    let silent = prop_oneof![3 => Just(None), 1 => (0..3_usize).prop_map(Some)];
    (goals(), 0..6_usize, silent, prop::bool::weighted(0.8)).prop_map(
        |(goal, steps, silent, api)| Turn {
            goal,
            steps,
            silent,
            api,
        },
    )
}

proptest! {
    /// Whatever is wanted, and wherever a run ends, no API server writes what another one cannot read, nor does
    /// anything stored become unreadable; and when it is left alone, it comes to what was wanted last.
    #[test]
    fn nothing_becomes_unreadable(count in 1..4_usize, turns in prop::collection::vec(turns(), 1..12)) {
        let sources = sources();
        let mut cluster = Cluster {
            servers: vec![None; count],
            silent: None,
            stored: [Writer::Plain].into(),
            mark: None,
            api: true,
        };
        let mut goal = Writer::Plain;
        for turn in turns {
            cluster.silent = turn.silent.filter(|it| *it < count);
            cluster.api = turn.api;
            goal = turn.goal;
            cluster.run(goal, turn.steps, &sources).map_err(TestCaseError::fail)?;
        }
        cluster.silent = None;
        cluster.api = true;
        let mut runs = 0;
        while !cluster.run(goal, usize::MAX, &sources).map_err(TestCaseError::fail)? {
            runs += 1;
            prop_assert!(runs < 5, "{cluster:?}");
        }
        prop_assert_eq!(&cluster.stored, &BTreeSet::from([goal]));
        let last = Form::last(goal).text(&sources);
        prop_assert!(cluster.servers.iter().all(|text| *text == last), "{:?}", cluster);
    }
}

fn phases(sources: &[Source], count: usize, from: Writer, goal: Writer) -> Vec<String> {
    let name = |writer| match writer {
        Writer::Plain => "identity".to_owned(),
        Writer::Source(it) => sources[it].name.clone(),
    };
    let mut cluster = Cluster {
        servers: vec![Form::last(from).text(sources); count],
        silent: None,
        stored: [from].into(),
        mark: (from != Writer::Plain).then(|| name(from)),
        api: true,
    };
    let mut told = Vec::new();
    loop {
        let phase = cluster.phase(goal, sources);
        let order = phase.file.as_ref().map(|text| {
            let config: Json = serde_json::from_str(text).unwrap();
            let providers = config["resources"][0]["providers"].as_array().unwrap();
            let names = providers.iter().map(|provider| {
                let (kind, keys) = provider.as_object().unwrap().iter().next().unwrap();
                format!(
                    "{kind} {}",
                    keys["keys"][0]["name"].as_str().unwrap_or_default()
                )
            });
            names.collect::<Vec<_>>().join(", ")
        });
        let stored = match &phase.stored {
            None => String::new(),
            Some(Rewrite::Forget) => "; forget".to_owned(),
            Some(Rewrite::All { with, .. }) => format!("; write again with {with}"),
        };
        told.push(format!("{}{stored}", order.as_deref().unwrap_or("none")));
        if cluster.run(goal, usize::MAX, sources).unwrap() {
            return told;
        }
    }
}

#[test]
fn it_takes_two_rolls_and_a_rewrite_each_way() {
    let key = Writer::Source(0);
    let phases = |count, from, goal| phases(&sources(), count, from, goal);
    assert_eq!(
        phases(2, Writer::Plain, key),
        [
            "identity , aescbc key-1",
            "aescbc key-1, identity ",
            "aescbc key-1, identity ; write again with key-1",
            "aescbc key-1, identity ",
        ]
    );
    assert_eq!(
        phases(2, key, Writer::Plain),
        [
            "identity , aescbc key-1; forget",
            "identity , aescbc key-1; write again with identity",
            "none",
            "none",
        ]
    );
    // There is no other server that could not read it.
    assert_eq!(
        phases(1, Writer::Plain, key),
        [
            "aescbc key-1, identity ",
            "aescbc key-1, identity ; write again with key-1",
            "aescbc key-1, identity ",
        ]
    );
    // From one configuration of the user's to another, neither of which reads what is not encrypted.
    assert_eq!(
        phases(2, Writer::Source(1), Writer::Source(2)),
        [
            "secretbox a, secretbox b, identity ",
            "secretbox b, secretbox a, identity ; forget",
            "secretbox b, secretbox a, identity ; write again with b",
            "secretbox b",
            "secretbox b",
        ]
    );
}

/// A server that is not seen may write in another form.
#[test]
fn nothing_is_written_again_while_a_server_does_not_answer() {
    let sources = sources();
    let key = Writer::Source(0);
    let form = |writer| Form {
        writer,
        reads: [0].into(),
        last: false,
    };
    let (reads, writes) = (form(Writer::Plain), form(key));
    let mut cluster = Cluster {
        servers: vec![writes.text(&sources), reads.text(&sources)],
        silent: Some(1),
        stored: [Writer::Plain, key].into(),
        mark: None,
        api: true,
    };
    assert_eq!(cluster.phase(key, &sources).stored, None);
    cluster.servers[1] = writes.text(&sources);
    cluster.silent = None;
    let all = cluster.phase(key, &sources).stored;
    assert!(matches!(all, Some(Rewrite::All { .. })), "{all:?}");
}

fn key(name: &str) -> EncryptionKey {
    EncryptionKey {
        name: name.to_owned(),
        secret: "c2VjcmV0".to_owned().into(),
    }
}

fn texts(keys: &[EncryptionKey]) -> Vec<&str> {
    let texts = keys.iter().map(|key| key.secret.expose().as_str());
    texts.collect()
}

#[test]
fn our_key_is_made_once_and_kept() {
    let nothing = || Vec::new();
    let keep = |wish, known: &[EncryptionKey], new| keep(&wish, known, nothing, || key(new));
    let on = keep(SecretsEncryption::Managed, &[], "key-1").unwrap();
    assert_eq!(on, [key("key-1")]);
    let off = keep(SecretsEncryption::Off, &on, "key-2").unwrap();
    assert_eq!(off, on);
    assert_eq!(keep(SecretsEncryption::Managed, &off, "key-2").unwrap(), on);
}

/// E15: whatever is edited meanwhile, a configuration that an API server reads or the mark names stays; the others are
/// removed in time. One whose use is unknown is kept, and from some number on the next edit is refused.
#[test]
fn a_configuration_goes_only_when_nothing_needs_it() {
    let edited = |known: &[EncryptionKey], text: &str, needed: &[&str]| {
        let all = || {
            known
                .iter()
                .map(|key| needed.contains(&key.secret.expose().as_str()))
        };
        let wish = SecretsEncryption::Custom(text.to_owned().into());
        keep(&wish, known, || all().collect(), || key("key-2"))
    };
    let mut keys = vec![key("key-1")];
    for text in ["1", "2", "3", "4"] {
        keys = edited(&keys, text, &[]).unwrap();
    }
    assert_eq!(texts(&keys), ["4", "3", "2", "c2VjcmV0"]);
    for text in ["5", "6", "7"] {
        keys = edited(&keys, text, &["2"]).unwrap();
    }
    assert_eq!(texts(&keys), ["7", "6", "5", "2", "c2VjcmV0"]);
    let all = ["2", "5", "6", "7", "8"];
    keys = edited(&keys, "8", &all).unwrap();
    keys = edited(&keys, "9", &all).unwrap();
    assert_eq!(texts(&keys), ["9", "8", "7", "6", "5", "2", "c2VjcmV0"]);
    assert_eq!(edited(&keys, "10", &[&all[..], &["9"]].concat()), Err(7));
    assert_eq!(edited(&keys, "9", &[]), Ok(keys.clone()), "it is there");
    // Nothing is known of them.
    let wish = SecretsEncryption::Custom("10".to_owned().into());
    assert_eq!(keep(&wish, &keys, Vec::new, || key("key-2")), Err(7));
}

fn widgets(name: &str, resources: &[&str]) -> Source {
    let provider = json!({"secretbox": {"keys": [{"name": name, "secret": name}]}});
    let text =
        json!({"resources": [{"resources": resources, "providers": [provider]}]}).to_string();
    Source {
        name: name.to_owned(),
        providers: providers(&text),
        text: Some(text),
    }
}

/// E4: the mark of an earlier release says nothing about kinds outside the core API group. Their key stays until all
/// of them were rewritten; where that release has removed it already, nothing is done.
#[test]
fn what_was_not_written_again_stays_readable() {
    let sources = vec![
        widgets("a", &["secrets", "widgets.example.com"]),
        widgets("b", &["secrets", "widgets.example.com"]),
    ];
    let writes_b = Form {
        writer: Writer::Source(1),
        reads: [0, 1].into(),
        last: false,
    };
    let world = |servers: Form, mark: Option<&str>| World {
        sources: &sources,
        goal: Writer::Source(1),
        servers: vec![servers; 2],
        silent: false,
        awaited: false,
        alone: false,
        fresh: false,
        written: Written::With(mark.map(str::to_owned)),
    };
    let last = Form::last(Writer::Source(1));
    let has_a = |phase: &Phase| phase.file.as_ref().unwrap().contains(r#""name":"a""#);
    for mark in [None, Some("b"), Some("a"), Some("a/all")] {
        let phase = world(writes_b.clone(), mark).phase();
        assert!(has_a(&phase), "{mark:?}");
        let Some(Rewrite::All { resources, with }) = phase.stored else {
            panic!("{mark:?}: {:?}", phase.stored)
        };
        assert!(resources.contains("widgets.example.com"));
        assert_eq!(with, "b/all");
    }
    let phase = world(writes_b, Some("b/all")).phase();
    assert_eq!((has_a(&phase), &phase.stored), (false, &None));
    for mark in ["b", "b/all"] {
        let phase = world(last.clone(), Some(mark)).phase();
        assert_eq!((has_a(&phase), &phase.stored), (false, &None), "{mark}");
    }
}

/// A pattern counts for whatever it covers, also where another configuration names that alone, and comes after it.
#[test]
fn a_pattern_writes_and_reads_what_it_covers() {
    let merged = |writer: &[&str], other: &[&str]| {
        let (writer, other) = (widgets("b", writer), widgets("a", other));
        let text = merged(Some(&writer), &[&other]);
        let config: Json = serde_json::from_str(&text).unwrap();
        let entries = config["resources"].as_array().unwrap().iter();
        let entries = entries.map(|entry| {
            let providers = entry["providers"].as_array().unwrap().iter();
            let names = providers.map(|provider| {
                let name = provider["secretbox"]["keys"][0]["name"].as_str();
                name.unwrap_or("-")
            });
            let resource = entry["resources"][0].as_str().unwrap();
            format!("{resource} {}", names.collect::<String>())
        });
        entries.collect::<Vec<_>>()
    };
    assert_eq!(merged(&["*.*"], &["secrets"]), ["secrets ba-", "*.* b-"]);
    assert_eq!(merged(&["secrets"], &["*.*"]), ["secrets ba-", "*.* -a"]);
    assert_eq!(
        merged(&["*."], &["secrets", "x.apps"]),
        ["secrets ba-", "x.apps -a", "*. b-"]
    );
    assert_eq!(
        merged(&["*.apps", "*.*"], &["x.apps"]),
        ["x.apps ba-", "*.apps b-", "*.* b-"]
    );
}
