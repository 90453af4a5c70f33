//! Runs a convergence and shows its events while it runs.

use std::{io, time::Duration};

use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{
    args::Output,
    output::{Screen, json, lines::Lines},
    session::Session,
};
use crate::{
    apply::event::{Event, Events},
    converge::{Consent, Convergence, Error, Purpose, converge},
    environment::Environment,
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
    let (events, mut incoming) = Events::channel(CAPACITY);
    let mut sink = Sink::new(output, &session.screen);
    let run = converge(purpose, environment, consent, &events, &session.stop);
    let mut run = Box::pin(run);
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
            _ = ticks.tick() => sink.tick(),
        }
    };
    while let Ok(event) = incoming.try_recv() {
        sink.show(&event);
    }
    session.screen.status("");
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

    fn tick(&mut self) {
        let Self::Lines {
            lines,
            screen,
            begun,
        } = self
        else {
            return;
        };
        if screen.is_live() {
            screen.status(&lines.status(begun.elapsed()));
        } else {
            for line in lines.reminders(begun.elapsed()) {
                screen.print_unless_quiet(&line);
            }
        }
    }
}
