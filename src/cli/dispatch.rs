//! From a command to its exit code: 0, the error's [`ErrorClass`](crate::error::ErrorClass), 3
//! when the rest converged, or 130.

use std::{io, sync::Arc};

use super::{
    args::{Cert, Cli, Command, Encrypt, Etcd, Images, Kubeconfig, Node, Output, Util},
    cert, cert_rotate, complete, completion, config, crd, custom_certs, defrag, describe, doctor,
    images, init, kubeconfig, man, members, node,
    output::{
        Screen,
        json::{self, Ended},
    },
    plan, recover, reference, remove,
    report::CliError,
    rotate_key, run,
    session::{STOPPED, Session},
    signals, snapshot, snapshot_agent, snapshot_list, snapshot_named, snapshot_restore,
    ssh_config::SshSettings,
    state_file, status, status_all, up, validate, version,
};
use crate::{apply::stop::Stopper, snapshots::Doing};

/// The rest converged; some nodes of the config did not answer or failed. Of `status`: not all is
/// well.
pub(super) const DEGRADED: u8 = 3;

/// How a command ended that did not fail.
#[derive(Debug)]
enum Finished {
    /// It printed its result, if it has one. The exit code.
    Printed(u8),
    /// Its last line.
    Run(Ended),
}

impl Finished {
    const fn exit_code(&self) -> u8 {
        match self {
            Self::Printed(code) => *code,
            Self::Run(ended) => ended.exit_code(),
        }
    }
}

impl From<u8> for Finished {
    fn from(code: u8) -> Self {
        Self::Printed(code)
    }
}

impl From<Ended> for Finished {
    fn from(ended: Ended) -> Self {
        Self::Run(ended)
    }
}

/// Runs a command to its end, or to the second Ctrl-C.
pub async fn dispatch(cli: Cli, screen: Arc<Screen>) -> u8 {
    let (stopper, stop) = Stopper::new();
    let session = Session {
        ssh_agent: cli.global.ssh_agent_auth,
        ssh_config: Arc::new(SshSettings::new(cli.global.no_ssh_config)),
        ..Session::new(Arc::clone(&screen), stop)
    };
    let in_flight = Arc::clone(&session.in_flight);
    let result = tokio::select! {
        result = command(&cli.command, &session) => result,
        () = signals::second(stopper, Arc::clone(&screen), in_flight) => Ok(STOPPED.into()),
    };
    if cli.command.output() == Some(Output::Json)
        && let Some(last) = last(&result)
    {
        // A reader that is gone changes nothing about how it ended.
        let _ = json::ended(&mut io::stdout().lock(), &last);
    }
    match result {
        Ok(finished) => finished.exit_code(),
        Err(error) => {
            screen.print(&error.render(screen.paint()));
            if let Some(log) = screen.log() {
                screen.print(&format!(
                    "{} {}",
                    screen.paint().hint("log:"),
                    log.display()
                ));
            }
            error.exit_code()
        }
    }
}

/// The last object for programs; `None` where the command printed its result.
fn last(result: &Result<Finished, CliError>) -> Option<Ended> {
    match result {
        Ok(Finished::Printed(STOPPED)) => Some(Ended::Stopped),
        Ok(Finished::Printed(_)) => None,
        Ok(Finished::Run(ended)) => Some(ended.clone()),
        Err(error) => Some(error.ended()),
    }
}

async fn command(command: &Command, session: &Session) -> Result<Finished, CliError> {
    Ok(match command {
        Command::Up(args) => Box::pin(up::up(args, session)).await?.into(),
        Command::Remove(args) => Box::pin(remove::remove(args, session)).await?.into(),
        Command::Plan(args) => Box::pin(plan::plan(args, session)).await?.into(),
        Command::Validate(args) => Box::pin(validate::validate(args, session)).await?.into(),
        Command::Doctor(args) => Box::pin(doctor::doctor(args, session)).await?.into(),
        Command::Config(args) => config::config(args, session).await?.into(),
        Command::Status(args) if args.all => {
            Box::pin(status_all::status(args, session)).await?.into()
        }
        Command::Describe(args) => Box::pin(describe::describe(args, session)).await?.into(),
        Command::Status(args) => Box::pin(status::status(args, session)).await?.into(),
        Command::Kubeconfig(args) => kubeconfig::kubeconfig(args, session).await?.into(),
        Command::Util(Util::GetKubeconfig(config)) => {
            let args = Kubeconfig {
                config: config.clone(),
                write: true,
            };
            kubeconfig::kubeconfig(&args, session).await?.into()
        }
        Command::Util(Util::GetStateFile(args)) => {
            Box::pin(state_file::get(args, session)).await?.into()
        }
        Command::Etcd(of_etcd) => etcd(of_etcd, session).await?,
        Command::Cert(of_cert) => cert(of_cert, session).await?,
        Command::Encrypt(Encrypt::RotateKey(args)) => {
            Box::pin(rotate_key::rotate(args, session)).await?.into()
        }
        Command::Node(of_node) => node(of_node, session).await?,
        Command::Images(of_images) => images(of_images, session).await?,
        Command::Version(args) => Box::pin(version::version(args, session)).await?.into(),
        Command::Crd => crd::crd()?.into(),
        Command::Completion(args) => completion::completion(args)?.into(),
        Command::Complete(args) => complete::complete(args).await?.into(),
        Command::Man(args) => man::man(args)?.into(),
        Command::Init(args) => Box::pin(init::init(args, session)).await?.into(),
        Command::Run(args) => Box::pin(run::run(args, session)).await?.into(),
        Command::SnapshotAgent(args) => snapshot_agent::run(args, session).await?.into(),
        Command::SnapshotFetch(args) => snapshot_agent::fetch(args, session).await?.into(),
        Command::SnapshotTake(args) => snapshot_agent::take(args, session).await?.into(),
        Command::SnapshotVerify(args) => snapshot_agent::verify(args, session).await?.into(),
        Command::SnapshotDelete(args) => snapshot_agent::delete(args)?.into(),
        Command::SnapshotState(args) => snapshot_agent::state(args, session).await?.into(),
        Command::Reference(args) => reference::write(args)?.into(),
    })
}

async fn cert(command: &Cert, session: &Session) -> Result<Finished, CliError> {
    Ok(match command {
        Cert::Info(args) => Box::pin(cert::info(args, session)).await?.into(),
        Cert::Rotate(args) => Box::pin(cert_rotate::rotate(args, session)).await?.into(),
        Cert::GenerateCsr(args) => custom_certs::generate(args, session).await?.into(),
    })
}

async fn node(command: &Node, session: &Session) -> Result<Finished, CliError> {
    Ok(match command {
        Node::Reboot(args) => Box::pin(node::reboot(args, session)).await?.into(),
        Node::Drain(args) => Box::pin(node::drain(args, session)).await?.into(),
        Node::Uncordon(args) => Box::pin(node::uncordon(args, session)).await?.into(),
        Node::Reset(args) => Box::pin(node::reset(args, session)).await?.into(),
    })
}

async fn images(command: &Images, session: &Session) -> Result<Finished, CliError> {
    Ok(match command {
        Images::List(args) => Box::pin(images::list(args, session)).await?.into(),
        Images::Save(args) => Box::pin(images::save(args, session)).await?.into(),
        Images::Load(args) => Box::pin(images::load(args, session)).await?.into(),
    })
}

async fn etcd(command: &Etcd, session: &Session) -> Result<Finished, CliError> {
    Ok(match command {
        Etcd::Members(args) => Box::pin(members::members(args, session)).await?.into(),
        Etcd::SnapshotSave(args) => Box::pin(snapshot::save(args, session)).await?.into(),
        Etcd::SnapshotList(args) => Box::pin(snapshot_list::list(args, session)).await?.into(),
        Etcd::SnapshotRestore(args) => {
            let restoring = Box::pin(snapshot_restore::restore(args, session));
            restoring.await?.into()
        }
        Etcd::Recover(args) => Box::pin(recover::recover(args, session)).await?.into(),
        Etcd::SnapshotDelete(args) => {
            let doing = Box::pin(snapshot_named::named(Doing::Delete, args, session));
            doing.await?.into()
        }
        Etcd::Defrag(args) => Box::pin(defrag::defrag(args, session)).await?.into(),
        Etcd::Verify(args) => {
            let doing = Box::pin(snapshot_named::named(Doing::Verify, args, session));
            doing.await?.into()
        }
    })
}
