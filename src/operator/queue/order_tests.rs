use proptest::prelude::*;

use super::*;
use crate::operator::queue::budget::LARGE;

const ON_NODES: [Class; 4] = [Class::Delete, Class::Change, Class::Heal, Class::Look];
const NONE: [u32; 0] = [];
const SECOND: Duration = Duration::from_secs(1);

fn rooms(slots: usize) -> Rooms {
    let room = Room { slots };
    Rooms {
        brief: room,
        deletes: room,
        changes: room,
        looks: room,
    }
}

fn arrives(class: Class, nodes: usize, hangs: bool) -> Arrival {
    Arrival {
        class,
        nodes,
        hangs,
        settles: None,
    }
}

fn prompt(class: Class) -> Arrival {
    arrives(class, 1, false)
}

/// The keys that begin now, in their order.
fn begun(order: &mut Order<u32>, now: Duration) -> Vec<u32> {
    let mut begun = Vec::new();
    order.age(now);
    while let Some(work) = order.next(now) {
        match work {
            Work::Reconcile { key, .. } => begun.push(key),
            Work::Tell { key, .. } => assert!(!order.finish(&key, Next::Rest, now)),
        }
    }
    begun
}

/// An object of a simulated life.
#[derive(Clone, Debug)]
struct Object {
    class: Class,
    nodes: usize,
    /// It asks the management API first.
    brief: bool,
    /// Its work shows progress.
    progresses: bool,
}

fn object() -> impl Strategy<Value = Object> {
    let nodes = prop_oneof![8 => 1..40_usize, 2 => 100..=LARGE, 1 => LARGE + 1..1000];
    let class = proptest::sample::select(ON_NODES.to_vec());
    (class, nodes, any::<bool>(), any::<bool>()).prop_map(|(class, nodes, brief, progresses)| {
        Object {
            class,
            nodes,
            brief,
            progresses,
        }
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Happens {
    Arrives(u32),
    /// A brief reconcile comes to its nodes.
    Enters(u32),
    Ends(u32),
    Wakes,
}

/// Objects that arrive at given times, and are worked on for given times.
struct Life {
    objects: Vec<Object>,
    order: Order<u32>,
    now: Duration,
    events: BTreeMap<(Duration, u64), Happens>,
    count: u64,
    times: Vec<u64>,
    /// Since when each waits, and whether it began in a brief reconcile.
    waits: BTreeMap<u32, (Duration, bool)>,
    works: BTreeSet<u32>,
    changed: BTreeSet<u32>,
    longest: Duration,
}

impl Life {
    fn new(objects: Vec<Object>, slots: usize, times: Vec<u64>) -> Self {
        let longest = Duration::from_secs(times.iter().copied().max().unwrap_or(1));
        Self {
            objects,
            order: Order::new(rooms(slots)),
            now: Duration::ZERO,
            events: BTreeMap::new(),
            count: 0,
            times,
            waits: BTreeMap::new(),
            works: BTreeSet::new(),
            changed: BTreeSet::new(),
            longest,
        }
    }

    fn at(&mut self, time: Duration, happens: Happens) {
        self.count += 1;
        self.events.insert((time, self.count), happens);
    }

    fn takes(&self) -> Duration {
        let at = usize::try_from(self.count).unwrap() % self.times.len();
        Duration::from_secs(self.times[at])
    }

    /// How long this object may wait: its patience, and one turn of each other.
    fn bound(&self, key: u32, was_brief: bool) -> Duration {
        let others = u32::try_from(self.objects.len()).unwrap();
        let turns = (self.longest + 2 * SECOND) * others;
        let class = self.objects[key as usize].class;
        // A brief reconcile waits for its own slots first.
        class.patience() + turns * if was_brief { 2 } else { 1 }
    }

    fn arrives(&mut self, key: u32) {
        let Object {
            class,
            nodes,
            brief,
            ..
        } = self.objects[key as usize];
        let class = if brief { Class::Brief } else { class };
        self.order.add(&key, arrives(class, nodes, false), self.now);
        if self.works.contains(&key) {
            self.changed.insert(key);
        } else {
            self.waits.entry(key).or_insert((self.now, brief));
        }
    }

    fn begins(&mut self, key: u32) {
        let (since, was_brief) = self.waits[&key];
        let waited = self.now.saturating_sub(since);
        let bound = self.bound(key, was_brief);
        assert!(
            waited <= bound,
            "{key} waited for {waited:?}, not {bound:?}"
        );
        self.waits.remove(&key);
        if self.objects[key as usize].progresses {
            self.order.progresses(&key);
        }
        let takes = self.takes();
        self.at(self.now + takes, Happens::Ends(key));
    }

    fn ends(&mut self, key: u32, next: Next) {
        self.works.remove(&key);
        let again = self.order.finish(&key, next, self.now);
        assert_eq!(again, self.changed.remove(&key), "{key}");
        if again {
            self.arrives(key);
        }
    }

    fn happens(&mut self, happens: Happens) {
        match happens {
            Happens::Arrives(key) => self.arrives(key),
            Happens::Wakes => {}
            Happens::Ends(key) => self.ends(key, Next::Rest),
            Happens::Enters(key) => {
                let Object { class, nodes, .. } = self.objects[key as usize];
                match self.order.enter(&key, class, nodes, self.now) {
                    Ok(()) => self.begins(key),
                    Err(_) => self.ends(key, Next::Line(class, None)),
                }
            }
        }
        self.begin();
        self.holds();
    }

    fn begin(&mut self) {
        self.order.age(self.now);
        for key in self.order.due(self.now) {
            self.arrives(key);
        }
        while let Some(work) = self.order.next(self.now) {
            match work {
                Work::Reconcile { key, .. } => {
                    assert!(self.works.insert(key), "{key} is worked on twice at once");
                    let item = &self.order.items[&key];
                    if item.hold.unwrap().class == Some(Class::Brief) {
                        self.at(self.now + SECOND, Happens::Enters(key));
                    } else {
                        self.begins(key);
                    }
                }
                Work::Tell { key, .. } => {
                    assert!(self.works.insert(key), "{key} is worked on already");
                    self.at(self.now + SECOND, Happens::Ends(key));
                }
            }
        }
        if let Some(at) = self.order.wakes(self.now) {
            assert!(at > self.now);
            self.at(at, Happens::Wakes);
        }
    }

    /// What holds at every moment.
    fn holds(&self) {
        let order = &self.order;
        assert!(order.deletes.holds() && order.others.holds());
        for pool in [Pool::Brief, Pool::Deletes, Pool::Changes, Pool::Looks] {
            let room = order.rooms.of(pool);
            for lane in [Lane::Prompt, Lane::Slow] {
                assert!(order.used_of(pool, lane) <= room.of(lane), "{pool:?}");
            }
            for class in [Class::Change, Class::Heal] {
                let most = room.slots - room.kept();
                assert!(order.used(class, Lane::Prompt) <= most);
            }
        }
        // What could begin has begun, but for what comes after one that needs more nodes.
        let mut parts = BTreeSet::new();
        for (_, line, _, nodes) in order.candidates() {
            if parts.insert((line.class == Class::Delete, line.share)) {
                assert!(!order.fits(line, nodes), "{line:?} could begin");
            }
        }
        assert!(order.briefs.is_empty() || !order.has_slot(Class::Brief, Lane::Prompt));
        assert_eq!(order.working.len(), self.works.len());
    }

    fn live(mut self, arrivals: &[(u64, u32)]) {
        let objects = u32::try_from(self.objects.len()).unwrap();
        for (time, key) in arrivals {
            self.at(Duration::from_secs(*time), Happens::Arrives(key % objects));
        }
        while let Some(((now, _), happens)) = self.events.pop_first() {
            self.now = now;
            self.happens(happens);
        }
        assert_eq!(
            self.waits,
            BTreeMap::new(),
            "each was worked on after it changed"
        );
        assert_eq!(self.order.depth(), 0);
        let is_known = |(_, item): (&u32, &Item)| !item.rests();
        assert!(!self.order.items.iter().any(is_known), "nothing is kept");
    }
}

proptest! {
    /// Nothing is worked on twice at once, nothing is forgotten, no slot and no part of the budget is used twice, what can
    /// begin begins, and each waits for a bounded time, whatever arrives.
    #[test]
    fn each_waits_for_a_bounded_time(
        objects in proptest::collection::vec(object(), 1..40),
        slots in 1..9_usize,
        times in proptest::collection::vec(1..100_u64, 1..20),
        arrivals in proptest::collection::vec((0..3000_u64, any::<u32>()), 1..300),
    ) {
        Life::new(objects, slots, times).live(&arrivals);
    }

    /// However many hang, one that answers begins at once.
    #[test]
    fn those_that_hang_keep_no_slot_from_the_others(
        hanging in proptest::collection::vec(1..=LARGE, 1..100),
        slots in 1..20_usize,
        class in proptest::sample::select(ON_NODES.to_vec()),
    ) {
        let mut order = Order::new(rooms(slots));
        for (key, nodes) in (1..).zip(&hanging) {
            order.add(&key, arrives(class, *nodes, true), Duration::ZERO);
        }
        let hang = begun(&mut order, Duration::ZERO);
        prop_assert!(!hang.is_empty() && hang.len() <= slots);
        order.add(&0, arrives(class, LARGE, false), SECOND);
        prop_assert_eq!(begun(&mut order, SECOND), vec![0]);
    }
}

/// Clusters that were never worked on, whose nodes hang: one that comes after them waits for 15 s.
#[test]
fn new_ones_that_hang_hold_the_slots_of_the_others_once() {
    let mut order = Order::new(rooms(16));
    let all: Vec<u32> = (0..20).collect();
    for key in &all {
        order.add(key, prompt(Class::Look), Duration::ZERO);
    }
    assert_eq!(begun(&mut order, Duration::ZERO).len(), 16);
    order.add(&99, prompt(Class::Look), SECOND);
    assert_eq!(begun(&mut order, SECOND), NONE);
    assert_eq!(order.wakes(SECOND), Some(SLOW_AFTER));
    assert_eq!(begun(&mut order, SLOW_AFTER), [16, 17, 18, 19, 99]);
    let end = SLOW_AFTER + SECOND;
    for key in 0..16 {
        order.finish(&key, Next::After(SECOND), end);
    }
    // The next time they begin where they hold no other up.
    for key in order.due(end + SECOND) {
        order.add(&key, prompt(Class::Look), end + SECOND);
    }
    assert_eq!(begun(&mut order, end + SECOND).len(), 16);
    assert_eq!(order.used(Class::Look, Lane::Prompt), 5);
    // One that answers again is like the others; its slot goes to one of those that hold up the others.
    order.progresses(&0);
    order.finish(&0, Next::Rest, end + SLOW_AFTER);
    order.add(&0, prompt(Class::Look), end + SLOW_AFTER);
    assert_eq!(begun(&mut order, end + SLOW_AFTER), [0]);
    assert_eq!(order.used(Class::Look, Lane::Prompt), 5);
}

#[test]
fn changes_and_heals_leave_each_other_a_part() {
    for (first, second) in [(Class::Change, Class::Heal), (Class::Heal, Class::Change)] {
        let mut order = Order::new(rooms(16));
        for key in 0..40 {
            order.add(&key, prompt(first), Duration::ZERO);
        }
        assert_eq!(begun(&mut order, Duration::ZERO).len(), 12);
        for key in 40..80 {
            order.add(&key, prompt(second), SECOND);
        }
        assert_eq!(begun(&mut order, SECOND), [40, 41, 42, 43]);
    }
}

/// With one slot for both, changes come first, and no heal waits for those that came a minute after it.
#[test]
fn a_heal_is_overtaken_for_a_minute() {
    let mut order = Order::new(rooms(1));
    order.add(&0, prompt(Class::Change), Duration::ZERO);
    assert_eq!(begun(&mut order, Duration::ZERO), [0]);
    order.progresses(&0);
    order.add(&1, prompt(Class::Heal), Duration::ZERO);
    order.add(&2, prompt(Class::Change), 59 * SECOND);
    order.add(&3, prompt(Class::Change), 61 * SECOND);
    let mut last = 0;
    for next in [2, 1, 3] {
        order.finish(&last, Next::Rest, 100 * SECOND);
        assert_eq!(begun(&mut order, 100 * SECOND), [next]);
        order.progresses(&next);
        last = next;
    }
}

/// What needs most of the budget gets it: those that need little do not keep it used.
#[test]
fn one_that_needs_many_nodes_is_not_passed_for_ever() {
    let mut order = Order::new(rooms(16));
    for key in 0..10 {
        order.add(&key, arrives(Class::Look, 25, false), Duration::ZERO);
    }
    assert_eq!(begun(&mut order, Duration::ZERO).len(), 10);
    order.add(&10, arrives(Class::Change, LARGE, false), SECOND);
    order.add(&11, arrives(Class::Look, 25, false), SECOND);
    assert_eq!(
        begun(&mut order, SECOND),
        NONE,
        "fifty are left, for the change"
    );
    for key in 0..6 {
        order.finish(&key, Next::Rest, SECOND);
    }
    assert_eq!(begun(&mut order, SECOND), [10]);
    order.finish(&6, Next::Rest, SECOND);
    assert_eq!(begun(&mut order, SECOND), [11]);
}

#[test]
fn a_change_overtakes_a_delay() {
    let mut order = Order::new(rooms(1));
    order.add(&0, prompt(Class::Look), Duration::ZERO);
    assert_eq!(begun(&mut order, Duration::ZERO), [0]);
    order.add(&0, prompt(Class::Look), SECOND);
    assert_eq!(begun(&mut order, SECOND), NONE, "not twice at once");
    assert!(order.finish(&0, Next::After(60 * SECOND), SECOND), "again");
    order.add(&0, prompt(Class::Look), SECOND);
    assert_eq!(begun(&mut order, SECOND), [0]);
    assert!(!order.finish(&0, Next::After(60 * SECOND), 2 * SECOND));
    assert_eq!(order.wakes(2 * SECOND), Some(62 * SECOND));
    order.add(&0, prompt(Class::Look), 3 * SECOND);
    assert_eq!(begun(&mut order, 3 * SECOND), [0]);
    order.finish(&0, Next::Rest, 4 * SECOND);
    assert_eq!(order.wakes(4 * SECOND), None, "the delay is over");
    assert_eq!(order.due(100 * SECOND), NONE);
}

/// Each edit moves the beginning, ten seconds at most; a deletion does not wait for them.
#[test]
fn edits_in_a_row_are_one() {
    let edit = Arrival {
        settles: Some((2 * SECOND, 10 * SECOND)),
        ..prompt(Class::Brief)
    };
    let mut order = Order::new(rooms(1));
    for second in 0..=8 {
        let now = second * SECOND;
        assert_eq!(order.due(now), NONE);
        order.add(&0, edit, now);
        let at = (now + 2 * SECOND).min(10 * SECOND);
        assert_eq!(order.wakes(now), Some(at));
    }
    order.add(&0, edit, 9 * SECOND);
    assert_eq!(order.due(10 * SECOND), [0]);
    order.add(&1, edit, Duration::ZERO);
    order.add(&1, prompt(Class::Brief), SECOND);
    assert_eq!(begun(&mut order, SECOND), [1]);
    assert_eq!(order.due(100 * SECOND), NONE);
}

/// An object that waits says its place when that has changed, and is not worked on meanwhile.
#[test]
fn a_place_is_written_when_it_changes() {
    let mut order = Order::new(rooms(1));
    for key in 0..3 {
        order.add(&key, prompt(Class::Brief), Duration::ZERO);
        assert_eq!(begun(&mut order, Duration::ZERO), [key]);
        let entered = order.enter(&key, Class::Change, 1, Duration::ZERO);
        let ahead = usize::try_from(key).unwrap().checked_sub(1);
        assert_eq!(
            entered.err(),
            ahead,
            "none is ahead of the first that waits"
        );
        if ahead.is_some() {
            order.finish(&key, Next::Line(Class::Change, None), Duration::ZERO);
        }
    }
    order.progresses(&0);
    let slots = order.slots(Pool::Changes);
    assert_eq!((slots.total, slots.used, slots.waiting), (2, 1, 2));
    assert_eq!(order.next(30 * SECOND), None, "they know");
    order.finish(&0, Next::Rest, 40 * SECOND);
    assert_eq!(begun(&mut order, 40 * SECOND), [1]);
    order.progresses(&1);
    assert_eq!(order.wakes(40 * SECOND), Some(60 * SECOND));
    let tell = Work::Tell { key: 2, ahead: 0 };
    assert_eq!(order.next(60 * SECOND), Some(tell));
    order.finish(&1, Next::Rest, 60 * SECOND);
    assert_eq!(order.next(60 * SECOND), None, "its place is being written");
    assert!(!order.finish(&2, Next::Rest, 61 * SECOND));
    assert_eq!(begun(&mut order, 61 * SECOND), [2]);
}

/// An object in line that changes is reconciled briefly, and keeps its place; so does one whose time has come.
#[test]
fn one_in_line_keeps_its_place() {
    let mut order = Order::new(rooms(1));
    for key in 0..3 {
        order.add(&key, prompt(Class::Delete), Duration::ZERO);
    }
    assert_eq!(begun(&mut order, Duration::ZERO), [0]);
    order.progresses(&0);
    order.add(&1, prompt(Class::Brief), SECOND);
    assert_eq!(begun(&mut order, SECOND), [1]);
    assert_eq!(order.depth(), 2, "one of them is worked on");
    assert_eq!(order.enter(&1, Class::Delete, 1, SECOND), Err(0));
    let wait = Some(10 * SECOND);
    order.finish(&1, Next::Line(Class::Delete, wait), SECOND);
    assert_eq!(order.wakes(SECOND), Some(11 * SECOND));
    assert_eq!(order.due(11 * SECOND), [1]);
    order.add(&1, prompt(Class::Brief), 11 * SECOND);
    assert_eq!(begun(&mut order, 11 * SECOND), [1]);
    order.finish(&1, Next::Line(Class::Delete, None), 11 * SECOND);
    order.finish(&0, Next::Rest, 12 * SECOND);
    assert_eq!(begun(&mut order, 12 * SECOND), [1]);
    order.forget(&2);
    order.finish(&1, Next::Rest, 13 * SECOND);
    assert_eq!(begun(&mut order, 13 * SECOND), NONE);
    assert!(order.items.is_empty());
}
