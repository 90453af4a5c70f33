//! `images`: the images that a cluster needs, as a list, and in a bundle that is carried to where there is no registry.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::{MissedTickBehavior, interval, sleep};

use super::{
    args::{ImagesList, ImagesLoad, ImagesSave, Output},
    environment::{self, Opening},
    intent::{self, Warnings},
    output::{clip, json::Ended, lines::count, results::ImageList},
    print, proxy,
    report::{CliError, Failure},
    session::{STOPPED, Session, kubeconfig_of},
    stream::load_shown,
};
use crate::{
    apply::step::StepError,
    bundle::{Bundle, BundleWriter, SavedImage, registry::Puller},
    catalog::familiar,
    config::Intent,
    converge::{self, ExportError, ImageExport, LoadedImages},
    desired::NeededImages,
    environment::Environment,
    error::{ErrorClass, Explain, distinct},
    facts::Unreachable,
    model::{ImagePlatform, NodeName, megabytes, quoted},
};

/// How often what was downloaded is shown.
const REDRAW: Duration = Duration::from_millis(200);
/// How many attempts there are to copy an image from a node that does not answer.
const TRIES: u64 = 5;

/// Why no bundle comes of it.
#[derive(Debug, thiserror::Error)]
pub(super) enum ImagesError {
    /// The nodes do not have it.
    #[error("{}", not_on(nodes, image))]
    NotOnNode {
        /// Which.
        image: String,
        /// Where.
        nodes: Vec<NodeName>,
    },
    /// The node's images are for other machines.
    #[error("image `{image}` is for {is}, and the bundle is for {wanted}")]
    Platform {
        /// Which.
        image: String,
        /// For which machines it is.
        is: ImagePlatform,
        /// The requested platform, or that of the first image.
        wanted: ImagePlatform,
    },
    /// The node.
    #[error("cannot take image `{image}` from node `{node}`")]
    Node {
        /// Which.
        image: String,
        /// Where.
        node: NodeName,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
        /// Cures.
        hints: Vec<Cow<'static, str>>,
        /// Who has to act.
        class: ErrorClass,
    },
    /// Ours.
    #[error("{0}")]
    Task(String),
}

impl Explain for ImagesError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::NotOnNode { .. } | Self::Platform { .. } => ErrorClass::User,
            Self::Node { class, .. } => *class,
            Self::Task(_) => ErrorClass::Bug,
        }
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        match self {
            Self::NotOnNode { .. } => vec![
                "name another node that has it, too: `--from-node` takes several, for example a control plane with etcd and a \
                 worker"
                    .into(),
                "or leave `--from-node` out: the images then come from their registries".into(),
            ],
            Self::Platform { .. } => {
                vec!["a bundle is for one kind of machine: save one bundle for each".into()]
            }
            Self::Node { hints, .. } => {
                let mut hints = hints.clone();
                hints.push("what was copied is kept: the same command continues".into());
                hints
            }
            Self::Task(_) => Vec::new(),
        }
    }
}

/// `images list`.
pub(super) async fn list(args: &ImagesList, session: &Session) -> Result<u8, CliError> {
    let file = &args.config.config;
    let loaded = intent::load_to_validate(Warnings::Counted, file, session).await?;
    let environment = environment::open(file, Opening::default(), session)?;
    let (_, needed) = converge::needed_images(&loaded.intent, &environment).await?;
    match args.output {
        Output::Text => {
            let names: Vec<&str> = needed.names().into_iter().collect();
            print::data(&names.join("\n"))?;
            warn_of_unlisted(&needed, session);
        }
        Output::Json => print::json(&ImageList::of(&needed))?,
    }
    Ok(0)
}

fn warn_of_unlisted(needed: &NeededImages, session: &Session) {
    if !needed.unlisted.is_empty() {
        session.screen.warn(&format!(
            "not in this list: the images of {}, which are named in its chart; `images save --image NAME` adds them to a \
             bundle",
            quoted(&needed.unlisted)
        ));
    }
}

/// `images save`.
pub(super) async fn save(args: &ImagesSave, session: &Session) -> Result<u8, CliError> {
    let file = &args.config.config;
    let intent = if args.from_node.is_empty() {
        intent::load_to_validate(Warnings::Counted, file, session)
            .await?
            .intent
    } else {
        intent::load(file, session).await?
    };
    let environment = environment::open(file, Opening::to_change(&args.trust), session)?;
    let (kept, needed) = converge::needed_images(&intent, &environment).await?;
    warn_of_unlisted(&needed, session);
    let more = args.image.iter().map(String::as_str);
    let names: BTreeMap<String, &str> = needed
        .names()
        .into_iter()
        .chain(more)
        .map(|name| (familiar(name), name))
        .collect();
    let source = Source::of(args, &kept, &environment).await?;
    source.warn_of_proxies(session);
    let target = args.output.clone();
    let mut writer = blocking(session, move || BundleWriter::begin(&target)).await?;
    if writer.bytes() > 0 {
        let text = format!(
            "continues with {} that are there",
            megabytes(writer.bytes())
        );
        session.screen.print_unless_quiet(&text);
    }
    let saving = async {
        let mut images = Vec::new();
        let total = names.len();
        for (index, name) in names.values().enumerate() {
            let place = (index + 1, total);
            let (back, image) = Box::pin(source.image(name, writer, session, place)).await?;
            writer = back;
            match image {
                Ok(image) => images.push(image),
                Err(missing) if needed.later.contains(*name) => {
                    session.screen.warn(&format!(
                        "{missing}: the bundle does not have it, and snapshots of etcd need it"
                    ));
                }
                Err(missing) => return Err(missing.into()),
            }
        }
        let count = images.len();
        let bytes = tokio::task::spawn_blocking(move || writer.finish(&images));
        let bytes = bytes
            .await
            .map_err(|error| ImagesError::Task(error.to_string()))??;
        Ok::<_, CliError>((count, bytes))
    };
    let (saved, bytes) = tokio::select! {
        biased;
        _ = session.stop.stopped() => {
            session.screen.live(&[]);
            let text = format!(
                "stopped; what is there so far is in `{}.part`, and the same command continues from it",
                args.output.display()
            );
            session.screen.print(&text);
            return Ok(STOPPED);
        }
        saved = Box::pin(saving) => {
            session.screen.live(&[]);
            saved?
        }
    };
    let text = format!(
        "saved: `{}`, {}, {}",
        args.output.display(),
        count(saved, "image"),
        megabytes(bytes)
    );
    print::data(&text)?;
    Ok(0)
}

/// Where images are saved from.
enum Source {
    Registries(Box<Puller>),
    Nodes {
        nodes: Vec<NodeName>,
        export: Box<ImageExport>,
        platform: std::sync::Mutex<Option<ImagePlatform>>,
    },
}

impl Source {
    /// Of the proxies that cannot be used for registries.
    fn warn_of_proxies(&self, session: &Session) {
        if !matches!(self, Self::Registries(_)) {
            return;
        }
        for error in proxy::unusable_for_downloads() {
            let hints = error.hints();
            let hint = hints.first().map_or("", |hint| &**hint);
            let text = format!("{error}: registries are reached without it; {hint}");
            session.screen.warn(&text);
        }
    }

    async fn of(
        args: &ImagesSave,
        intent: &Intent,
        environment: &Environment,
    ) -> Result<Self, CliError> {
        let nodes = &args.from_node;
        if nodes.is_empty() {
            let platform = args
                .platform
                .clone()
                .unwrap_or_else(|| ImagePlatform::of_node("amd64"));
            let puller = Puller::new(&intent.registries, &args.insecure_registry, platform)?;
            return Ok(Self::Registries(Box::new(puller)));
        }
        if let Some(unknown) = nodes.iter().find(|node| !intent.nodes.contains_key(node)) {
            return Err(Failure::no_node(unknown, intent).into());
        }
        let export = ImageExport::of(intent, environment).await?;
        Ok(Self::Nodes {
            nodes: nodes.clone(),
            export: Box::new(export),
            platform: args.platform.clone().into(),
        })
    }

    /// Brings one image into the bundle, and shows how. The inner error: the node does not have it.
    async fn image(
        &self,
        name: &str,
        mut writer: BundleWriter,
        session: &Session,
        (number, of): (usize, usize),
    ) -> Result<(BundleWriter, Result<SavedImage, ImagesError>), CliError> {
        let shown = Arc::new(Shown::default());
        let place = format!("{number}/{of} {name}");
        let doing = async {
            match self {
                Self::Registries(puller) => {
                    let progress = |done, total| shown.set(done, total);
                    let image = puller.pull(name, &mut writer, &progress).await?;
                    Ok::<_, CliError>((writer, Ok(image)))
                }
                Self::Nodes {
                    nodes,
                    export,
                    platform,
                } => {
                    let (mut writer, image) =
                        from_nodes(export, nodes, name, writer, &shown).await?;
                    let Some(image) = image else {
                        let (image, nodes) = (name.to_owned(), nodes.clone());
                        return Ok((writer, Err(ImagesError::NotOnNode { image, nodes })));
                    };
                    let is = writer.platform(&image)?;
                    let mut wanted = platform
                        .lock()
                        .unwrap_or_else(std::sync::PoisonError::into_inner);
                    let wanted = wanted.get_or_insert_with(|| is.clone());
                    if *wanted != is {
                        let (image, wanted) = (name.to_owned(), wanted.clone());
                        return Err(ImagesError::Platform { image, is, wanted }.into());
                    }
                    Ok((writer, Ok(image)))
                }
            }
        };
        let mut doing = Box::pin(doing);
        let mut ticks = interval(REDRAW);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let done = loop {
            tokio::select! {
                biased;
                done = &mut doing => break done,
                _ = ticks.tick() => if let Some(room) = session.screen.room() {
                    session.screen.live(&[clip(&format!("{place}  {}", shown.text()), room.columns)]);
                }
            }
        };
        session.screen.live(&[]);
        let done = done?;
        if done.1.is_ok() {
            session
                .screen
                .print_unless_quiet(&format!("{place}  {}", shown.text()));
        }
        Ok(done)
    }
}

fn not_on(nodes: &[NodeName], image: &str) -> String {
    match nodes {
        [node] => format!("node `{node}` does not have image `{image}`"),
        _ => format!("none of the nodes {} has image `{image}`", quoted(nodes)),
    }
}

/// An image of the first node that has it.
async fn from_nodes(
    export: &ImageExport,
    nodes: &[NodeName],
    name: &str,
    mut writer: BundleWriter,
    shown: &Arc<Shown>,
) -> Result<(BundleWriter, Option<SavedImage>), CliError> {
    for node in nodes {
        let (back, image) = Box::pin(from_node(export, node, name, writer, shown)).await?;
        if image.is_some() {
            return Ok((back, image));
        }
        writer = back;
    }
    Ok((writer, None))
}

/// An image of a node, if it has it. A node that is away for a moment is waited for.
async fn from_node(
    export: &ImageExport,
    node: &NodeName,
    name: &str,
    mut writer: BundleWriter,
    shown: &Arc<Shown>,
) -> Result<(BundleWriter, Option<SavedImage>), CliError> {
    let mut tries = 0;
    loop {
        let told = Arc::clone(shown);
        let (back, taken) = export
            .take((node, name), writer, move |done| told.set(done, 0))
            .await;
        let lost = || ImagesError::Task("the bundle was lost".to_owned());
        writer = back.ok_or_else(lost)?;
        let error = match taken {
            Ok(image) => return Ok((writer, Some(image))),
            Err(ExportError::Bundle(error)) => return Err(error.into()),
            Err(ExportError::Task(why)) => return Err(ImagesError::Task(why).into()),
            Err(ExportError::Node(StepError::Failed(error))) => error,
            Err(ExportError::Node(StepError::Guard(why))) => {
                return Err(ImagesError::Task(why).into());
            }
            Err(ExportError::Node(StepError::Stopped)) => return Err(CliError::Stopped),
        };
        tries += 1;
        if error.passing().is_none() || tries >= TRIES {
            let (image, node) = (name.to_owned(), node.clone());
            if is_missing(&*error) {
                return Ok((writer, None));
            }
            return Err(ImagesError::Node {
                image,
                node,
                class: error.class(),
                hints: error.hints(),
                source: error,
            }
            .into());
        }
        sleep(Duration::from_secs(2 * tries)).await;
    }
}

/// True where Docker has no image of that name.
fn is_missing(error: &(dyn Explain + Send + Sync + 'static)) -> bool {
    let error: &(dyn std::error::Error + 'static) = error;
    let of_host = error.downcast_ref::<crate::host::HostError>();
    of_host.is_some_and(|error| error.docker_status() == Some(404))
}

/// Bytes so far, and of how many.
#[derive(Debug, Default)]
struct Shown {
    done: AtomicU64,
    total: AtomicU64,
}

impl Shown {
    fn set(&self, done: u64, total: u64) {
        self.done.store(done, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
    }

    fn text(&self) -> String {
        let (done, total) = (
            self.done.load(Ordering::Relaxed),
            self.total.load(Ordering::Relaxed),
        );
        if done < total {
            format!("{} of {}", megabytes(done), megabytes(total))
        } else {
            megabytes(done)
        }
    }
}

/// Work on a disk that Ctrl-C need not wait for.
async fn blocking<T: Send + 'static, E: Into<CliError> + Send + 'static>(
    session: &Session,
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, CliError> {
    let done = tokio::select! {
        biased;
        _ = session.stop.stopped() => return Err(CliError::Stopped),
        done = tokio::task::spawn_blocking(work) => done,
    };
    let done = done.map_err(|error| ImagesError::Task(error.to_string()))?;
    done.map_err(Into::into)
}

/// Reads and verifies a bundle, if one is named.
pub(super) async fn opened(
    path: Option<&Path>,
    session: &Session,
) -> Result<Option<Bundle>, CliError> {
    match path {
        Some(path) => Ok(Some(open(path, session).await?)),
        None => Ok(None),
    }
}

async fn open(path: &Path, session: &Session) -> Result<Bundle, CliError> {
    let path: PathBuf = path.to_owned();
    let text = format!("reading and verifying `{}`", path.display());
    session.screen.live(&[text]);
    let bundle = blocking(session, move || Bundle::open(&path)).await;
    session.screen.live(&[]);
    bundle
}

/// `images load`.
pub(super) async fn load(args: &ImagesLoad, session: &Session) -> Result<Ended, CliError> {
    let file = &args.config.config;
    let intent = intent::load(file, session).await?;
    let opening = Opening {
        bundle: Some(open(&args.bundle, session).await?),
        ..Opening::to_change(&args.trust)
    };
    let environment = environment::open(file, opening, session)?;
    let loaded = load_shown(&intent, &environment, args.output, session).await?;
    let LoadedImages {
        left,
        changed,
        stopped,
        notes,
    } = loaded;
    if stopped {
        let text = format!(
            "stopped; `rke-operator images load {}` again continues from here",
            args.bundle.display()
        );
        session.screen.print(&text);
        return Ok(Ended::Stopped);
    }
    for note in notes.iter().filter(|note| note.target.is_none()) {
        session.screen.warn(&note.text);
    }
    if left.is_empty() {
        let nodes = count(intent.nodes.len(), "node");
        let text = if changed {
            format!("\nthe images are on {nodes}")
        } else {
            format!("\nnothing to do: {nodes} with every image that the bundle has for them")
        };
        session.screen.print_unless_quiet(&text);
        return Ok(Ended::Converged {
            changed,
            kubeconfig: None,
            last_snapshot: None,
        });
    }
    if left.len() == intent.nodes.len() {
        let down = left.into_iter().collect();
        return Err(converge::Error::HostsUnreachable {
            down,
            why: None,
            changed,
        }
        .into());
    }
    session.screen.print(&without(&left));
    Ok(Ended::Degraded {
        changed,
        kubeconfig: kubeconfig_of(file).display().to_string(),
        left,
        missing: Vec::new(),
    })
}

fn without(left: &BTreeMap<NodeName, Unreachable>) -> String {
    let nodes = left
        .iter()
        .map(|(name, down)| format!("\n  {name}: {}", down.why));
    let hints = distinct(left.values().flat_map(|down| &down.hints));
    let hints = hints.iter().map(|hint| format!("\nhint: {hint}"));
    format!(
        "\nthe images are on the other nodes, without {}:{}\n{}\nhint: the same command again continues from here",
        count(left.len(), "node"),
        nodes.collect::<String>(),
        hints.collect::<String>()
    )
}
