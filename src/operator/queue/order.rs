//! Which object is next, and with which slot. Pure: the time is an argument, and nothing here waits.
//!
//! An object is one key. It waits at one place, it is worked on once at a time, and one that changes meanwhile is worked on
//! again afterwards. An object that waits is an entry here and nothing else.
//!
//! | Class | Slots | What needs it |
//! |---|---|---|
//! | `Brief` | its own | what asks only the management API: each object that changed, before it needs its nodes |
//! | `Delete` | its own | a removal |
//! | `Change` | shared with `Heal` | a run towards another config |
//! | `Heal` | shared with `Change` | a run back to what was applied |
//! | `Look` | its own | a survey of a settled cluster |
//!
//! Classes that share no slots cannot starve each other. Where two share something, slots or the
//! [budget](super::budget) for nodes, the one with the earliest *due time* is next: the time at which it lined up, and
//! what its class can wait ([`Class::patience`]). So changes come before heals and both before looks, and each
//! is overtaken only by those that lined up less than its patience after it: at most five minutes. One that is next and
//! finds too few nodes left in the budget holds that part of it for itself. With that each waits
//! at most its patience and one turn of each other object; with slots to spare for heals and for changes
//! ([`Room::kept`]) neither waits for a queue of the other.
//!
//! What has shown no progress after [`SLOW_AFTER`] hangs, and goes on in a slot of the slow lane, which has as many as there
//! are otherwise. The next time it begins there. So a cluster whose nodes do not answer holds a slot of the
//! others for that long, and only once.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::budget::{Budget, Share};

/// What works on nodes and shows no progress for this long hangs.
pub(super) const SLOW_AFTER: Duration = Duration::from_secs(15);

/// How often an object that waits says how many come first, at most. Those far behind say it less often.
const PLACE_EVERY: Duration = Duration::from_secs(30);

/// So many places further behind, it says so half as often, a third as often, and so on.
const PLACES: usize = 10;

/// What is done with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::operator) enum Class {
    /// What asks only the management API.
    Brief,
    /// A removal.
    Delete,
    /// A run towards another config.
    Change,
    /// A run back to what was applied.
    Heal,
    /// A survey.
    Look,
}

impl Class {
    /// How long it can wait for others that lined up later.
    pub(super) const fn patience(self) -> Duration {
        match self {
            Self::Brief | Self::Delete | Self::Change => Duration::ZERO,
            Self::Heal => Duration::from_secs(60),
            Self::Look => Duration::from_secs(300),
        }
    }

    const fn pool(self) -> Pool {
        match self {
            Self::Brief => Pool::Brief,
            Self::Delete => Pool::Deletes,
            Self::Change | Self::Heal => Pool::Changes,
            Self::Look => Pool::Looks,
        }
    }

    /// Objects say how many come before them.
    const fn says_its_place(self) -> bool {
        matches!(self, Self::Delete | Self::Change | Self::Heal)
    }
}

/// Slots that classes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pool {
    Brief,
    Deletes,
    Changes,
    Looks,
}

/// Whether an object answered the last time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lane {
    Prompt,
    Slow,
}

/// The slots of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) slots: usize,
}

impl Room {
    /// Those on top for what hangs: it costs little.
    pub(super) const fn slow(self) -> usize {
        self.slots
    }

    /// Those that changes leave to heals, and heals to changes.
    pub(super) const fn kept(self) -> usize {
        self.slots / 4
    }

    const fn of(self, lane: Lane) -> usize {
        match lane {
            Lane::Prompt => self.slots,
            Lane::Slow => self.slow(),
        }
    }
}

/// The slots of all pools.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rooms {
    pub(super) brief: Room,
    pub(super) deletes: Room,
    pub(super) changes: Room,
    pub(super) looks: Room,
}

impl Rooms {
    pub(super) const fn of(&self, pool: Pool) -> Room {
        match pool {
            Pool::Brief => self.brief,
            Pool::Deletes => self.deletes,
            Pool::Changes => self.changes,
            Pool::Looks => self.looks,
        }
    }

    /// How many are worked on at once, at most.
    pub(super) const fn total(&self) -> usize {
        let on_nodes = [self.deletes, self.changes, self.looks];
        self.brief.slots
            + on_nodes[0].slots
            + on_nodes[0].slow()
            + on_nodes[1].slots
            + on_nodes[1].slow()
            + on_nodes[2].slots
            + on_nodes[2].slow()
    }
}

/// An object that is to be worked on.
#[derive(Clone, Copy, Debug)]
pub(in crate::operator) struct Arrival {
    pub(in crate::operator) class: Class,
    /// How many nodes it has.
    pub(in crate::operator) nodes: usize,
    /// Some of them did not answer when this was written down: for one that was not worked on before.
    pub(in crate::operator) hangs: bool,
    /// It begins when nothing more has arrived for so long, and not later than at the second time.
    pub(in crate::operator) settles: Option<(Duration, Duration)>,
}

/// What becomes of an object that was worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It waits until it changes.
    Rest,
    /// It is due after that time.
    After(Duration),
    /// It lines up for a class, and is due for a brief reconcile after that time even if it still waits.
    Line(Class, Option<Duration>),
}

/// What is to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Work<K> {
    /// A reconcile of that object, which waited for so long.
    Reconcile { key: K, waited: Duration },
    /// It waits, and that many come first.
    Tell { key: K, ahead: usize },
}

/// Where an object stands among those that wait: by due time, then as they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    due: Duration,
    number: u64,
}

/// Those that wait for the same: a class, in a lane, and a share of the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    class: Class,
    lane: Lane,
    share: Share,
}

/// A place in a line.
#[derive(Clone, Copy, Debug)]
struct Place {
    line: Line,
    rank: Rank,
    since: Duration,
    /// When it says how many come first, and what it said last.
    tell: Duration,
    told: Option<usize>,
}

/// What an object that is worked on has.
#[derive(Clone, Copy, Debug)]
struct Hold {
    /// `None`: its place is written on it.
    class: Option<Class>,
    lane: Lane,
    share: Share,
    nodes: usize,
    /// Since when it has this slot, and since when it is worked on.
    since: Duration,
    begun: Duration,
    /// When it came, and as which.
    rank: Rank,
    progresses: bool,
}

#[derive(Clone, Debug)]
struct Item {
    nodes: usize,
    hangs: bool,
    place: Option<Place>,
    /// It waits for a brief reconcile.
    brief: Option<(Duration, u64)>,
    delayed: Option<(Duration, u64)>,
    /// The first of the changes that it waits for the end of.
    first_change: Option<Duration>,
    hold: Option<Hold>,
    /// It changed while it was worked on.
    again: bool,
}

impl Item {
    /// Nothing is to be done with it.
    const fn rests(&self) -> bool {
        self.place.is_none()
            && self.brief.is_none()
            && self.delayed.is_none()
            && self.hold.is_none()
    }
}

/// How many slots there are, are used, and are waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::operator) struct Slots {
    pub(in crate::operator) total: usize,
    pub(in crate::operator) used: usize,
    pub(in crate::operator) waiting: usize,
}

/// All objects, and the slots.
#[derive(Clone, Debug)]
pub(super) struct Order<K> {
    rooms: Rooms,
    items: BTreeMap<K, Item>,
    lines: BTreeMap<Line, BTreeMap<Rank, K>>,
    briefs: BTreeMap<(Duration, u64), K>,
    delayed: BTreeMap<(Duration, u64), K>,
    tells: BTreeMap<(Duration, u64), K>,
    working: BTreeSet<K>,
    used: BTreeMap<(Class, Lane), usize>,
    telling: usize,
    deletes: Budget,
    others: Budget,
    count: u64,
}

impl<K: Clone + Ord> Order<K> {
    pub(super) fn new(rooms: Rooms) -> Self {
        Self {
            rooms,
            items: BTreeMap::new(),
            lines: BTreeMap::new(),
            briefs: BTreeMap::new(),
            delayed: BTreeMap::new(),
            tells: BTreeMap::new(),
            working: BTreeSet::new(),
            used: BTreeMap::new(),
            telling: 0,
            deletes: Budget::default(),
            others: Budget::default(),
            count: 0,
        }
    }

    const fn number(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// An object arrives: it changed, or its time has come. True where it did not wait already.
    pub(super) fn add(&mut self, key: &K, arrival: Arrival, now: Duration) -> bool {
        let number = self.number();
        let item = self.items.entry(key.clone()).or_insert_with(|| Item {
            nodes: arrival.nodes,
            hangs: arrival.hangs,
            place: None,
            brief: None,
            delayed: None,
            first_change: None,
            hold: None,
            again: false,
        });
        item.nodes = arrival.nodes;
        if item.hold.is_some() {
            return !std::mem::replace(&mut item.again, true);
        }
        if let Some(old) = item.delayed.take() {
            self.delayed.remove(&old);
        }
        if let Some((wait, longest)) = arrival.settles {
            let first = *item.first_change.get_or_insert(now);
            let at = ((now + wait).min(first + longest), number);
            item.delayed = Some(at);
            self.delayed.insert(at, key.clone());
            return true;
        }
        item.first_change = None;
        let waits = item.brief.is_some() || item.place.is_some();
        if arrival.class == Class::Brief {
            if item.brief.is_none() {
                item.brief = Some((now, number));
                self.briefs.insert((now, number), key.clone());
            }
        } else {
            let former = self.items.get(key).and_then(|item| item.place);
            let class = former.map_or(arrival.class, |former| former.line.class.min(arrival.class));
            self.line_up(key, class, now, number, None);
        }
        !waits
    }

    /// Puts an object in a line, as of that time; where it stands in one, it keeps its own.
    fn line_up(
        &mut self,
        key: &K,
        class: Class,
        since: Duration,
        number: u64,
        told: Option<(Duration, usize)>,
    ) {
        let former = self.leave(key);
        let Some(item) = self.items.get_mut(key) else {
            return;
        };
        let since = former.map_or(since, |former| former.since);
        let number = former.map_or(number, |former| former.rank.number);
        let lane = if item.hangs { Lane::Slow } else { Lane::Prompt };
        let line = Line {
            class,
            lane,
            share: Share::of(lane, item.nodes),
        };
        let rank = rank((since, number), class);
        let tell = match (told, former) {
            (Some((now, ahead)), _) => now + pause(Some(ahead)),
            (None, Some(former)) => former.tell,
            (None, None) => since,
        };
        let told = told.map(|(_, ahead)| ahead);
        let place = Place {
            line,
            rank,
            since,
            tell,
            told: told.or_else(|| former.and_then(|former| former.told)),
        };
        item.place = Some(place);
        self.lines
            .entry(line)
            .or_default()
            .insert(rank, key.clone());
        if class.says_its_place() {
            self.tells.insert((place.tell, number), key.clone());
        }
    }

    /// Takes an object out of its line.
    fn leave(&mut self, key: &K) -> Option<Place> {
        let place = self.items.get_mut(key)?.place.take()?;
        if let Some(line) = self.lines.get_mut(&place.line) {
            line.remove(&place.rank);
        }
        self.tells.remove(&(place.tell, place.rank.number));
        Some(place)
    }

    const fn budget(&mut self, class: Class) -> &mut Budget {
        match class {
            Class::Delete => &mut self.deletes,
            Class::Brief | Class::Change | Class::Heal | Class::Look => &mut self.others,
        }
    }

    fn fits(&self, line: Line, nodes: usize) -> bool {
        match line.class {
            Class::Brief => true,
            Class::Delete => self.deletes.fits(line.share, nodes),
            Class::Change | Class::Heal | Class::Look => self.others.fits(line.share, nodes),
        }
    }

    fn used(&self, class: Class, lane: Lane) -> usize {
        self.used.get(&(class, lane)).copied().unwrap_or_default()
    }

    fn used_of(&self, pool: Pool, lane: Lane) -> usize {
        let of_pool = self.used.iter();
        let of_pool = of_pool.filter(|((class, of), _)| class.pool() == pool && *of == lane);
        of_pool.map(|(_, count)| count).sum()
    }

    /// True where the class has a free slot.
    fn has_slot(&self, class: Class, lane: Lane) -> bool {
        let pool = class.pool();
        let room = self.rooms.of(pool);
        let told = if pool == Pool::Brief { self.telling } else { 0 };
        let kept = match (class, lane) {
            (Class::Change | Class::Heal, Lane::Prompt) => room.kept(),
            _ => 0,
        };
        self.used_of(pool, lane) + told < room.of(lane)
            && self.used(class, lane) < room.of(lane) - kept
    }

    /// The first of each line that has a slot, by their due times.
    fn candidates(&self) -> Vec<(Rank, Line, K, usize)> {
        let with_slot = self
            .lines
            .iter()
            .filter(|(line, _)| self.has_slot(line.class, line.lane));
        let first = with_slot.filter_map(|(line, waiting)| {
            let mut free = waiting.iter().filter_map(|(rank, key)| {
                let item = self.items.get(key)?;
                item.hold.is_none().then_some((rank, key, item.nodes))
            });
            let (rank, key, nodes) = free.next()?;
            Some((*rank, *line, key.clone(), nodes))
        });
        let mut all: Vec<_> = first.collect();
        all.sort_unstable_by_key(|(rank, ..)| *rank);
        all
    }

    /// What is to begin now; `None`: nothing before something changes, or [`Self::wakes`].
    pub(super) fn next(&mut self, now: Duration) -> Option<Work<K>> {
        let mut held: BTreeSet<(bool, Share)> = BTreeSet::new();
        for (rank, line, key, nodes) in self.candidates() {
            let part = (line.class == Class::Delete, line.share);
            if held.contains(&part) {
                continue;
            }
            if self.fits(line, nodes) {
                let place = self.leave(&key)?;
                self.begin(&key, line, nodes, rank, now);
                let waited = now.saturating_sub(place.since);
                return Some(Work::Reconcile { key, waited });
            }
            // What is next takes no turn of those that need less than it.
            held.insert(part);
        }
        if !self.has_slot(Class::Brief, Lane::Prompt) {
            return None;
        }
        if let Some((at, key)) = self.briefs.pop_first() {
            let (since, number) = at;
            let line = Line {
                class: Class::Brief,
                lane: Lane::Prompt,
                share: Share::Small(Lane::Prompt),
            };
            let rank = Rank { due: since, number };
            self.begin(&key, line, 0, rank, now);
            let waited = now.saturating_sub(since);
            return Some(Work::Reconcile { key, waited });
        }
        self.tell(now)
    }

    /// Gives an object its slot, and its part of the budget.
    fn begin(&mut self, key: &K, line: Line, nodes: usize, rank: Rank, now: Duration) {
        self.take(line, nodes);
        self.working.insert(key.clone());
        if let Some(item) = self.items.get_mut(key) {
            if let Some(brief) = item.brief.take() {
                self.briefs.remove(&brief);
            }
            if let Some(delayed) = item.delayed.take() {
                self.delayed.remove(&delayed);
            }
            item.first_change = None;
            item.hold = Some(Hold {
                class: Some(line.class),
                lane: line.lane,
                share: line.share,
                nodes,
                since: now,
                begun: now,
                rank,
                progresses: false,
            });
        }
    }

    fn take(&mut self, line: Line, nodes: usize) {
        *self.used.entry((line.class, line.lane)).or_default() += 1;
        if line.class != Class::Brief {
            self.budget(line.class).take(line.share, nodes);
        }
    }

    fn give(&mut self, hold: &Hold) {
        let Some(class) = hold.class else {
            self.telling -= 1;
            return;
        };
        if let Some(used) = self.used.get_mut(&(class, hold.lane)) {
            *used -= 1;
        }
        if class != Class::Brief {
            self.budget(class).give(hold.share, hold.nodes);
        }
    }

    /// The next on which its place is to be written: one that says another.
    fn tell(&mut self, now: Duration) -> Option<Work<K>> {
        while let Some((at, key)) = self.tells.first_key_value() {
            if at.0 > now {
                return None;
            }
            let (at, key) = (*at, key.clone());
            self.tells.remove(&at);
            let place = self.items.get(&key).and_then(|item| item.place)?;
            let ahead = self.ahead(place.line.class, place.rank);
            let works = self.items.get(&key).is_some_and(|item| item.hold.is_some());
            let tell = now + pause(Some(ahead));
            self.tells.insert((tell, at.1), key.clone());
            let item = self.items.get_mut(&key)?;
            let news = place.told != Some(ahead) && !works;
            let told = if news { Some(ahead) } else { place.told };
            item.place = Some(Place {
                tell,
                told,
                ..place
            });
            if news {
                self.telling += 1;
                self.working.insert(key.clone());
                item.hold = Some(Hold {
                    class: None,
                    lane: Lane::Prompt,
                    share: Share::Small(Lane::Prompt),
                    nodes: 0,
                    since: now,
                    begun: now,
                    rank: place.rank,
                    progresses: false,
                });
                return Some(Work::Tell { key, ahead });
            }
        }
        None
    }

    /// How many of those that wait for the same slots come before that rank.
    fn ahead(&self, class: Class, rank: Rank) -> usize {
        let of_pool = self
            .lines
            .iter()
            .filter(|(line, _)| line.class.pool() == class.pool());
        of_pool
            .map(|(_, waiting)| waiting.range(..rank).count())
            .sum()
    }

    /// An object that is worked on needs another class from now on. `Err`: there is no slot now, and how many come
    /// first if it lines up.
    pub(super) fn enter(
        &mut self,
        key: &K,
        class: Class,
        nodes: usize,
        now: Duration,
    ) -> Result<(), usize> {
        let Some((hold, item)) = self
            .items
            .get(key)
            .and_then(|item| Some((item.hold?, item)))
        else {
            return Err(0);
        };
        if hold.class.is_some_and(|has| has.pool() == class.pool()) {
            return Ok(());
        }
        let lane = if item.hangs { Lane::Slow } else { Lane::Prompt };
        let line = Line {
            class,
            lane,
            share: Share::of(lane, nodes),
        };
        let rank = item.place.map_or_else(
            || rank(came(&hold, now, hold.rank.number), class),
            |place| place.rank,
        );
        // As if it had let go of what it has.
        self.give(&hold);
        let comes_first = self.candidates().into_iter().any(|(other, of, _, nodes)| {
            let same_part =
                (of.class == Class::Delete) == (class == Class::Delete) && of.share == line.share;
            let same_slots = of.class.pool() == class.pool() && of.lane == lane;
            other < rank && (same_part || (same_slots && self.fits(of, nodes)))
        });
        if comes_first || !self.has_slot(class, lane) || !self.fits(line, nodes) {
            self.retake(&hold);
            return Err(self.ahead(class, rank));
        }
        self.leave(key);
        self.take(line, nodes);
        if let Some(item) = self.items.get_mut(key) {
            item.nodes = nodes;
            item.hold = Some(Hold {
                class: Some(class),
                lane,
                share: line.share,
                nodes,
                since: now,
                progresses: false,
                ..hold
            });
        }
        Ok(())
    }

    fn retake(&mut self, hold: &Hold) {
        match hold.class {
            None => self.telling += 1,
            Some(class) => {
                let line = Line {
                    class,
                    lane: hold.lane,
                    share: hold.share,
                };
                self.take(line, hold.nodes);
            }
        }
    }

    /// What works on an object goes on: it does not hang.
    pub(super) fn progresses(&mut self, key: &K) {
        let item = self.items.get_mut(key);
        if let Some(hold) = item.and_then(|item| item.hold.as_mut()) {
            hold.progresses = true;
        }
    }

    /// What is worked on.
    fn holds(&self) -> impl Iterator<Item = (&K, Hold)> {
        let working = self.working.iter();
        working.filter_map(|key| Some((key, self.items.get(key)?.hold?)))
    }

    /// Moves what hangs to the slow lane, as far as there is room.
    pub(super) fn age(&mut self, now: Duration) {
        let hanging: Vec<(K, Hold)> = self
            .holds()
            .filter(|(_, hold)| hold.lane == Lane::Prompt && hangs(hold, now))
            .map(|(key, hold)| (key.clone(), hold))
            .collect();
        for (key, hold) in hanging {
            let Some(class) = hold.class else { continue };
            let line = Line {
                class,
                lane: Lane::Slow,
                share: Share::of(Lane::Slow, hold.nodes),
            };
            self.give(&hold);
            if !self.has_slot(class, Lane::Slow) || !self.fits(line, hold.nodes) {
                self.retake(&hold);
                continue;
            }
            self.take(line, hold.nodes);
            if let Some(item) = self.items.get_mut(&key) {
                item.hold = Some(Hold {
                    lane: Lane::Slow,
                    share: line.share,
                    ..hold
                });
            }
        }
    }

    /// An object was worked on. True where it changed meanwhile: it is to be added again.
    pub(super) fn finish(&mut self, key: &K, next: Next, now: Duration) -> bool {
        let number = self.number();
        let Some(item) = self.items.get_mut(key) else {
            return false;
        };
        let Some(hold) = item.hold.take() else {
            return false;
        };
        let again = std::mem::take(&mut item.again);
        if hold.class.is_some_and(|class| class != Class::Brief) {
            item.hangs = hangs(&hold, now);
        }
        self.working.remove(key);
        self.give(&hold);
        match next {
            // Its place was written on it, and it waits as before.
            _ if hold.class.is_none() => {}
            Next::Rest => {
                self.leave(key);
            }
            Next::After(wait) => {
                self.leave(key);
                if !again {
                    self.delay(key, now + wait, number);
                }
            }
            Next::Line(class, wait) => {
                let (since, number) = came(&hold, now, number);
                self.line_up(key, class, since, number, None);
                let place = self.items.get(key).and_then(|item| item.place);
                if let Some(place) = place {
                    let told = (now, self.ahead(class, place.rank));
                    self.line_up(key, class, since, number, Some(told));
                }
                if let Some(wait) = wait {
                    self.delay(key, now + wait, number);
                }
            }
        }
        if !again && self.items.get(key).is_some_and(Item::rests) {
            self.items.remove(key);
        }
        again
    }

    fn delay(&mut self, key: &K, at: Duration, number: u64) {
        if let Some(item) = self.items.get_mut(key) {
            item.delayed = Some((at, number));
            self.delayed.insert((at, number), key.clone());
        }
    }

    /// An object is gone: it is not worked on any more.
    pub(super) fn forget(&mut self, key: &K) {
        self.leave(key);
        let Some(item) = self.items.get_mut(key) else {
            return;
        };
        if let Some(brief) = item.brief.take() {
            self.briefs.remove(&brief);
        }
        if let Some(delayed) = item.delayed.take() {
            self.delayed.remove(&delayed);
        }
        item.again = false;
        if item.hold.is_none() {
            self.items.remove(key);
        }
    }

    /// Those whose time has come: they are to be added.
    pub(super) fn due(&mut self, now: Duration) -> Vec<K> {
        let mut due = Vec::new();
        while let Some(first) = self.delayed.first_entry() {
            if first.key().0 > now {
                break;
            }
            let key = first.remove();
            if let Some(item) = self.items.get_mut(&key) {
                item.delayed = None;
            }
            due.push(key);
        }
        due
    }

    /// When something is to be done though nothing changed.
    pub(super) fn wakes(&self, now: Duration) -> Option<Duration> {
        let delayed = self.delayed.keys().next().map(|(at, _)| *at);
        let has_brief = self.has_slot(Class::Brief, Lane::Prompt);
        let tells = self.tells.keys().next().map(|(at, _)| *at);
        let tells = tells.filter(|_| has_brief);
        let holds = self.holds().map(|(_, hold)| hold);
        let hanging = holds.filter(|hold| hold.lane == Lane::Prompt && may_hang(hold));
        let hanging = hanging.map(|hold| hold.since + SLOW_AFTER);
        // Those that found no room wait for a slot, not for a time.
        let hanging = hanging.filter(|at| *at > now).min();
        [delayed, tells, hanging].into_iter().flatten().min()
    }

    /// The slots of a pool.
    pub(super) fn slots(&self, pool: Pool) -> Slots {
        let room = self.rooms.of(pool);
        let waiting = self.lines.iter();
        let waiting = waiting.filter(|(line, _)| line.class.pool() == pool);
        let slow = if pool == Pool::Brief { 0 } else { room.slow() };
        Slots {
            total: room.slots + slow,
            used: self.used_of(pool, Lane::Prompt) + self.used_of(pool, Lane::Slow),
            waiting: waiting.map(|(_, keys)| keys.len()).sum(),
        }
    }

    /// How many wait.
    pub(super) fn depth(&self) -> usize {
        let in_lines: usize = self.lines.values().map(BTreeMap::len).sum();
        let both = self
            .briefs
            .values()
            .filter(|key| {
                let item = self.items.get(key);
                item.is_some_and(|item| item.place.is_some())
            })
            .count();
        in_lines + self.briefs.len() - both
    }

    /// Since when each reconcile in progress runs.
    pub(super) fn running(&self) -> impl Iterator<Item = Duration> {
        let holds = self.holds().map(|(_, hold)| hold);
        let reconciles = holds.filter(|hold| hold.class.is_some());
        reconciles.map(|hold| hold.begun)
    }
}

/// Since when an object waits that lines up now, and as which: a brief reconcile lines up as of when it was due.
fn came(hold: &Hold, now: Duration, number: u64) -> (Duration, u64) {
    match hold.class {
        Some(Class::Brief) => (hold.rank.due, hold.rank.number),
        _ => (now, number),
    }
}

fn rank((since, number): (Duration, u64), class: Class) -> Rank {
    Rank {
        due: since + class.patience(),
        number,
    }
}

/// How long until an object says its place again, by the place.
fn pause(ahead: Option<usize>) -> Duration {
    let times = ahead.unwrap_or_default() / PLACES + 1;
    PLACE_EVERY * u32::try_from(times).unwrap_or(u32::MAX).min(60)
}

fn may_hang(hold: &Hold) -> bool {
    !hold.progresses && hold.class.is_some_and(|class| class != Class::Brief)
}

fn hangs(hold: &Hold, now: Duration) -> bool {
    may_hang(hold) && now >= hold.since + SLOW_AFTER
}

#[cfg(test)]
#[path = "order_tests.rs"]
mod tests;
