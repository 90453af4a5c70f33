//! Kubernetes' own tests: the programs that run them, and the images that they want in the registry.
//! What they say of a cluster is read in `conformance.rs`.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use crate::{Image, Images, LabError, Store, command::Run, image};

/// The recipe of `e2e.test` and of ginkgo, which runs it in several processes.
const PROGRAMS: &str = "e2e";

/// The recipes of the images.
const IMAGES: [&str; 2] = ["e2e-images", "busybox"];

/// Images of the lab under the names that the tests have for them.
const RENAMED: [(&str, &str); 2] = [("etcd", "etcd:3.6.4-0"), ("pause", "pause:3.10.1")];

/// The registry from which the tests pull these images by default.
const PUBLISHED: &str = "registry.k8s.io/";

/// All recipes that only these tests need.
pub(crate) fn recipes() -> impl Iterator<Item = &'static str> {
    IMAGES.into_iter().chain([PROGRAMS])
}

impl Store {
    /// The images that the conformance tests want, without the names' registry; built if the store
    /// lacks them, from the modules of the default release and wherever others come from.
    pub fn e2e(&self, log: &mut dyn Write) -> Result<Images, LabError> {
        let store = self.that_builds();
        let mut images = Vec::new();
        for program in IMAGES {
            images.push(store.image(program, log)?);
        }
        for (program, name) in RENAMED {
            images.push(Image {
                names: vec![name.to_owned()],
                ..self.image(program, log)?
            });
        }
        known(&images, &self.e2e_programs(log)?)?;
        Ok(Images(images))
    }

    /// The folder with `e2e.test` and `ginkgo`, which run on this machine.
    pub fn e2e_programs(&self, log: &mut dyn Write) -> Result<PathBuf, LabError> {
        let image = self.image(PROGRAMS, log)?;
        let ginkgo = image::program_of(&image, "ginkgo")?;
        let tests = image::program_of(&image, "e2e.test")?;
        Ok(tests.parent().unwrap_or(&ginkgo).to_owned())
    }
}

/// The names of images change with releases, and what is missing would only show by tests that wait
/// for it in vain: every name has to be one that these tests ask for.
fn known(images: &[Image], programs: &Path) -> Result<(), LabError> {
    let tests = programs.join("e2e.test").display().to_string();
    let listed = Run::new("cannot list the images of Kubernetes' tests", &tests)
        .args(["--list-images"])
        .text()?;
    let listed: Vec<&str> = listed
        .lines()
        .filter_map(|line| line.trim().strip_prefix(PUBLISHED))
        .collect();
    for image in images {
        for entry in image.named()? {
            if let Some(name) = entry
                .repo_tags
                .iter()
                .find(|name| !listed.contains(&name.as_str()))
            {
                return Err(LabError::Refused(format!(
                    "Kubernetes' tests want no image {name}; they want {}",
                    listed.join(", ")
                )));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::Recipe;

    #[test]
    fn every_recipe_is_there_and_no_name_is_given_twice() {
        let mut names: Vec<String> = RENAMED.map(|(_, name)| name.to_owned()).to_vec();
        for program in recipes() {
            let recipe = Recipe::of(program).unwrap();
            assert_eq!(recipe.program, program);
            names.extend(recipe.all_names());
        }
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all, "{names:?}");
    }

    /// They are built from the modules of the Kubernetes that the lab has by default.
    #[test]
    fn they_are_of_the_default_release() {
        let version = Recipe::of("kubernetes").unwrap().version;
        for program in [PROGRAMS, "e2e-images"] {
            assert_eq!(Recipe::of(program).unwrap().version, version);
        }
    }
}
