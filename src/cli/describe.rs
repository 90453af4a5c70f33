//! `describe`: one `Cluster` of the management cluster, for people. Reads the object, its Kubeconfig and its Events.

use serde_json::Value;

use super::{
    args::Describe as Args,
    dispatch::DEGRADED,
    management::Management,
    output::{
        Page,
        description::{Description, render},
    },
    print,
    report::CliError,
    session::{STOPPED, Session},
    status_all::now,
};
use crate::{
    api::{
        kubeconfig_secret,
        observed::{ObservedCluster, ObservedEvent},
    },
    error::with_causes,
    model::printable,
    operator::credentials_namespace,
};

/// Runs it.
pub(super) async fn describe(args: &Args, session: &Session) -> Result<u8, CliError> {
    let management = Management::open(args.kubeconfig.as_deref(), args.context.as_deref()).await?;
    let name = args.name.as_str();
    let read = async {
        let object = management.cluster(name).await?;
        let uid = object.pointer("/metadata/uid").and_then(Value::as_str);
        let uid = uid.unwrap_or_default().to_owned();
        let (events, kubeconfig) =
            tokio::join!(management.events(name, &uid), management.kubeconfig(name));
        Ok::<_, CliError>((object, events, kubeconfig))
    };
    let (object, events, kubeconfig) = tokio::select! {
        biased;
        _ = session.stop.stopped() => return Ok(STOPPED),
        read = read => read?,
    };
    let now = now();
    let cluster = ObservedCluster::read(&object, now);
    let events = events.map_err(|error| with_causes(&error)).map(|events| {
        let mut events: Vec<ObservedEvent> = events.iter().map(ObservedEvent::read).collect();
        events.sort_by_key(|event| event.at);
        events
    });
    let said = |place: &str| {
        let text = kubeconfig.as_ref()?.pointer(place)?.as_str()?;
        Some(printable(text).into_owned())
    };
    let named = args.credentials_namespace.clone();
    let credentials = said("/status/secretRef/namespace").or(named);
    let credentials = credentials.unwrap_or_else(|| credentials_namespace(&args.namespace));
    let secret = match &kubeconfig {
        Some(object) if is_ready(object) => said("/status/secretRef/name"),
        Some(_) => None,
        // It may not be read: the operator names the Secret so.
        None => cluster
            .version
            .as_ref()
            .map(|_| kubeconfig_secret(&cluster.name)),
    };
    let text = render(
        &Description {
            cluster: &cluster,
            events: events.as_deref().map_err(String::as_str),
            kubeconfig: secret.as_deref(),
            credentials: &credentials,
            namespace: &args.namespace,
            now,
        },
        Page::stdout(),
    );
    print::data(&text)?;
    Ok(if cluster.is_healthy() { 0 } else { DEGRADED })
}

/// The Secret is there.
fn is_ready(kubeconfig: &Value) -> bool {
    let conditions = kubeconfig
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|one| {
        one.get("type") == Some(&"Ready".into()) && one.get("status") == Some(&"True".into())
    })
}
