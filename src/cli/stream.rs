//! Runs a convergence and shows its events while it runs.

use std::{io, time::Duration};

use tokio::{
    sync::mpsc,
    time::{Instant, MissedTickBehavior, interval},
};

use super::{
    args::Output,
    output::{
        Screen, clip, json,
        lines::{Lines, count},
    },
    session::Session,
};
use crate::{
    apply::event::{Event, Events},
    config::Intent,
    converge::{Consent, Convergence, Error, LoadedImages, Purpose, converge, load_images},
    environment::Environment,
    model::NodeName,
};

/// Lifecycle events wait for room; this is room enough that they do not.
const CAPACITY: usize = 256;
/// How often the status line is redrawn.
const REDRAW: Duration = Duration::from_millis(200);

/// Converges, and shows how. Ends when the convergence does and everything is shown.
pub(super) async fn converge_shown<P: Purpose, R>(
    purpose: &P,
    environment: &Environment,
    consent: &dyn Consent<Refusal = R>,
    output: Output,
    session: &Session,
) -> Result<Convergence<P::Outcome, R>, Error> {
    let (events, incoming) = Events::channel(CAPACITY);
    let run = converge(purpose, environment, consent, &events, &session.stop);
    followed(incoming, Box::pin(run), output, session).await
}

/// Gives nodes images, and shows how.
pub(super) async fn load_shown(
    intent: &Intent,
    environment: &Environment,
    output: Output,
    session: &Session,
) -> Result<LoadedImages, Error> {
    let (events, incoming) = Events::channel(CAPACITY);
    let run = load_images(intent, environment, &events, &session.stop);
    followed(incoming, Box::pin(run), output, session).await
}

/// Shows the events of a run. Ends when it does and everything is shown.
async fn followed<T>(
    mut incoming: mpsc::Receiver<Event>,
    mut run: impl Future<Output = T> + Unpin,
    output: Output,
    session: &Session,
) -> T {
    let mut sink = Sink::new(output, &session.screen);
    let mut looking = Looking::new(session);
    let mut ticks = interval(REDRAW);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let outcome = loop {
        tokio::select! {
            biased;
            Some(event) = incoming.recv() => {
                if matches!(event, Event::StepStarted { .. }) {
                    session.in_flight.starts();
                } else if matches!(event, Event::StepFinished { .. }) {
                    session.in_flight.ends();
                }
                sink.show(&event);
            }
            outcome = &mut run => break outcome,
            _ = ticks.tick() => {
                if sink.tick() {
                    looking = Looking::new(session);
                } else {
                    looking.tick();
                }
            }
        }
    };
    while let Ok(event) = incoming.try_recv() {
        sink.show(&event);
    }
    session.screen.live(&[]);
    sink.end();
    outcome
}

/// One of the two views of the stream.
enum Sink<'a> {
    Lines {
        lines: Lines,
        screen: &'a Screen,
        begun: Instant,
    },
    Json,
}

impl<'a> Sink<'a> {
    fn new(output: Output, screen: &'a Screen) -> Self {
        match output {
            Output::Text => Self::Lines {
                lines: Lines::new(screen.paint()),
                screen,
                begun: Instant::now(),
            },
            Output::Json => Self::Json,
        }
    }

    fn show(&mut self, event: &Event) {
        match self {
            Self::Lines {
                lines,
                screen,
                begun,
            } => match lines.apply(event, begun.elapsed()) {
                Some(said) if said.loud => screen.print(&said.text),
                Some(said) => screen.print_unless_quiet(&said.text),
                None => {}
            },
            // A reader that is gone must not end a run that changes servers.
            Self::Json => {
                let _ = json::event(&mut io::stdout().lock(), event);
            }
        }
    }

    /// What there is to say when everything has ended.
    fn end(&self) {
        let Self::Lines {
            lines,
            screen,
            begun,
        } = self
        else {
            return;
        };
        if let Some(summary) = lines.summary(begun.elapsed()) {
            screen.print_unless_quiet(&summary);
        }
    }

    /// False where no step runs.
    fn tick(&mut self) -> bool {
        let Self::Lines {
            lines,
            screen,
            begun,
        } = self
        else {
            return true;
        };
        match screen.room() {
            None => {
                for line in lines.reminders(begun.elapsed()) {
                    screen.print_unless_quiet(&line);
                }
            }
            Some(room) if lines.runs() => screen.live(&lines.live(begun.elapsed(), room)),
            Some(_) => {}
        }
        lines.runs()
    }
}

/// How often a pipe or a log has another line about nodes that are awaited.
const REMINDER: Duration = Duration::from_secs(10);
/// So long nothing is shown: most looks are over by then.
const PATIENCE: Duration = Duration::from_secs(1);
/// How many nodes are named.
const NAMED: usize = 3;

/// Shows which nodes are awaited while something is looked at.
struct Looking<'a> {
    session: &'a Session,
    /// Since when nodes are awaited without a break.
    since: Option<Instant>,
    remind_at: Duration,
}

impl Drop for Looking<'_> {
    /// Nothing is shown any more, also where the look was given up.
    fn drop(&mut self) {
        self.session.screen.live(&[]);
    }
}

impl<'a> Looking<'a> {
    const fn new(session: &'a Session) -> Self {
        Self {
            session,
            since: None,
            remind_at: REMINDER,
        }
    }

    fn tick(&mut self) {
        let nodes = self.session.awaited.nodes();
        if nodes.is_empty() {
            *self = Self::new(self.session);
            self.session.screen.live(&[]);
            return;
        }
        let waited = self.since.get_or_insert_with(Instant::now).elapsed();
        let screen = &self.session.screen;
        let room = screen.room();
        if let Some(room) = room.filter(|_| waited >= PATIENCE) {
            screen.live(&[clip(&awaited(&nodes, waited), room.columns)]);
        } else if room.is_none() && waited >= self.remind_at {
            self.remind_at += REMINDER;
            screen.print_unless_quiet(&format!("still {}", awaited(&nodes, waited)));
        }
    }
}

/// `waiting for n1, n2, n3 and 4 more nodes, 8 s`.
fn awaited(nodes: &[NodeName], waited: Duration) -> String {
    let named: Vec<&str> = nodes
        .iter()
        .take(NAMED)
        .map(|node| node.0.as_str())
        .collect();
    let more = nodes.len().saturating_sub(NAMED);
    let more = match more {
        0 => String::new(),
        more => format!(" and {}", count(more, "more node")),
    };
    let seconds = waited.as_secs();
    format!("waiting for {}{more}, {seconds} s", named.join(", "))
}

/// What a look gives; the nodes that it waits for are shown meanwhile.
pub(super) async fn shown<T>(session: &Session, look: impl Future<Output = T>) -> T {
    let mut looking = Looking::new(session);
    let mut look = std::pin::pin!(look);
    let mut ticks = interval(REDRAW);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            seen = &mut look => return seen,
            _ = ticks.tick() => looking.tick(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_nodes_are_named() {
        let nodes: Vec<NodeName> = (1..8).map(|n| NodeName(format!("n{n}"))).collect();
        let eight = Duration::from_millis(8400);
        assert_eq!(awaited(&nodes[..1], eight), "waiting for n1, 8 s");
        assert_eq!(awaited(&nodes[..3], eight), "waiting for n1, n2, n3, 8 s");
        assert_eq!(
            awaited(&nodes[..4], eight),
            "waiting for n1, n2, n3 and 1 more node, 8 s"
        );
        assert_eq!(
            awaited(&nodes, eight),
            "waiting for n1, n2, n3 and 4 more nodes, 8 s"
        );
    }
}
