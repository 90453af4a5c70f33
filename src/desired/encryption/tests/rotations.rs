use super::{
    super::{
        rotation::{KeyRotation, KeyRotationError},
        source::forms,
    },
    *,
};

const KEY: Writer = Writer::Source(0);

/// The newest first, with one configuration of the user's at the end.
fn keys(count: usize) -> Vec<Source> {
    let keys = (0..count).map(|it| managed(&format!("key-{}", count - it)));
    keys.chain([custom("a")]).collect()
}

/// All API servers write with this one and read nothing else, as the mark says.
fn settled(count: usize, writer: Writer, sources: &[Source]) -> Cluster {
    let name = match writer {
        Writer::Plain => "identity".to_owned(),
        Writer::Source(it) => sources[it].name.clone(),
    };
    Cluster {
        servers: vec![Form::last(writer).text(sources); count],
        silent: None,
        stored: [writer].into(),
        mark: Some(name),
        api: true,
    }
}

impl Cluster {
    /// A key more, in front of the others.
    fn has_a_new_key(&mut self) {
        let moved = self.stored.iter().map(|writer| match writer {
            Writer::Plain => Writer::Plain,
            Writer::Source(it) => Writer::Source(it + 1),
        });
        self.stored = moved.collect();
    }
}

#[test]
fn a_key_takes_the_place_of_another_in_two_rolls_and_a_rewrite() {
    let sources = keys(2);
    assert_eq!(
        phases(&sources, 2, Writer::Source(1), KEY),
        [
            "aescbc key-1, identity , aescbc key-2",
            "aescbc key-2, identity , aescbc key-1; forget",
            "aescbc key-2, identity , aescbc key-1; write again with key-2",
            "aescbc key-2, identity ",
            "aescbc key-2, identity ",
        ]
    );
    assert_eq!(
        phases(&sources, 1, Writer::Source(1), KEY),
        [
            "aescbc key-2, identity , aescbc key-1; forget",
            "aescbc key-2, identity , aescbc key-1; write again with key-2",
            "aescbc key-2, identity ",
            "aescbc key-2, identity ",
        ]
    );
}

/// A rotation that was cut off after any number of runs goes on, and only at its end another one begins.
#[test]
fn no_second_key_is_generated_while_a_rotation_is_in_progress() {
    let sources = keys(2);
    let mut cluster = settled(2, Writer::Source(1), &sources);
    let mut goes_on = 0;
    loop {
        match cluster.world(KEY, &sources).rotation() {
            Ok(KeyRotation::GoesOn) => goes_on += 1,
            other => {
                assert_eq!(other, Ok(KeyRotation::Begins));
                break;
            }
        }
        cluster.run(KEY, 1, &sources).unwrap();
    }
    assert_eq!(goes_on, 8, "two rolls, the mark, the rewrite, and a roll");
    assert_eq!(cluster.stored, [KEY].into());
}

#[test]
fn a_rotation_begins_only_where_everything_is_seen_and_settled() {
    let sources = keys(2);
    let rotation = |cluster: &Cluster| cluster.world(KEY, &sources).rotation();
    let cluster = settled(2, KEY, &sources);
    assert_eq!(rotation(&cluster), Ok(KeyRotation::Begins));
    let silent = Cluster {
        silent: Some(1),
        ..cluster.clone()
    };
    assert_eq!(rotation(&silent), Err(KeyRotationError::Silent));
    let none = Cluster {
        servers: Vec::new(),
        ..cluster.clone()
    };
    assert_eq!(rotation(&none), Err(KeyRotationError::NotApplied));
    for writer in [Writer::Plain, Writer::Source(2)] {
        let other = settled(2, writer, &sources);
        assert_eq!(rotation(&other), Err(KeyRotationError::NotApplied));
        let marked = Cluster {
            mark: other.mark,
            ..cluster.clone()
        };
        assert_eq!(rotation(&marked), Err(KeyRotationError::NotApplied));
    }
    // One that is replaced at this moment is awaited, also where it is the only one.
    for servers in [cluster.servers.clone(), Vec::new()] {
        let cluster = Cluster {
            servers,
            ..cluster.clone()
        };
        let world = World {
            awaited: true,
            ..cluster.world(KEY, &sources)
        };
        assert_eq!(world.rotation(), Ok(KeyRotation::GoesOn));
    }
    // One that is in progress goes on without those.
    let before = settled(2, Writer::Source(1), &sources);
    for (silent, api) in [(None, true), (Some(1), true), (None, false)] {
        let cluster = Cluster {
            silent,
            api,
            ..before.clone()
        };
        assert_eq!(rotation(&cluster), Ok(KeyRotation::GoesOn));
    }
}

/// However many keys there were: each form that is written is found again.
#[test]
fn the_forms_stay_few() {
    for (count, most) in [(1, 20), (5, 200), (30, 6000)] {
        let forms = forms(&keys(count)).len();
        assert!(forms < most, "{count}: {forms}");
    }
}

/// More than two keys are read together: all of them.
#[test]
fn of_three_keys_all_are_read() {
    let sources = keys(5);
    let readable = |reads: &[usize]| readable(reads.iter().copied().collect(), &sources);
    assert_eq!(readable(&[0, 3, 5]), [0, 3, 5].into());
    assert_eq!(readable(&[0, 2, 3]), [0, 1, 2, 3, 4].into());
}

proptest! {
    /// Keys are rotated again and again, and encryption is switched otherwise meanwhile: nothing becomes unreadable, and
    /// everything ends with the newest key.
    #[test]
    fn no_rotation_makes_anything_unreadable(
        count in 1..4_usize,
        turns in prop::collection::vec((turns(), 0..4_u8), 1..24),
    ) {
        let mut rotated = 1;
        let mut cluster = settled(count, Writer::Plain, &keys(1));
        for (turn, wish) in turns {
            cluster.silent = turn.silent.filter(|it| *it < count);
            cluster.api = turn.api;
            let is_managed = wish < 2;
            if is_managed && cluster.world(KEY, &keys(rotated)).rotation() == Ok(KeyRotation::Begins) {
                cluster.has_a_new_key();
                rotated += 1;
            }
            let sources = keys(rotated);
            let goal = match wish {
                0 | 1 => KEY,
                2 => Writer::Plain,
                _ => Writer::Source(rotated),
            };
            cluster.run(goal, turn.steps, &sources).map_err(TestCaseError::fail)?;
        }
        cluster.silent = None;
        cluster.api = true;
        let sources = keys(rotated);
        let mut runs = 0;
        while !cluster.run(KEY, usize::MAX, &sources).map_err(TestCaseError::fail)? {
            runs += 1;
            prop_assert!(runs < 5, "{cluster:?}");
        }
        prop_assert_eq!(&cluster.stored, &BTreeSet::from([KEY]));
        prop_assert!(cluster.world(KEY, &sources).is_settled(), "{:?}", cluster);
    }
}
