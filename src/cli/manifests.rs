//! The manifests that `addons_include` names: files next to the config, and URLs.
use std::{borrow::Cow, io, path::Path, time::Duration};

use http::{Request, Uri, header};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;

use super::{
    proxy::{self, ProxyError},
    sources::read_at_most,
};
use crate::{config::Refusal, error::Explain as _};

/// The definitions of the largest projects have some megabytes.
const MAX_BYTES: usize = 8 * 1024 * 1024;

/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often a server may point elsewhere.
const REDIRECTS: usize = 5;

/// Reads one; relative paths begin at `folder`.
pub(super) fn read(place: &str, folder: &Path) -> Result<String, Refusal> {
    if place.starts_with("http://") || place.starts_with("https://") {
        return download(place);
    }
    let file = folder.join(place);
    let text = read_at_most(MAX_BYTES, &file).map_err(|error| {
        let message = [
            (io::ErrorKind::NotFound, "the manifest does not exist"),
            (
                io::ErrorKind::PermissionDenied,
                "the manifest may not be read",
            ),
            (io::ErrorKind::IsADirectory, "the manifest is a directory"),
        ]
        .into_iter()
        .find(|(kind, _)| *kind == error.kind())
        .map_or("the manifest cannot be read", |(_, message)| message);
        Refusal {
            message: message.to_owned(),
            detail: Some(format!(
                "{}: {}",
                file.display(),
                crate::error::with_causes(&error)
            )),
            hint: Some("relative paths begin at the folder of the config".to_owned()),
        }
    })?;
    small(text, place)
}

fn small(text: String, place: &str) -> Result<String, Refusal> {
    if text.len() > MAX_BYTES {
        return Err(Refusal {
            message: format!("the manifest has more than {} MiB", MAX_BYTES >> 20),
            detail: Some(place.to_owned()),
            hint: None,
        });
    }
    Ok(text)
}

/// On a dedicated thread: the caller is synchronous, may run inside a runtime, and waits for the answer.
fn download(place: &str) -> Result<String, Refusal> {
    let fetched = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(|error| error.to_string())?;
            runtime.block_on(fetch(place))
        });
        let ended = || Err("the download ended without an answer".to_owned().into());
        thread.join().unwrap_or_else(|_| ended())
    });
    match fetched {
        Ok(text) => small(text, place),
        Err(NotFetched { why, hint }) => Err(Refusal {
            message: "the manifest cannot be downloaded".to_owned(),
            detail: Some(format!("{place}: {why}")),
            hint: hint.or_else(|| Some("download it, and write the path of the file".to_owned())),
        }),
    }
}

/// Why there is no text, and a cure that the reason has.
struct NotFetched {
    why: String,
    hint: Option<String>,
}

impl From<String> for NotFetched {
    fn from(why: String) -> Self {
        Self { why, hint: None }
    }
}

impl From<ProxyError> for NotFetched {
    fn from(error: ProxyError) -> Self {
        let hint = error.hints().into_iter().next();
        Self {
            why: error.to_string(),
            hint: hint.map(Cow::into_owned),
        }
    }
}

async fn fetch(place: &str) -> Result<String, NotFetched> {
    let mut place = place.to_owned();
    for _ in 0..=REDIRECTS {
        let answer = tokio::time::timeout(PATIENCE, once(&place)).await;
        let late = || format!("no answer within {} s", PATIENCE.as_secs());
        match answer.map_err(|_| late())?? {
            Answer::Text(text) => return Ok(text),
            Answer::Elsewhere(next) => place = next,
        }
    }
    Err("the server points elsewhere again and again"
        .to_owned()
        .into())
}

enum Answer {
    Text(String),
    Elsewhere(String),
}

async fn once(place: &str) -> Result<Answer, NotFetched> {
    let uri: Uri = place.parse().map_err(|error| format!("{error}"))?;
    let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err("is not a URL".to_owned().into());
    };
    let server = format!("{scheme}://{authority}");
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::get(path)
        .body(Body::empty())
        .map_err(|error| error.to_string())?;
    let to: Uri = server.parse().map_err(|error| format!("{error}"))?;
    let proxy = proxy::of(&to)?;
    let through = proxy.as_ref().map(proxy::shown);
    let through = through.map_or_else(String::new, |proxy| format!(" (through the proxy {proxy})"));
    let mut config = kube::Config::new(to);
    config.proxy_url = proxy;
    let client = kube::Client::try_from(config);
    let client = client.map_err(|error| crate::error::with_causes(&error))?;
    let response = client.send(request).await;
    let response =
        response.map_err(|error| format!("{}{through}", crate::error::with_causes(&error)))?;
    let status = response.status();
    if status.is_redirection() {
        let next = response.headers().get(header::LOCATION);
        let next = next.and_then(|next| next.to_str().ok()).unwrap_or_default();
        return Ok(Answer::Elsewhere(match next.strip_prefix('/') {
            Some(path) => format!("{server}/{path}"),
            None => next.to_owned(),
        }));
    }
    if !status.is_success() {
        return Err(format!("the server answers {status}").into());
    }
    let body = Limited::new(response.into_body(), MAX_BYTES);
    let body = body.collect().await.map_err(|error| error.to_string())?;
    let text = String::from_utf8(body.to_bytes().to_vec());
    text.map(Answer::Text)
        .map_err(|_| "it is not UTF-8 text".to_owned().into())
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::TcpListener,
    };

    use super::*;

    #[test]
    fn files_begin_at_the_folder_of_the_config() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("a.yaml"), "a").expect("a file");
        assert_eq!(read("a.yaml", folder.path()).expect("a text"), "a");
        let refused = |place: &str| read(place, folder.path()).expect_err(place).message;
        assert_eq!(refused("b.yaml"), "the manifest does not exist");
        assert_eq!(refused("."), "the manifest is a directory");
        let file = std::fs::File::create(folder.path().join("big")).expect("a file");
        file.set_len(9 << 20).expect("a size");
        assert_eq!(refused("big"), "the manifest has more than 8 MiB");
    }

    /// One answer to each connection.
    fn serve(answers: Vec<String>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let server = format!("http://{}", listener.local_addr().expect("an address"));
        std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().expect("a connection");
                let mut request = [0; 2048];
                let _ = stream.read(&mut request).expect("a request");
                let answer = format!("HTTP/1.1 {answer}");
                stream.write_all(answer.as_bytes()).expect("an answer");
            }
        });
        server
    }

    #[test]
    fn urls_are_downloaded_and_followed() {
        let here = Path::new("");
        let server = serve(vec![
            "302 Found\r\nLocation: /b?c=d\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                .to_owned(),
            "200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nkind:".to_owned(),
            "404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_owned(),
        ]);
        assert_eq!(read(&format!("{server}/a"), here).expect("a text"), "kind:");
        let refused = read(&format!("{server}/a"), here).expect_err("no text");
        assert_eq!(refused.message, "the manifest cannot be downloaded");
        let detail = refused.detail.expect("a detail");
        assert!(
            detail.ends_with("the server answers 404 Not Found"),
            "{detail}"
        );
    }
}
