//! How long the management cluster's API may take for an answer. A request that hangs ends in an
//! error that is tried again; it keeps no slot and no object for ever.

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use kube::{Client, client::Body};

use super::{health::Health, home::ServerTime, shallow::Shallow};
use crate::error::with_causes;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// For an answer; the API server's own limit is a minute.
const ANSWER: Duration = Duration::from_secs(65);

/// For a watch; it asks the API server to end it after 290 s.
const WATCH: Duration = Duration::from_secs(330);

/// A client whose requests end, and whose answers can be read; what time it is for the server is heard
/// from them, and whether it lets us read what we look after.
pub(super) fn bounded(client: Client, time: ServerTime, health: &Arc<Health>) -> Client {
    let health = Arc::clone(health);
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, time, health) = (client.clone(), time.clone(), Arc::clone(&health));
        async move {
            let watched = is_watch(&request).then(|| request.uri().path().to_owned());
            let answer = if watched.is_some() {
                watch(client, request).await
            } else {
                whole(client, request).await
            };
            if let Ok(answer) = &answer {
                time.hear(answer.headers());
            }
            if let Some(path) = watched {
                tell(&health, &path, &answer);
            }
            answer
        }
    });
    Client::new(service, namespace)
}

/// A client for single requests, whose answers can be read whatever an object has in it.
pub(crate) fn readable(client: Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request| whole(client.clone(), request));
    Client::new(service, namespace)
}

fn is_watch(request: &Request<Body>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    query.split('&').any(|pair| pair == "watch=true")
}

async fn in_time<T>(
    what: String,
    answer: impl Future<Output = Result<T, BoxError>>,
) -> Result<T, BoxError> {
    tokio::time::timeout(ANSWER, answer)
        .await
        .unwrap_or_else(|_| {
            let why = format!("{what}: no answer within {} s", ANSWER.as_secs());
            Err(io::Error::new(io::ErrorKind::TimedOut, why).into())
        })
}

/// Whether a watch began. A request to begin again is no failure.
fn tell(health: &Health, path: &str, answer: &Result<Answer, BoxError>) {
    let failed = match answer {
        Ok(answer) => {
            let code = answer.status();
            let refused = !code.is_success() && code != StatusCode::GONE;
            refused.then(|| format!("the API server answers {code}"))
        }
        Err(error) => Some(with_causes(&**error)),
    };
    match failed {
        Some(why) => health.cannot_read(path, &why),
        None => health.reads(path),
    }
}

fn named(request: &Request<Body>) -> String {
    format!("{} {}", request.method(), request.uri().path())
}

/// The answer with all of its body.
async fn whole(client: Client, request: Request<Body>) -> Result<Answer, BoxError> {
    let what = named(&request);
    let answer = async {
        let (head, body) = client.send(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        let body = Full::new(Shallow::default().pass(body)).map_err(|never| match never {});
        Ok(Response::from_parts(head, body.boxed_unsync()))
    };
    in_time(what, answer).await
}

/// The answer, with a body that ends: the client then starts a new watch.
async fn watch(client: Client, request: Request<Body>) -> Result<Answer, BoxError> {
    let what = named(&request);
    let answer = async { client.send(request).await.map_err(BoxError::from) };
    let (head, body) = in_time(what, answer).await?.into_parts();
    let mut filter = Shallow::default();
    let data = body
        .into_data_stream()
        .take_until(Box::pin(tokio::time::sleep(WATCH)))
        .map_ok(move |bytes| Frame::data(filter.pass(bytes)))
        .map_err(BoxError::from);
    Ok(Response::from_parts(
        head,
        BodyExt::boxed_unsync(StreamBody::new(data)),
    ))
}
