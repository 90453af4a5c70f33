//! The queue of a controller over the watches of kube: what changed or is due waits in [`order`], and as many reconciles
//! as there are slots run at once. An object that waits costs no task. A stop begins nothing more, and waits for what is
//! in progress.
//!
//! | File | What |
//! |---|---|
//! | `order` | which object is next, and with which slot (pure) |
//! | `budget` | how many nodes one process works on (pure) |

mod budget;
mod order;

pub(super) use budget::LARGE;

use std::{
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::{sync::Notify, time::Instant};

pub(super) use self::order::{Arrival, Class, Slots};
use self::order::{Next, Order, Pool, Room, Rooms, Work};
use super::{
    Limits,
    metrics::{Controller, Metrics},
};
use crate::apply::stop::Stop;

/// How many reconciles that ask only the management API run at once.
const BRIEF: usize = 16;

/// The name of an object of the controller's kind, which has no namespace.
pub(super) type Key = Arc<str>;

/// What becomes of an object that was reconciled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// It is reconciled when it changes.
    AwaitChange,
    /// It is reconciled again after that time, or when it changes.
    Requeue(Duration),
    /// The same, after a failure.
    Retry(Duration),
    /// It waits for a slot, and is reconciled after that time even if there is none.
    InLine(Class, Option<Duration>),
}

impl Action {
    pub(super) const fn await_change() -> Self {
        Self::AwaitChange
    }

    pub(super) const fn requeue(wait: Duration) -> Self {
        Self::Requeue(wait)
    }

    pub(super) const fn retry(wait: Duration) -> Self {
        Self::Retry(wait)
    }

    /// The same, and after that time at the latest.
    #[must_use]
    pub(super) fn within(self, most: Duration) -> Self {
        match self {
            Self::AwaitChange => Self::Requeue(most),
            Self::Requeue(wait) => Self::Requeue(wait.min(most)),
            Self::Retry(wait) => Self::Retry(wait.min(most)),
            Self::InLine(class, wait) => {
                Self::InLine(class, Some(wait.map_or(most, |wait| wait.min(most))))
            }
        }
    }
}

/// Why an object arrives in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// It changed.
    Changed,
    /// Something that it refers to changed.
    Reference,
    /// Its time has come.
    Due,
}

/// What a queue works with: the objects of one kind.
pub(super) trait Worker: Sync {
    /// What the watch knows of the object; `None`: it is gone.
    fn arrival(&self, key: &Key, cause: Cause) -> Option<Arrival>;

    /// One reconcile.
    fn reconcile(&self, slot: Slot) -> BoxFuture<'_, Action>;

    /// Writes on an object that waits how many come first.
    fn tell(&self, key: Key, ahead: usize) -> BoxFuture<'_, ()>;
}

/// What waits and what is in progress, of one kind.
pub(super) struct Queue {
    controller: Controller,
    metrics: Arc<Metrics>,
    order: Mutex<Order<Key>>,
    /// An object arrived, or a slot became free within a reconcile.
    moved: Notify,
    begun: Instant,
    most: usize,
}

/// A queue at one moment.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) controller: Controller,
    /// How many wait.
    pub(super) depth: usize,
    /// For how long each reconcile in progress runs.
    pub(super) running: Vec<Duration>,
    /// How many can be in progress.
    pub(super) most: usize,
    /// The slots by class.
    pub(super) slots: [(&'static str, Slots); 3],
}

impl Queue {
    pub(super) fn new(controller: Controller, limits: Limits, metrics: &Arc<Metrics>) -> Arc<Self> {
        let Limits {
            deletes,
            changes,
            checks,
        } = limits;
        let room = |slots: usize| Room {
            slots: slots.max(1),
        };
        let rooms = Rooms {
            brief: room(BRIEF),
            deletes: room(deletes),
            changes: room(changes),
            looks: room(checks),
        };
        Arc::new(Self {
            controller,
            metrics: Arc::clone(metrics),
            order: Mutex::new(Order::new(rooms)),
            moved: Notify::new(),
            begun: Instant::now(),
            most: rooms.total(),
        })
    }

    fn with<T>(&self, with: impl FnOnce(&mut Order<Key>, Duration) -> T) -> T {
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        with(&mut order, self.begun.elapsed())
    }

    /// What it is like now.
    pub(super) fn seen(&self) -> Seen {
        self.with(|order, now| Seen {
            controller: self.controller,
            depth: order.depth(),
            running: order
                .running()
                .map(|begun| now.saturating_sub(begun))
                .collect(),
            most: self.most,
            slots: [
                ("deletes", order.slots(Pool::Deletes)),
                ("changes", order.slots(Pool::Changes)),
                ("checks", order.slots(Pool::Looks)),
            ],
        })
    }

    /// An object changed, or its time has come.
    pub(super) fn arrives(&self, worker: &impl Worker, key: &Key, cause: Cause) {
        let is_news = self.with(|order, now| {
            let arrival = worker.arrival(key, cause);
            if arrival.is_none() {
                order.forget(key);
            }
            arrival.is_some_and(|arrival| order.add(key, arrival, now))
        });
        if is_news {
            self.metrics.queued(self.controller);
        }
        self.moved.notify_one();
    }

    fn finished(&self, worker: &impl Worker, done: Done) {
        let Done { key, action, took } = done;
        if let Some(took) = took {
            self.metrics.worked(self.controller, took);
        }
        let next = match action {
            Action::AwaitChange => Next::Rest,
            Action::Requeue(wait) => Next::After(wait),
            Action::Retry(wait) => {
                self.metrics.retried(self.controller);
                Next::After(wait)
            }
            Action::InLine(class, wait) => Next::Line(class, wait),
        };
        if self.with(|order, now| order.finish(&key, next, now)) {
            self.arrives(worker, &key, Cause::Changed);
        }
    }
}

/// The slot of a reconcile, as long as it runs.
#[derive(Clone)]
pub(super) struct Slot {
    queue: Arc<Queue>,
    pub(super) key: Key,
}

impl Slot {
    /// From now on it works on so many nodes. `Err`: there is no slot for that now, and that many objects come first.
    pub(super) fn enter(&self, class: Class, nodes: usize) -> Result<(), usize> {
        let entered = self
            .queue
            .with(|order, now| order.enter(&self.key, class, nodes, now));
        self.queue.moved.notify_one();
        entered
    }

    /// It goes on.
    pub(super) fn progresses(&self) {
        self.queue.with(|order, _| order.progresses(&self.key));
    }
}

/// A reconcile that ended, or an object on which its place was written.
struct Done {
    key: Key,
    action: Action,
    took: Option<Duration>,
}

/// Works until the stop; what is in progress ends first.
pub(super) async fn work<W: Worker>(queue: &Arc<Queue>, worker: &W, stop: &Stop) {
    let mut stopped = pin!(stop.stopped());
    let mut stops = false;
    let mut in_progress = FuturesUnordered::new();
    loop {
        if !stops {
            while let Some(work) = queue.next(worker) {
                in_progress.push(begin(queue, worker, work));
            }
        }
        if stops && in_progress.is_empty() {
            return;
        }
        tokio::select! {
            Some(done) = in_progress.next() => queue.finished(worker, done),
            () = queue.wakes(), if !stops => {}
            () = queue.moved.notified() => {}
            _ = &mut stopped, if !stops => stops = true,
        }
    }
}

impl Queue {
    /// What is to begin now.
    fn next(&self, worker: &impl Worker) -> Option<Work<Key>> {
        let due = self.with(|order, now| {
            order.age(now);
            order.due(now)
        });
        for key in due {
            self.arrives(worker, &key, Cause::Due);
        }
        self.with(Order::next)
    }

    /// Resolves when something is to be done though nothing changed.
    async fn wakes(&self) {
        match self.with(|order, now| order.wakes(now)) {
            Some(at) => tokio::time::sleep_until(self.begun + at).await,
            None => std::future::pending().await,
        }
    }
}

fn begin<'w, W: Worker>(queue: &Arc<Queue>, worker: &'w W, work: Work<Key>) -> BoxFuture<'w, Done> {
    match work {
        Work::Reconcile { key, waited } => {
            queue.metrics.waited(queue.controller, waited);
            let begun = Instant::now();
            let slot = Slot {
                queue: Arc::clone(queue),
                key: Key::clone(&key),
            };
            let reconcile = worker.reconcile(slot);
            reconcile
                .map(move |action| Done {
                    key,
                    action,
                    took: Some(begun.elapsed()),
                })
                .boxed()
        }
        Work::Tell { key, ahead } => {
            let told = worker.tell(Key::clone(&key), ahead);
            told.map(move |()| Done {
                key,
                action: Action::AwaitChange,
                took: None,
            })
            .boxed()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::apply::stop::{StopCause, Stopper};

    /// Objects that take a time, by name, and come again after a time.
    #[derive(Default)]
    struct Fake {
        takes: BTreeMap<&'static str, Duration>,
        again: Option<Duration>,
        now: Mutex<Now>,
    }

    #[derive(Default)]
    struct Now {
        begun: Vec<(String, u64)>,
        running: usize,
        most: usize,
    }

    impl Worker for Fake {
        fn arrival(&self, key: &Key, _: Cause) -> Option<Arrival> {
            let hangs = key.starts_with("hangs");
            (&**key != "gone").then_some(Arrival {
                class: Class::Brief,
                nodes: 1,
                hangs,
                settles: None,
            })
        }

        fn reconcile(&self, slot: Slot) -> BoxFuture<'_, Action> {
            let takes = self.takes.get(&*slot.key).copied();
            let takes = takes.unwrap_or(Duration::from_secs(1));
            async move {
                if slot.enter(Class::Look, 1).is_err() {
                    return Action::InLine(Class::Look, None);
                }
                {
                    let mut now = self.now.lock().unwrap();
                    let at = slot.queue.begun.elapsed().as_secs();
                    now.begun.push((slot.key.to_string(), at));
                    now.running += 1;
                    now.most = now.most.max(now.running);
                }
                tokio::time::sleep(takes).await;
                self.now.lock().unwrap().running -= 1;
                self.again.map_or(Action::AwaitChange, Action::Retry)
            }
            .boxed()
        }

        fn tell(&self, _: Key, _: usize) -> BoxFuture<'_, ()> {
            std::future::ready(()).boxed()
        }
    }

    fn queue() -> Arc<Queue> {
        let limits = Limits {
            deletes: 4,
            changes: 4,
            checks: 4,
        };
        Queue::new(Controller::Cluster, limits, &Metrics::new())
    }

    /// Works for that long, with what happens meanwhile.
    async fn works(
        queue: &Arc<Queue>,
        fake: &Fake,
        time: u64,
        meanwhile: impl Future<Output = ()>,
    ) {
        let (stopper, stop) = Stopper::new();
        let end = async {
            meanwhile.await;
            tokio::time::sleep_until(queue.begun + Duration::from_secs(time)).await;
            stopper.stop(StopCause::Signal);
        };
        tokio::join!(work(queue, fake, &stop), end);
    }

    fn begun(fake: &Fake) -> Vec<(String, u64)> {
        fake.now.lock().unwrap().begun.clone()
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_changes_meanwhile_is_worked_on_again() {
        let (queue, fake) = (queue(), Fake::default());
        works(&queue, &fake, 60, async {
            for millis in [0, 500, 200] {
                tokio::time::sleep(Duration::from_millis(millis)).await;
                queue.arrives(&fake, &Key::from("a"), Cause::Changed);
            }
            queue.arrives(&fake, &Key::from("gone"), Cause::Changed);
        })
        .await;
        let a = |at| ("a".to_owned(), at);
        assert_eq!(begun(&fake), [a(0), a(1)]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_comes_again_when_it_is_due_or_changes() {
        let fake = Fake {
            again: Some(Duration::from_secs(30)),
            ..Fake::default()
        };
        let queue = queue();
        works(&queue, &fake, 70, async {
            queue.arrives(&fake, &Key::from("a"), Cause::Changed);
            tokio::time::sleep(Duration::from_secs(10)).await;
            queue.arrives(&fake, &Key::from("a"), Cause::Changed);
        })
        .await;
        let times: Vec<u64> = begun(&fake).into_iter().map(|(_, at)| at).collect();
        assert_eq!(times, [0, 10, 41]);
        let text = queue.metrics.text();
        for line in [
            "workqueue_adds_total{name=\"cluster\"} 3",
            "workqueue_retries_total{name=\"cluster\"} 3",
            "workqueue_work_duration_seconds_count{name=\"cluster\"} 3",
            "workqueue_queue_duration_seconds_count{name=\"cluster\"} 3",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }

    /// A stop begins nothing more, and drops nothing.
    #[tokio::test(start_paused = true)]
    async fn a_stop_waits_for_what_is_in_progress() {
        let fake = Fake {
            takes: [("a", Duration::from_secs(50))].into(),
            ..Fake::default()
        };
        let queue = queue();
        works(&queue, &fake, 10, async {
            queue.arrives(&fake, &Key::from("a"), Cause::Changed);
            tokio::time::sleep(Duration::from_secs(9)).await;
            queue.arrives(&fake, &Key::from("b"), Cause::Changed);
        })
        .await;
        assert_eq!(queue.begun.elapsed().as_secs(), 50);
        assert_eq!(fake.now.lock().unwrap().running, 0);
        works(&queue, &fake, 10, async {}).await;
        assert_eq!(begun(&fake).len(), 2, "and nothing was begun after it");
    }

    /// Five thousand at once are as many reconciles as there are slots.
    #[tokio::test(start_paused = true)]
    async fn objects_that_wait_are_no_tasks() {
        let (queue, fake) = (queue(), Fake::default());
        works(&queue, &fake, 3000, async {
            for number in 0..5000 {
                queue.arrives(&fake, &Key::from(number.to_string()), Cause::Changed);
            }
            assert_eq!(queue.seen().depth, 5000);
            tokio::time::sleep(Duration::from_millis(500)).await;
            let seen = queue.seen();
            assert!(seen.running.len() <= seen.most);
            let slots = Slots {
                total: 8,
                used: 4,
                waiting: 4996,
            };
            assert_eq!(seen.slots[2], ("checks", slots));
        })
        .await;
        assert_eq!(begun(&fake).len(), 5000);
        assert_eq!(fake.now.lock().unwrap().most, 4);
    }

    /// Twenty that hang, tried again and again, slow no other.
    #[tokio::test(start_paused = true)]
    async fn those_that_hang_slow_no_other() {
        const HANGING: [&str; 20] = [
            "hangs 0", "hangs 1", "hangs 2", "hangs 3", "hangs 4", "hangs 5", "hangs 6", "hangs 7",
            "hangs 8", "hangs 9", "hangs 10", "hangs 11", "hangs 12", "hangs 13", "hangs 14",
            "hangs 15", "hangs 16", "hangs 17", "hangs 18", "hangs 19",
        ];
        let fake = Fake {
            takes: HANGING.map(|name| (name, Duration::from_secs(100))).into(),
            again: Some(Duration::from_secs(60)),
            ..Fake::default()
        };
        let queue = queue();
        works(&queue, &fake, 1000, async {
            for name in HANGING {
                queue.arrives(&fake, &Key::from(name), Cause::Changed);
            }
            for _ in 0..9 {
                tokio::time::sleep(Duration::from_secs(97)).await;
                queue.arrives(&fake, &Key::from("a"), Cause::Changed);
                let at = queue.begun.elapsed().as_secs();
                tokio::time::sleep(Duration::from_secs(1)).await;
                let last = begun(&fake).into_iter().rfind(|(name, _)| name == "a");
                assert_eq!(last, Some(("a".to_owned(), at)));
            }
        })
        .await;
    }
}
