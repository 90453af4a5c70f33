use proptest::prelude::*;

use super::*;

fn managed() -> Source {
    Source {
        name: "key-1".to_owned(),
        text: None,
        providers: [(
            "secrets".to_owned(),
            vec![
                json!({"aescbc": {"keys": [{"name": "key-1", "secret": "a"}]}}),
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
    vec![managed(), custom("a"), custom("b")]
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
        found.next().cloned().expect("a form of ours")
    }

    fn all(&self, sources: &[Source]) -> Vec<Form> {
        let texts = self.servers.iter();
        texts
            .map(|text| Self::form(text.as_ref(), sources))
            .collect()
    }

    fn phase(&self, goal: Writer, sources: &[Source]) -> Phase {
        let seen = self.all(sources).into_iter().enumerate();
        let seen = seen.filter(|(it, _)| self.silent != Some(*it));
        World {
            sources,
            goal,
            servers: seen.map(|(_, form)| form).collect(),
            silent: self.silent.is_some(),
            alone: self.servers.len() == 1,
            fresh: false,
            written: if self.api {
                Written::With(self.mark.clone())
            } else {
                Written::Unknown
            },
        }
        .phase()
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

fn phases(count: usize, from: Writer, goal: Writer) -> Vec<String> {
    let sources = sources();
    let name = |writer| match writer {
        Writer::Plain => "identity".to_owned(),
        Writer::Source(it) => sources[it].name.clone(),
    };
    let mut cluster = Cluster {
        servers: vec![Form::last(from).text(&sources); count],
        silent: None,
        stored: [from].into(),
        mark: (from != Writer::Plain).then(|| name(from)),
        api: true,
    };
    let mut told = Vec::new();
    loop {
        let phase = cluster.phase(goal, &sources);
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
        if cluster.run(goal, usize::MAX, &sources).unwrap() {
            return told;
        }
    }
}

#[test]
fn it_takes_two_rolls_and_a_rewrite_each_way() {
    let key = Writer::Source(0);
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
    // Nobody else is there who could not read it.
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

/// Whoever is not seen may write otherwise.
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

#[test]
fn our_key_is_made_once_and_kept() {
    let new = |name: &str| EncryptionKey {
        name: name.to_owned(),
        secret: "c2VjcmV0".to_owned().into(),
    };
    let on = keep(&SecretsEncryption::Managed, &[], || new("key-1"));
    assert_eq!(on, [new("key-1")]);
    let off = keep(&SecretsEncryption::Off, &on, || new("key-2"));
    assert_eq!(off, on);
    assert_eq!(keep(&SecretsEncryption::Managed, &off, || new("key-2")), on);
    let mut keys = on;
    for text in ["1", "2", "3", "4"] {
        let wish = SecretsEncryption::Custom(text.to_owned().into());
        keys = keep(&wish, &keys, || new("key-2"));
    }
    let texts: Vec<&str> = keys
        .iter()
        .map(|key| key.secret.expose().as_str())
        .collect();
    assert_eq!(texts, ["4", "3", "2", "c2VjcmV0"]);
}
