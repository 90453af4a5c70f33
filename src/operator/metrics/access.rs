//! Who may read the metrics: a bearer token that the management cluster authenticates (`TokenReview`), of a user who may
//! `get` the path `/metrics` (`SubjectAccessReview`). Both answers are kept for a short time.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, UserInfo},
    authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, Client, api::PostParams};
use sha2::{Digest, Sha256};
use tokio::{sync::Semaphore, time::Instant};

use crate::error::with_causes;

/// The path that the metrics are at, and that the right names.
pub(super) const PATH: &str = "/metrics";

/// How long an allowed token is not checked again; a right that was taken back counts for as long.
const ALLOWED: Duration = Duration::from_secs(60);

/// How long a refused one is not checked again.
const REFUSED: Duration = Duration::from_secs(10);

/// How long both reviews may take together, the wait for others' included.
const REVIEW: Duration = Duration::from_secs(5);

/// How many tokens are remembered.
const TOKENS: usize = 256;

/// How many tokens are reviewed at the same time.
const REVIEWS: usize = 4;

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Its user may read the metrics.
    Allowed,
    /// No token, or one that the management cluster does not know.
    Unauthenticated,
    /// Its user may not.
    Denied,
    /// The management cluster does not answer.
    Unknown,
}

/// Asks the management cluster.
pub(super) struct Guard {
    client: Client,
    known: Mutex<HashMap<[u8; 32], (Access, Instant)>>,
    reviews: Semaphore,
    /// Why the last review failed: each reason is logged once.
    failing: Mutex<Option<String>>,
}

impl Guard {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            known: Mutex::default(),
            reviews: Semaphore::new(REVIEWS),
            failing: Mutex::default(),
        }
    }

    /// What becomes of a request with that token.
    pub(super) async fn access(&self, token: Option<&str>) -> Access {
        let Some(token) = token.filter(|token| !token.is_empty()) else {
            return Access::Unauthenticated;
        };
        let key: [u8; 32] = Sha256::digest(token).into();
        if let Some(known) = self.known(&key) {
            return known;
        }
        let reviewed = tokio::time::timeout(REVIEW, self.review(token)).await;
        let reviewed = reviewed
            .map_err(|_| format!("no answer within {} s", REVIEW.as_secs()))
            .and_then(|answer| answer.map_err(|error| with_causes(&error)));
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        match reviewed {
            Ok(access) => {
                *failing = None;
                drop(failing);
                self.remember(key, access);
                access
            }
            Err(why) => {
                if failing.as_ref() != Some(&why) {
                    tracing::warn!(why, "cannot check who reads the metrics");
                }
                *failing = Some(why);
                Access::Unknown
            }
        }
    }

    /// How many tokens are remembered.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.known.lock().unwrap().len()
    }

    fn known(&self, key: &[u8; 32]) -> Option<Access> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (access, until) = known.get(key)?;
        (Instant::now() < *until).then_some(*access)
    }

    fn remember(&self, key: [u8; 32], access: Access) {
        let now = Instant::now();
        let time = match access {
            Access::Allowed => ALLOWED,
            Access::Unauthenticated | Access::Denied | Access::Unknown => REFUSED,
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= TOKENS {
            known.retain(|_, (access, until)| *access == Access::Allowed && now < *until);
        }
        if known.len() >= TOKENS {
            known.clear();
        }
        known.insert(key, (access, now + time));
    }

    async fn review(&self, token: &str) -> kube::Result<Access> {
        // It is never closed.
        let _place = self.reviews.acquire().await;
        let Some(user) = self.user(token).await? else {
            return Ok(Access::Unauthenticated);
        };
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                non_resource_attributes: Some(NonResourceAttributes {
                    path: Some(PATH.to_owned()),
                    verb: Some("get".to_owned()),
                }),
                user: user.username,
                groups: user.groups,
                uid: user.uid,
                extra: user.extra,
                resource_attributes: None,
            },
            ..SubjectAccessReview::default()
        };
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let answer = api.create(&PostParams::default(), &review).await?;
        let allowed = answer.status.is_some_and(|status| status.allowed);
        Ok(if allowed {
            Access::Allowed
        } else {
            Access::Denied
        })
    }

    /// Whose token it is.
    async fn user(&self, token: &str) -> kube::Result<Option<UserInfo>> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: token.to_owned(),
                audiences: None,
            },
            ..TokenReview::default()
        };
        let api: Api<TokenReview> = Api::all(self.client.clone());
        let answer = api.create(&PostParams::default(), &review).await?;
        let status = answer.status.unwrap_or_default();
        Ok(status.user.filter(|_| status.authenticated == Some(true)))
    }
}
