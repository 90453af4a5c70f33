//! Questions to the user: whether to trust a host key, to disturb what a plan disturbs, to remove a cluster. Without a
//! terminal nothing is prompted, and the answer is never "yes".

use std::{io::IsTerminal, sync::Arc};

use futures::future::BoxFuture;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use super::output::Screen;
use crate::{
    apply::stop::Stop,
    converge::{Consent, Declined},
    model::{Endpoint, Secret},
    plan::{Plan, disruptions, disruptive_steps},
};

/// Who answers.
pub trait Answerer: Send + Sync {
    /// The next line they type; `None` when they are gone.
    fn answer(&self) -> BoxFuture<'_, Option<String>>;

    /// Keeps what they type off the screen, until the value is dropped.
    fn hide(&self) -> Option<Hidden> {
        None
    }
}

/// The person at stdin.
struct Stdin;

impl Answerer for Stdin {
    fn answer(&self) -> BoxFuture<'_, Option<String>> {
        Box::pin(async {
            tokio::task::spawn_blocking(|| {
                let mut line = String::new();
                let read = std::io::stdin().read_line(&mut line).ok()?;
                (read > 0).then_some(line)
            })
            .await
            .ok()
            .flatten()
        })
    }

    fn hide(&self) -> Option<Hidden> {
        let shown = tcgetattr(std::io::stdin()).ok()?;
        let mut hidden = shown.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        tcsetattr(std::io::stdin(), OptionalActions::Flush, &hidden).ok()?;
        Some(Hidden(shown))
    }
}

/// A terminal that does not show what is typed.
pub struct Hidden(Termios);

impl Drop for Hidden {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Flush, &self.0);
    }
}

/// Asks, when a person is at the terminal.
#[derive(Clone)]
pub struct Prompt {
    person: Option<Arc<dyn Answerer>>,
    screen: Arc<Screen>,
    stop: Stop,
}

impl Prompt {
    /// The person at the terminal: stdin and stderr must both be one.
    pub fn at_terminal(screen: Arc<Screen>, stop: Stop) -> Self {
        let terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        let person = terminal.then(|| Arc::new(Stdin) as Arc<dyn Answerer>);
        Self::new(person, screen, stop)
    }

    /// `person`: answers the questions; `None` if no question can be asked.
    pub fn new(person: Option<Arc<dyn Answerer>>, screen: Arc<Screen>, stop: Stop) -> Self {
        Self {
            person,
            screen,
            stop,
        }
    }

    /// The same, where none can be asked.
    #[must_use]
    pub fn without_person(&self) -> Self {
        Self {
            person: None,
            ..self.clone()
        }
    }

    /// True when a person can be asked.
    pub fn is_interactive(&self) -> bool {
        self.person.is_some()
    }

    /// The answer, trimmed; `None` without a person, or when they leave or stop us.
    async fn ask(&self, question: &str) -> Option<String> {
        let person = self.person.as_ref()?;
        let answer = self.line(person, question).await;
        answer.map(|line| line.trim().to_owned())
    }

    /// What they type, without its line break; a terminal does not show it. `None` without a person, or when they leave or
    /// stop us.
    pub async fn secret(&self, question: &str) -> Option<Secret<String>> {
        let person = self.person.as_ref()?;
        let hidden = person.hide();
        let answer = self.line(person, question).await;
        drop(hidden);
        // Enter was not shown either.
        self.screen.log_line("\n");
        answer.map(|line| line.trim_end_matches(['\r', '\n']).to_owned().into())
    }

    async fn line(&self, person: &Arc<dyn Answerer>, question: &str) -> Option<String> {
        let _open = self.screen.question(question);
        tokio::select! {
            biased;
            _ = self.stop.stopped() => None,
            answer = person.answer() => answer,
        }
    }

    /// True once Ctrl-C or SIGTERM asked for the end.
    pub fn is_stopped(&self) -> bool {
        self.stop.cause().is_some()
    }

    /// A text; the default where nothing is typed. `None` when the person leaves.
    pub async fn text(&self, question: &str, default: &str) -> Option<String> {
        let answer = self.ask(&format!("{question} [{default}]: ")).await?;
        Some(if answer.is_empty() {
            default.to_owned()
        } else {
            answer
        })
    }

    /// Yes or no; anything but `y` is no, as in RKE.
    pub async fn yes(&self, question: &str) -> bool {
        let answer = self.ask(&format!("{question} [y/n]: ")).await;
        answer.is_some_and(|answer| matches!(answer.as_str(), "y" | "Y" | "yes"))
    }

    /// ssh's question about a key that is not on record. True to take it.
    pub async fn host_key(&self, endpoint: &Endpoint, kind: &str, fingerprint: &str) -> bool {
        let mut question = format!(
            "The authenticity of host '{endpoint}' can't be established.\n\
             {kind} key fingerprint is {fingerprint}.\n\
             Are you sure you want to continue connecting (yes/no/[fingerprint])? "
        );
        loop {
            match self.ask(&question).await.as_deref() {
                Some("yes") => return true,
                Some(answer) if answer == fingerprint => return true,
                Some("no") | None => return false,
                Some(_) => "Please type 'yes', 'no' or the fingerprint: ".clone_into(&mut question),
            }
        }
    }
}

/// Consent to a plan with disruptive steps.
pub struct AskConsent {
    /// `--yes`, or a removal that was agreed to.
    pub given: bool,
    /// Whom to ask else.
    pub prompt: Prompt,
}

impl Consent for AskConsent {
    type Refusal = Declined;

    fn ask<'a>(&'a self, plan: &'a Plan) -> BoxFuture<'a, Result<(), Declined>> {
        Box::pin(async move {
            if self.given {
                return Ok(());
            }
            if !self.prompt.is_interactive() {
                return Err(Declined);
            }
            let mut question = format!("{}:\n", disruptive_steps(plan.disruptions().count()));
            for disruption in disruptions(plan) {
                question.push_str("  - ");
                question.push_str(&disruption);
                question.push('\n');
            }
            question.push_str("Continue?");
            let yes = self.prompt.yes(&question).await;
            yes.then_some(()).ok_or(Declined)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::VecDeque,
        sync::{Mutex, PoisonError},
    };

    use super::*;
    use crate::apply::stop::{StopCause, Stopper};

    struct Script(Mutex<VecDeque<&'static str>>);

    impl Answerer for Script {
        fn answer(&self) -> BoxFuture<'_, Option<String>> {
            let next = self
                .0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop_front();
            Box::pin(async move { next.map(str::to_owned) })
        }
    }

    fn prompt(answers: &[&'static str]) -> (Prompt, Stopper) {
        let (stopper, stop) = Stopper::new();
        let script = Script(Mutex::new(answers.iter().copied().collect()));
        let screen = Arc::new(Screen::stderr(true, true));
        (Prompt::new(Some(Arc::new(script)), screen, stop), stopper)
    }

    fn endpoint() -> Endpoint {
        Endpoint {
            address: "10.0.0.2".into(),
            port: 22,
        }
    }

    #[tokio::test]
    async fn a_host_key_is_taken_for_yes_or_its_fingerprint() {
        for (answers, taken) in [
            (vec!["yes\n"], true),
            (vec!["SHA256:abc\n"], true),
            (vec!["y\n", "no\n"], false),
            (vec!["SHA256:other\n", "yes\n"], true),
            (vec![], false),
        ] {
            let (prompt, _stopper) = prompt(&answers);
            let answer = prompt.host_key(&endpoint(), "ED25519", "SHA256:abc").await;
            assert_eq!(answer, taken, "{answers:?}");
        }
    }

    #[tokio::test]
    async fn anything_but_y_is_no() {
        for (answer, yes) in [("y\n", true), ("Y\n", true), ("\n", false), ("ok\n", false)] {
            let (prompt, _stopper) = prompt(&[answer]);
            assert_eq!(prompt.yes("sure?").await, yes, "{answer:?}");
        }
    }

    #[tokio::test]
    async fn a_stop_answers_no() {
        let (prompt, stopper) = prompt(&["y\n"]);
        stopper.stop(StopCause::Signal);
        assert!(!prompt.yes("sure?").await);
    }

    #[tokio::test]
    async fn without_a_person_there_is_no_consent() {
        let (_stopper, stop) = Stopper::new();
        let prompt = Prompt::new(None, Arc::new(Screen::stderr(true, true)), stop);
        let consent = AskConsent {
            given: false,
            prompt,
        };
        assert!(consent.ask(&Plan::default()).await.is_err());
    }
}
