//! From a command to its exit code: 0, the error's [`ErrorClass`](crate::error::ErrorClass), 3
//! when the rest converged, or 130.

use std::{io, sync::Arc};

use super::{
    args::{Cert, Cli, Command, Encrypt, Etcd, Kubeconfig, Node, Output, Util},
    cert, cert_rotate, completion, config, crd, custom_certs, defrag, describe, doctor, init,
    kubeconfig, man, members, node,
    output::{
        Screen,
        json::{self, Ended},
    },
    plan, recover, reference, remove,
    report::CliError,
    rotate_key, run,
    session::{STOPPED, Session},
    signals, snapshot, snapshot_agent, snapshot_list, snapshot_named, snapshot_restore, status,
    status_all, up, validate, version,
};
use crate::{apply::stop::Stopper, snapshots::Doing};

/// The rest converged; some nodes of the config did not answer or failed. Of `status`: not all is
/// well.
pub(super) const DEGRADED: u8 = 3;

/// Runs a command to its end, or to the second Ctrl-C.
pub async fn dispatch(cli: Cli, screen: Arc<Screen>) -> u8 {
    let (stopper, stop) = Stopper::new();
    let session = Session {
        ssh_agent: cli.global.ssh_agent_auth,
        ..Session::new(Arc::clone(&screen), stop)
    };
    let in_flight = Arc::clone(&session.in_flight);
    let result = tokio::select! {
        result = command(&cli.command, &session) => result,
        () = signals::second(stopper, Arc::clone(&screen), in_flight) => Ok(STOPPED),
    };
    match result {
        Ok(code) => code,
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

async fn command(command: &Command, session: &Session) -> Result<u8, CliError> {
    match command {
        Command::Up(args) => ended(args.output, Box::pin(up::up(args, session)).await),
        Command::Remove(args) => ended(args.output, Box::pin(remove::remove(args, session)).await),
        Command::Plan(args) => failed(args.output, Box::pin(plan::plan(args, session)).await),
        Command::Validate(args) => {
            let result = Box::pin(validate::validate(args, session)).await;
            failed(args.output, result)
        }
        Command::Doctor(args) => failed(args.output, Box::pin(doctor::doctor(args, session)).await),
        Command::Config(args) => config::config(args, session).await,
        Command::Status(args) if args.all => {
            let result = Box::pin(status_all::status(args, session)).await;
            failed(args.output, result)
        }
        Command::Describe(args) => Box::pin(describe::describe(args, session)).await,
        Command::Status(args) => failed(args.output, Box::pin(status::status(args, session)).await),
        Command::Kubeconfig(args) => kubeconfig::kubeconfig(args, session).await,
        Command::Util(Util::GetKubeconfig(config)) => {
            let args = Kubeconfig {
                config: config.clone(),
                write: true,
            };
            kubeconfig::kubeconfig(&args, session).await
        }
        Command::Etcd(of_etcd) => etcd(of_etcd, session).await,
        Command::Cert(Cert::Info(args)) => Box::pin(cert::info(args, session)).await,
        Command::Cert(Cert::Rotate(args)) => {
            let result = Box::pin(cert_rotate::rotate(args, session)).await;
            ended(args.output, result)
        }
        Command::Cert(Cert::GenerateCsr(args)) => custom_certs::generate(args, session).await,
        Command::Encrypt(Encrypt::RotateKey(args)) => {
            let result = Box::pin(rotate_key::rotate(args, session)).await;
            ended(args.output, result)
        }
        Command::Node(Node::Reboot(args)) => {
            ended(args.output, Box::pin(node::reboot(args, session)).await)
        }
        Command::Node(Node::Drain(args)) => Box::pin(node::drain(args, session)).await,
        Command::Node(Node::Uncordon(args)) => Box::pin(node::uncordon(args, session)).await,
        Command::Node(Node::Reset(args)) => {
            ended(args.output, Box::pin(node::reset(args, session)).await)
        }
        Command::Version(args) => Box::pin(version::version(args, session)).await,
        Command::Crd => crd::crd(),
        Command::Completion(args) => completion::completion(args),
        Command::Man(args) => man::man(args),
        Command::Init(args) => Box::pin(init::init(args, session)).await,
        Command::Run(args) => Box::pin(run::run(args, session)).await,
        Command::SnapshotAgent(args) => snapshot_agent::run(args, session).await,
        Command::SnapshotFetch(args) => snapshot_agent::fetch(args, session).await,
        Command::SnapshotTake(args) => snapshot_agent::take(args, session).await,
        Command::SnapshotVerify(args) => snapshot_agent::verify(args, session).await,
        Command::SnapshotDelete(args) => snapshot_agent::delete(args),
        Command::SnapshotState(args) => snapshot_agent::state(args, session).await,
        Command::Reference(args) => reference::write(args),
    }
}

async fn etcd(command: &Etcd, session: &Session) -> Result<u8, CliError> {
    match command {
        Etcd::Members(args) => failed(args.output, Box::pin(members::members(args, session)).await),
        Etcd::SnapshotSave(args) => {
            failed(args.output, Box::pin(snapshot::save(args, session)).await)
        }
        Etcd::SnapshotList(args) => failed(
            args.output,
            Box::pin(snapshot_list::list(args, session)).await,
        ),
        Etcd::SnapshotRestore(args) => {
            let result = Box::pin(snapshot_restore::restore(args, session)).await;
            ended(args.output, result)
        }
        Etcd::Recover(args) => {
            let result = Box::pin(recover::recover(args, session)).await;
            ended(args.output, result)
        }
        Etcd::SnapshotDelete(args) => {
            let doing = Box::pin(snapshot_named::named(Doing::Delete, args, session));
            failed(args.output, doing.await)
        }
        Etcd::Defrag(args) => failed(args.output, Box::pin(defrag::defrag(args, session)).await),
        Etcd::Verify(args) => {
            let doing = Box::pin(snapshot_named::named(Doing::Verify, args, session));
            failed(args.output, doing.await)
        }
    }
}

/// With `--output json` a program reads why there is no result, too.
fn failed(output: Output, result: Result<u8, CliError>) -> Result<u8, CliError> {
    if let (Output::Json, Err(error)) = (output, &result) {
        let _ = json::ended(&mut io::stdout().lock(), &error.ended());
    }
    result
}

/// With `--output json` the last line says how it ended, whichever way that was.
fn ended(output: Output, result: Result<Ended, CliError>) -> Result<u8, CliError> {
    if output == Output::Json {
        let last = match &result {
            Ok(ended) => ended.clone(),
            Err(error) => error.ended(),
        };
        // A reader that is gone changes nothing about how it ended.
        let _ = json::ended(&mut io::stdout().lock(), &last);
    }
    result.map(|ended| match ended {
        Ended::Stopped => STOPPED,
        Ended::Degraded { .. } => DEGRADED,
        Ended::Converged { .. } | Ended::Failed { .. } => 0,
    })
}
