//! Programs of Debian's packages that are unpacked into the cache and not installed: no service of theirs is started.

use std::{io::Write, path::PathBuf};

use crate::{
    LabError,
    cache::{self, lock, make_dir, remove_dir},
    command::Run,
    host,
};

/// The folder with Debian's `prometheus` and `promtool`; the package is downloaded if the cache has none.
pub fn prometheus(log: &mut dyn Write) -> Result<PathBuf, LabError> {
    let folder = unpacked("prometheus", log)?;
    Ok(folder.join("usr/bin"))
}

/// What a package consists of.
fn unpacked(package: &'static str, log: &mut dyn Write) -> Result<PathBuf, LabError> {
    let root = cache::root().join("debian");
    let folder = root.join(package);
    let _lock = lock(&format!("debian-{package}"))?;
    if folder.is_dir() {
        return Ok(folder);
    }
    writeln!(log, "downloading Debian's {package}")
        .map_err(LabError::file("cannot write", &root))?;
    host::update_unless_known(package)?;
    let begun = root.join(format!("{package}.new"));
    remove_dir(&begun)?;
    make_dir(&begun)?;
    Run::new("cannot download a package", "apt-get")
        .args(["-qq", "download", package])
        .dir(&begun)
        .done()?;
    Run::new("cannot unpack a package", "sh")
        .args(["-c", "exec dpkg-deb --extract *.deb ."])
        .dir(&begun)
        .done()?;
    std::fs::rename(&begun, &folder).map_err(LabError::file("cannot rename", &begun))?;
    Ok(folder)
}
