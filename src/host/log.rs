//! What `--debug` shows of each request: where it went, what was asked, how it ended and how long
//! that took. Never a header, a body or a script: they may hold secrets.

use std::{fmt::Display, time::Instant};

use http::{Request, Response};

/// A request that is about to be sent.
pub struct Sending {
    words: String,
    begun: Instant,
}

impl Sending {
    /// Method and path.
    pub fn of<B>(request: &Request<B>) -> Self {
        let path = request.uri().path_and_query();
        let path = path.map_or("/", |path| path.as_str());
        Self {
            words: format!("{} {path}", request.method()),
            begun: Instant::now(),
        }
    }

    /// Says how it ended.
    pub fn ended<T, E>(self, to: impl Display, answer: &Result<Response<T>, E>) {
        let status = answer.as_ref().ok().map(|answer| answer.status().as_u16());
        let took = self.begun.elapsed();
        tracing::debug!(%to, status, ?took, "{}", self.words);
    }
}
