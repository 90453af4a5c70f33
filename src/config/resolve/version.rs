//! `kubernetes_version`: a release of the catalogue, in the spellings found in existing files. If it is empty,
//! rke-operator, like RKE, runs the release of the configured image (`system_images.kubernetes`).

use super::{Found, images, values};
use crate::{
    catalog::Catalogue,
    config::{cursor::Cursor, problem::Problem},
    model::{KubernetesVersion, quoted},
};

/// The release that the config wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) version: KubernetesVersion,
    /// Whether the config names it; else it is the catalogue's default.
    pub(super) given: bool,
}

/// Where a release is named.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Named {
    ByKey,
    ByImage,
}

/// `None` only when a problem was found.
pub(super) fn read(root: &Cursor<'_>, catalogue: &Catalogue, found: &mut Found) -> Option<Wanted> {
    let at = root.get("kubernetes_version");
    let before = found.problems.len();
    let (at, text, named) = if let Some(text) = values::text(&at, found) {
        (at, text, Named::ByKey)
    } else if found.problems.len() > before {
        return None;
    } else {
        let image = root.get("system_images").get("kubernetes");
        let Some(release) = image.scalar().and_then(images::release_of) else {
            let version = catalogue.default_version();
            let given = false;
            return Some(Wanted { version, given });
        };
        (image, release, Named::ByImage)
    };
    release(&at, text, named, catalogue, found).map(|version| Wanted {
        version,
        given: true,
    })
}

fn release(
    at: &Cursor<'_>,
    text: &str,
    named: Named,
    catalogue: &Catalogue,
    found: &mut Found,
) -> Option<KubernetesVersion> {
    let Some((version, suffix)) = parse(text) else {
        found.problem(
            at.problem("is not a Kubernetes release")
                .detail(text)
                .hint(format!(
                    "write one like `{}`{}",
                    catalogue.default_version(),
                    completion(text, catalogue).map_or_else(String::new, |version| format!(
                        "; the newest of this minor is `{version}`"
                    )),
                )),
        );
        return None;
    };
    let Some(release) = catalogue.release(version) else {
        found.problem(unknown(at, version, named, catalogue).detail(text));
        return None;
    };
    match suffix {
        Suffix::None | Suffix::Rancher => {}
        Suffix::Rke2 if text.trim_start_matches('v') == release.trim_start_matches('v') => {}
        Suffix::Rke2 => {
            found.problem(
                at.problem("this build of the release is not in the catalogue")
                    .detail(text)
                    .hint(format!("write `{release}`, or `{version}`")),
            );
            return None;
        }
    }
    if !catalogue.is_proven(version) {
        let proven: Vec<_> = catalogue
            .proven()
            .map(|proven| proven.to_string())
            .collect();
        found.warning(
            at.problem(format!(
                "{version} is in the catalogue, but not tested with this release of rke-operator"
            ))
            .hint(format!("the tested releases are {}", quoted(&proven))),
        );
    }
    Some(version)
}

/// The three numbers at the beginning of a release's name, or of an image's tag.
pub(super) fn numbers(text: &str) -> Option<KubernetesVersion> {
    parse(text).map(|(version, _)| version)
}

/// What may follow the three numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Suffix {
    None,
    /// `+rke2r1`
    Rke2,
    /// `-rancher1-1`: RKE's packaging of the same release.
    Rancher,
}

fn parse(text: &str) -> Option<(KubernetesVersion, Suffix)> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let end = text.find(['+', '-']).unwrap_or(text.len());
    let (numbers, rest) = text.split_at(end);
    let mut parts = numbers.split('.').map(number);
    let version = KubernetesVersion {
        major: parts.next()??,
        minor: parts.next()??,
        patch: parts.next()??,
    };
    if parts.next().is_some() {
        return None;
    }
    let suffix = if rest.is_empty() {
        Suffix::None
    } else if let Some(build) = rest.strip_prefix("+rke2r") {
        number(build).map(|_| Suffix::Rke2)?
    } else {
        // Early releases have no revision: `v1.10.3-rancher2`.
        let build = rest.strip_prefix("-rancher")?;
        let (rancher, revision) = build.split_once('-').unwrap_or((build, "1"));
        number(rancher)
            .and(number(revision))
            .map(|_| Suffix::Rancher)?
    };
    Some((version, suffix))
}

fn number(text: &str) -> Option<u16> {
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

/// The newest patch for `1.34` or `v1.34`.
fn completion(text: &str, catalogue: &Catalogue) -> Option<KubernetesVersion> {
    let (major, minor) = text.strip_prefix('v').unwrap_or(text).split_once('.')?;
    let (major, minor) = (number(major)?, number(minor)?);
    catalogue
        .versions()
        .filter(|version| (version.major, version.minor) == (major, minor))
        .max()
}

fn unknown(
    at: &Cursor<'_>,
    version: KubernetesVersion,
    named: Named,
    catalogue: &Catalogue,
) -> Problem {
    let problem = at.problem("this Kubernetes release is not in the catalogue");
    let same_minor =
        |other: &KubernetesVersion| (other.major, other.minor) == (version.major, version.minor);
    let all = || catalogue.versions();
    let (Some(oldest), Some(newest)) = (all().min(), all().max()) else {
        return problem;
    };
    let default = catalogue.default_version();
    let nearest = all()
        .filter(same_minor)
        .min_by_key(|other| other.patch.abs_diff(version.patch))
        .or_else(|| all().filter(|other| *other < version).max());
    let hint = match (nearest, named) {
        (Some(nearest), Named::ByKey) => {
            format!(
                "the nearest there is `{nearest}`; the catalogue goes from {oldest} to {newest}"
            )
        }
        (Some(nearest), Named::ByImage) => format!(
            "without `kubernetes_version` this image says which release to run, as in RKE: remove it, and write \
             `kubernetes_version: {nearest}`, the nearest there is"
        ),
        (None, named) => {
            let what = match named {
                Named::ByKey => "remove this key",
                Named::ByImage => {
                    "without `kubernetes_version` this image says which release to run, as in RKE: remove it"
                }
            };
            format!(
                "{what} for `{default}`, the default, or write another release from {oldest} to {newest}; a cluster \
                 that runs an older release cannot be taken over"
            )
        }
    };
    problem.hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spellings_in_use() {
        let v = |minor, patch| KubernetesVersion {
            major: 1,
            minor,
            patch,
        };
        for (text, want) in [
            ("v1.34.4", Some((v(34, 4), Suffix::None))),
            ("1.34.4", Some((v(34, 4), Suffix::None))),
            ("v1.34.4+rke2r1", Some((v(34, 4), Suffix::Rke2))),
            ("v1.32.5-rancher1-1", Some((v(32, 5), Suffix::Rancher))),
            ("v1.10.3-rancher2", Some((v(10, 3), Suffix::Rancher))),
            ("v1.34", None),
            ("1.34.4.1", None),
            ("1.34.4-rc1", None),
            ("v1.34.4+k3s1", None),
            ("1.+3.4", None),
            ("latest", None),
            ("", None),
        ] {
            assert_eq!(parse(text), want, "{text}");
        }
    }
}
