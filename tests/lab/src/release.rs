//! Releases of Kubernetes beside the default one: which images belong to each, and what they are
//! made of. It knows no recipe's inside.
//!
//! The names are those of the product's catalogue. Kubernetes and etcd are built in the version that
//! the name tells, by the default release's recipe with a folder of `images/releases/` laid over it
//! (`new.sh` there writes one). Add-ons, their charts, pause and the CNI plugins are those of the default release
//! under one more name: a change of release replaces them too, by what is the same. Where images are
//! pulled, all are what their names tell.

use std::{collections::BTreeMap, io::Write, path::PathBuf};

use serde::Deserialize;

use crate::{
    Image, Images, LabError, Store, cache, overlay,
    recipe::{self, Recipe},
};

/// The product's catalogue, the whole document.
const CATALOGUE: &str = include_str!("../../../src/catalog/catalog.yaml");

/// What decides a program's version where the version decides what a test sees.
const MODULES: [(&str, &str); 2] = [
    ("kubernetes", "k8s.io/kubernetes"),
    ("etcd", "go.etcd.io/etcd/server/v3"),
];

/// What is read of the catalogue: programs and their published names, by release.
#[derive(Deserialize)]
struct Catalogue {
    releases: BTreeMap<String, BTreeMap<String, String>>,
}

fn catalogue() -> Result<Catalogue, LabError> {
    serde_json::from_value(overlay::parsed("catalog.yaml", CATALOGUE)?).map_err(|e| {
        LabError::Content {
            path: "catalog.yaml".into(),
            why: e.to_string(),
        }
    })
}

/// The published names of a release's images by program.
fn names(release: &str) -> Result<BTreeMap<String, String>, LabError> {
    let mut row = catalogue()?.releases.remove(release).ok_or_else(|| {
        LabError::Refused(format!(
            "the catalogue has no release {release:?}; one is called v1.34.4"
        ))
    })?;
    row.remove("release");
    // Asked for by `dns.nodelocal` alone; the lab has no such cluster.
    row.remove("dns-node-cache");
    // Named by charts; the lab's charts name the lab's own.
    for chart in [
        "calico",
        "nginx-ingress-controller",
        "kube-webhook-certgen",
        "traefik",
    ] {
        row.remove(chart);
    }
    Ok(row)
}

/// The version in a published name: 3.6.14 of `rancher/hardened-etcd:v3.6.14-k3s1-build20260723`.
fn version(name: &str) -> &str {
    let tag = name.rsplit(':').next().unwrap_or(name);
    let tag = tag.strip_prefix('v').unwrap_or(tag);
    tag.split('-').next().unwrap_or(tag)
}

/// The recipe of a program for a published name, if a folder of `images/releases/` is for it.
fn laid_over(program: &str, name: &str) -> Result<Option<Recipe>, LabError> {
    let over = folder().join(format!("{program}-{}", version(name)));
    if !over.is_dir() {
        return Ok(None);
    }
    let path = over.join("go.mod");
    let modules = cache::read(&path)?;
    let built = MODULES
        .iter()
        .find(|(of, _)| *of == program)
        .and_then(|(_, module)| required(&modules, module))
        .ok_or_else(|| LabError::Content {
            path,
            why: format!("it does not tell the version of {program}"),
        })?;
    let recipe = Recipe::of(program)?;
    Ok(Some(recipe.versioned(built, name.to_owned(), Some(over))))
}

/// The version of a module that a `go.mod` requires.
fn required(modules: &str, module: &str) -> Option<String> {
    modules.lines().find_map(|line| {
        let line = line.trim();
        let line = line.strip_prefix("require ").unwrap_or(line);
        let version = line.strip_prefix(module)?.strip_prefix(" v")?;
        Some(version.split_whitespace().next()?.to_owned())
    })
}

fn folder() -> PathBuf {
    recipe::recipes().join("releases")
}

/// Every recipe that `images/releases/` has a folder for.
pub(crate) fn recipes() -> Result<Vec<Recipe>, LabError> {
    let mut found = Vec::new();
    for row in catalogue()?.releases.values() {
        for (program, _) in MODULES {
            if let Some(name) = row.get(program) {
                found.extend(laid_over(program, name)?);
            }
        }
    }
    Ok(found)
}

impl Store {
    /// The images of a release, for the lab's registry; builds or pulls what the store does not have.
    pub fn release(&self, release: &str, log: &mut dyn Write) -> Result<Images, LabError> {
        names(release)?
            .keys()
            .map(|program| self.image_of_release(program, release, log))
            .collect::<Result<_, _>>()
            .map(Images)
    }

    /// One of them.
    pub(crate) fn image_of_release(
        &self,
        program: &str,
        release: &str,
        log: &mut dyn Write,
    ) -> Result<Image, LabError> {
        let names = names(release)?;
        let name = names
            .get(program)
            .ok_or_else(|| LabError::Refused(format!("a release has no image of {program:?}")))?;
        let default = Recipe::of(program)?;
        if default.names.contains(name) {
            return self.made(&default, release, log);
        }
        if self.pulls() {
            let version = version(name).to_owned();
            return self.made(
                &default.versioned(version, name.clone(), None),
                release,
                log,
            );
        }
        if let Some(recipe) = laid_over(program, name)? {
            return self.made(&recipe, release, log);
        }
        let exact = MODULES.iter().any(|(of, _)| *of == program);
        if exact && version(name) != default.version {
            return Err(LabError::Refused(format!(
                "the lab cannot build {name}: `tests/lab/images/releases/new.sh {program} {}` \
                 writes what it needs",
                version(name)
            )));
        }
        let image = self.made(&default, release, log)?;
        Ok(Image {
            names: vec![name.clone()],
            ..image
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_release_has_the_names_of_the_catalogue() {
        let names = names("v1.33.13").unwrap();
        assert_eq!(names.len(), 9, "{names:?}");
        assert_eq!(version(&names["kubernetes"]), "1.33.13");
        assert_eq!(version(&names["etcd"]), "3.6.14");
        assert_eq!(version(&names["pause"]), "3.10.2");
        assert!(super::names("1.33").is_err());
    }

    #[test]
    fn a_version_is_read_where_a_module_is_required() {
        let modules = "module a\nrequire (\n\ta.b/c v0.1.0\n\ta.b/c/d v1.2.3 // indirect\n)\n";
        assert_eq!(required(modules, "a.b/c"), Some("0.1.0".to_owned()));
        assert_eq!(required(modules, "a.b/c/d"), Some("1.2.3".to_owned()));
        assert_eq!(
            required("require a.b/c v2.0.0\n", "a.b/c"),
            Some("2.0.0".to_owned())
        );
        assert_eq!(required(modules, "a.b"), None);
    }

    /// A name that the catalogue no longer has would never be built.
    #[test]
    fn every_folder_is_some_releases() {
        let used: Vec<String> = recipes()
            .unwrap()
            .iter()
            .map(|recipe| format!("{}-{}", recipe.program, version(&recipe.names[0])))
            .collect();
        for entry in fs::read_dir(folder()).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            assert!(!path.is_dir() || used.contains(&name), "{name}");
        }
    }

    #[test]
    fn what_is_laid_over_has_a_key_of_its_own() {
        let default = Recipe::of("etcd").unwrap();
        let name = &names("v1.33.13").unwrap()["etcd"];
        let other = laid_over("etcd", name).unwrap().unwrap();
        assert_eq!(other.version, "3.6.14");
        assert_ne!(default.key().unwrap(), other.key().unwrap());
    }
}
