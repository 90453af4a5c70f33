//! Private keys with a passphrase: a prompt at the terminal asks for it, once per key. The decrypted key is kept in
//! memory only.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{prompt::Prompt, report::CliError};
use crate::{
    config::{self, NotUnlocked},
    model::Secret,
};

/// As often as ssh asks.
const TRIES: usize = 3;

/// What is known about keys with a passphrase, by their files.
#[derive(Debug, Default)]
pub struct Passphrases(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    unlocked: BTreeMap<PathBuf, Secret<String>>,
    /// What a login needs, as it is written in the config.
    wanted: BTreeMap<PathBuf, Wanted>,
    /// Not asked for again.
    withheld: BTreeSet<PathBuf>,
    /// A passphrase was typed, and no passphrase decrypts them here.
    unreadable: BTreeSet<PathBuf>,
}

#[derive(Clone, Debug)]
struct Wanted {
    source: String,
    pem: Secret<String>,
}

impl Passphrases {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The key of a file without its passphrase, once that was typed.
    pub(super) fn unlocked(&self, file: &PathBuf) -> Option<Secret<String>> {
        self.known().unlocked.get(file).cloned()
    }

    /// A login needs the key of this file.
    pub(super) fn wants(&self, file: PathBuf, source: &str, pem: &Secret<String>) {
        let wanted = Wanted {
            source: source.to_owned(),
            pem: pem.clone(),
        };
        self.known().wanted.insert(file, wanted);
    }

    /// Whether the key of a file cannot be decrypted here, whatever passphrase is typed.
    pub(super) fn is_unreadable(&self, file: &PathBuf) -> bool {
        self.known().unreadable.contains(file)
    }

    /// Asks for the passphrases that are wanted. True where more is known now about a key than what the config was
    /// read with: it can be used, or cannot be decrypted at all.
    pub(super) async fn ask(&self, prompt: &Prompt) -> Result<bool, CliError> {
        let wanted = std::mem::take(&mut self.known().wanted);
        let mut more = false;
        for (file, Wanted { source, pem }) in wanted {
            if !prompt.is_interactive() || self.known().withheld.contains(&file) {
                continue;
            }
            match unlock(&source, &pem, prompt).await? {
                Typed::Right(key) => {
                    self.known().unlocked.insert(file, key);
                    more = true;
                }
                Typed::Unreadable => {
                    let mut known = self.known();
                    known.withheld.insert(file.clone());
                    known.unreadable.insert(file);
                    more = true;
                }
                Typed::NotRight => {
                    self.known().withheld.insert(file);
                }
            }
        }
        Ok(more)
    }
}

/// How a person answered.
enum Typed {
    /// With the passphrase: this is the key without it.
    Right(Secret<String>),
    /// Not at all, or with other ones.
    NotRight,
    /// With one that may be right: the key cannot be decrypted here.
    Unreadable,
}

async fn unlock(source: &str, pem: &Secret<String>, prompt: &Prompt) -> Result<Typed, CliError> {
    let mut question = format!("Enter passphrase for key '{source}': ");
    for _ in 0..TRIES {
        let typed = prompt.secret(&question).await;
        if prompt.is_stopped() {
            return Err(CliError::Stopped);
        }
        let Some(typed) = typed.filter(|typed| !typed.expose().is_empty()) else {
            return Ok(Typed::NotRight);
        };
        match config::unlock(pem, &typed) {
            Ok(key) => return Ok(Typed::Right(key)),
            Err(NotUnlocked::Unreadable) => return Ok(Typed::Unreadable),
            Err(NotUnlocked::Wrong) => {}
        }
        question = format!("Bad passphrase, try again for '{source}': ");
    }
    Ok(Typed::NotRight)
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, process::Command, sync::Arc};

    use futures::future::BoxFuture;
    use russh::keys::decode_secret_key;
    use tempfile::TempDir;

    use super::{super::output::Screen, *};
    use crate::{
        apply::stop::{StopCause, Stopper},
        cli::prompt::Answerer,
    };

    /// What is typed, one line after the other.
    struct Script(Mutex<VecDeque<&'static str>>);

    impl Answerer for Script {
        fn answer(&self) -> BoxFuture<'_, Option<String>> {
            let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let next = lines.pop_front().map(str::to_owned);
            Box::pin(async move { next })
        }
    }

    fn prompt(typed: &[&'static str]) -> (Prompt, Stopper) {
        let (stopper, stop) = Stopper::new();
        let script = Script(Mutex::new(typed.iter().copied().collect()));
        let screen = Arc::new(Screen::stderr(true, true));
        (Prompt::new(Some(Arc::new(script)), screen, stop), stopper)
    }

    /// The key of this file is wanted, and its passphrase is `a word`.
    fn wanting() -> (Passphrases, TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-a", "1", "-N", "a word", "-f"])
            .arg(&file)
            .status()
            .expect("this test needs ssh-keygen of the package openssh-client");
        assert!(made.success());
        let passphrases = Passphrases::default();
        let pem = std::fs::read(&file).unwrap();
        let pem = String::from_utf8(pem).unwrap();
        passphrases.wants(file.clone(), "~/key", &pem.into());
        (passphrases, folder, file)
    }

    #[tokio::test]
    async fn it_is_asked_for_until_it_is_right() {
        let (passphrases, _folder, file) = wanting();
        let (prompt, _stopper) = prompt(&["another\n", "a word\n"]);
        assert_eq!(passphrases.ask(&prompt).await.ok(), Some(true));
        let pem = passphrases.unlocked(&file).unwrap();
        let key = decode_secret_key(pem.expose(), None).unwrap();
        let public = std::fs::read(file.with_extension("pub")).unwrap();
        let key = key.public_key().to_openssh().unwrap();
        assert!(
            public.starts_with(
                key.split(' ')
                    .take(2)
                    .collect::<Vec<_>>()
                    .join(" ")
                    .as_bytes()
            )
        );
        assert_eq!(
            passphrases.ask(&prompt).await.ok(),
            Some(false),
            "nothing is wanted"
        );
    }

    #[tokio::test]
    async fn a_key_whose_passphrase_is_not_told_is_not_asked_for_again() {
        for typed in [&["\n"][..], &[], &["a\n", "b\n", "c\n", "a word\n"]] {
            let (passphrases, _folder, file) = wanting();
            let (prompt, _stopper) = prompt(typed);
            assert_eq!(passphrases.ask(&prompt).await.ok(), Some(false));
            assert!(passphrases.unlocked(&file).is_none());
            let pem = Secret::new(String::new());
            passphrases.wants(file.clone(), "~/key", &pem);
            assert_eq!(passphrases.ask(&prompt).await.ok(), Some(false));
        }
    }

    /// Its passphrase may be right: that is not asked again, and the config says what is wrong with the key.
    #[tokio::test]
    async fn a_key_that_cannot_be_decrypted_is_recognised() {
        let damaged =
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
        let pem = Secret::new(damaged.to_owned());
        let (passphrases, file) = (Passphrases::default(), PathBuf::from("key"));
        let (prompt, _stopper) = prompt(&["a word\n", "a word\n"]);
        passphrases.wants(file.clone(), "~/key", &pem);
        assert!(!passphrases.is_unreadable(&file));
        assert_eq!(passphrases.ask(&prompt).await.ok(), Some(true));
        assert!(passphrases.is_unreadable(&file));
        passphrases.wants(file.clone(), "~/key", &pem);
        assert_eq!(passphrases.ask(&prompt).await.ok(), Some(false));
        assert!(passphrases.unlocked(&file).is_none());
    }

    #[tokio::test]
    async fn a_stop_ends_the_command() {
        let (passphrases, _folder, file) = wanting();
        let (prompt, stopper) = prompt(&["a word\n"]);
        stopper.stop(StopCause::Signal);
        let ended = passphrases.ask(&prompt).await;
        assert!(matches!(ended, Err(CliError::Stopped)));
        assert!(passphrases.unlocked(&file).is_none());
    }

    #[tokio::test]
    async fn without_a_person_none_is_asked_for() {
        let (passphrases, _folder, file) = wanting();
        let (prompt, _stopper) = prompt(&["a word\n"]);
        let asked = passphrases.ask(&prompt.without_person()).await;
        assert_eq!(asked.ok(), Some(false));
        assert!(passphrases.unlocked(&file).is_none());
    }
}
